"""The target's pass against transformers, and its bits against itself.

Catches: a wrong mask (own copy causal, a visible sibling, ancestors swapped), rope off by a block, a tied
head ignored, stale scratch rows, a wrong copy stored, any row whose bits depend on what else is in the pass.
"""

import random
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dlmspec.cache import BlockCache
from dlmspec.models.attention import softmax_rows
from dlmspec.models.mlp import gated_silu
from dlmspec.models.target import Target
from dlmspec.models.target_pass import BlockCopy, PassOutput, pad_rows
from dlmspec.models.transformer import rms_norm

SHAPES = [
    (4, 6, 2),
    (8, 5, 1),
    (16, 3, 3),
    (32, 6, 3),
]  # block length, heads, kv heads; 4 x 3 rows need padding


@pytest.fixture(autouse=True)
def set_threads():
    """One thread unless a test asks for more: two of them crawl where another process holds a core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch.set_num_threads
    torch.set_num_threads(before)


def load(tiny_sdar, shape: tuple[int, int, int] = (4, 6, 2), dtype=torch.float32, **options) -> Target:
    block_length, heads, kv_heads = shape
    directory = tiny_sdar(block_length=block_length, heads=heads, kv_heads=kv_heads, **options)
    return Target.from_directory(directory, dtype=dtype)


def poisoned_cache(target: Target, num_tokens: int) -> BlockCache:
    """A cache whose unwritten rows are NaN: whatever reads them shows."""
    cache = target.new_cache(num_tokens)
    cache.keys.fill_(float("nan"))
    cache.values.fill_(float("nan"))
    return cache


def draw(target: Target, num_blocks: int = 1, seed: int = 0) -> tuple[int, ...]:
    rng = random.Random(seed)
    return tuple(rng.randrange(target.spec.vocab_size) for _ in range(num_blocks * target.spec.block_length))


def prefilled(target: Target, num_blocks: int, num_more: int = 4) -> BlockCache:
    cache = poisoned_cache(target, (num_blocks + num_more) * target.spec.block_length)
    target.prefill(cache, draw(target, num_blocks, seed=99))
    return cache


def all_logits(target: Target, output: PassOutput, copy: int) -> Tensor:
    return output.logits(copy, range(target.spec.block_length))


def assert_same_copy(a: PassOutput, i: int, b: PassOutput, j: int) -> None:
    positions = range(a.hidden.shape[1])
    assert torch.equal(a.hidden[i], b.hidden[j])
    assert torch.equal(a.keys[:, i], b.keys[:, j])
    assert torch.equal(a.values[:, i], b.values[:, j])
    assert torch.equal(a.logits(i, positions), b.logits(j, positions))


def oracle_logits(directory: Path, ids: tuple[int, ...], block_length: int, dtype: torch.dtype) -> Tensor:
    """Logits `[len(ids), V]` of transformers' Qwen3 under an explicit block-causal mask."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config.from_pretrained(directory)
    config._attn_implementation = "eager"
    model = Qwen3ForCausalLM.from_pretrained(directory, config=config, dtype=dtype).eval()
    block = torch.arange(len(ids)) // block_length
    mask = torch.zeros(len(ids), len(ids), dtype=dtype)
    mask.masked_fill_(block[:, None] < block, torch.finfo(dtype).min)
    with torch.inference_mode():
        return model(input_ids=torch.tensor([ids]), attention_mask=mask[None, None]).logits[0]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-5)])
@pytest.mark.parametrize(("tied", "sharded"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("shape", [(4, 6, 2), (16, 3, 3)])
def test_logits_equal_transformers(tiny_sdar, shape, tied, sharded, dtype, tolerance):
    block_length, heads, kv_heads = shape
    directory = tiny_sdar(
        block_length=block_length, heads=heads, kv_heads=kv_heads, tied=tied, sharded=sharded, head_dim=20
    )
    target = Target.from_directory(directory, dtype=dtype)
    ids = draw(target, 7)
    expected = oracle_logits(directory, ids, block_length, dtype)
    assert expected.std() > 0.5  # flat logits would hide errors
    cache = poisoned_cache(target, len(ids))
    for start in range(0, len(ids), block_length):
        output = target.forward(cache, [BlockCopy(ids[start : start + block_length], 0, ())])
        logits = all_logits(target, output, 0)
        assert logits.dtype == torch.float32
        torch.testing.assert_close(logits, expected[start : start + block_length].float(), atol=tolerance, rtol=0)
        output.store(cache, 0)


def test_a_checkpoint_saved_by_transformers_loads(tiny_sdar, tmp_path):
    import json

    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=24, vocab_size=300, max_position_embeddings=64, initializer_range=0.2,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(tmp_path, max_shard_size="50KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    saved = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**saved, "model_type": "sdar"}))
    target = Target.from_directory(tmp_path, mask_id=7)
    (tmp_path / "config.json").write_text(json.dumps(saved))
    assert target.spec.block_length == 4
    ids = draw(target, 3)
    expected = oracle_logits(tmp_path, ids, 4, torch.float32)
    cache = target.new_cache(12)
    target.prefill(cache, ids[:8])
    logits = all_logits(target, target.forward(cache, [BlockCopy(ids[8:], 0, ())]), 0)
    torch.testing.assert_close(logits, expected[8:], atol=1e-4, rtol=0)


@pytest.mark.parametrize("shape", SHAPES)
def test_prefill_equals_passes(tiny_sdar, shape):
    target = load(tiny_sdar, shape)
    ids, length = draw(target, 6, seed=1), shape[0]
    whole, stepwise, passes = (poisoned_cache(target, len(ids)) for _ in range(3))
    target.prefill(whole, ids)
    for start in range(0, len(ids), length):
        target.prefill(stepwise, ids[start : start + length])
        target.forward(passes, [BlockCopy(ids[start : start + length], 0, ())]).store(passes, 0)
    for other in (stepwise, passes):
        assert other.length == whole.length == len(ids)
        for name in ("keys", "values"):
            rows, expected = (getattr(cache, name)[:, :, : len(ids)] for cache in (other, whole))
            torch.testing.assert_close(rows, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_prompt_that_rides_along_gives_the_bits_of_a_prefill(tiny_sdar, shape):
    target = load(tiny_sdar, shape)
    for blocks, cached, number in ((5, 0, 1), (5, 0, 6), (5, 2, 1), (5, 2, 3), (23, 0, 19)):
        ids = draw(target, min(blocks, 480 // shape[0]), seed=1)
        apart, along = (poisoned_cache(target, len(ids) + shape[0]) for _ in range(2))
        for cache in (apart, along):
            target.prefill(cache, ids[: cached * shape[0]])
        rest = ids[cached * shape[0] :]
        target.prefill(apart, rest)
        copies = [BlockCopy(draw(target, seed=i), 0, ()) for i in range(number)]
        expected, got = target.forward(apart, copies), target.forward(along, copies, rest)
        assert along.length == len(ids)
        assert torch.equal(got.hidden, expected.hidden)
        assert torch.equal(got.keys, expected.keys)
        for name in ("keys", "values"):
            rows, others = (getattr(cache, name)[:, :, : len(ids)] for cache in (along, apart))
            assert torch.equal(rows, others)


def test_a_prefill_longer_than_a_chunk_equals_one_in_parts(tiny_sdar, monkeypatch):
    target = load(tiny_sdar)
    ids = draw(target, 12, seed=1)
    whole, chunked = (poisoned_cache(target, len(ids)) for _ in range(2))
    target.prefill(whole, ids)
    monkeypatch.setattr("dlmspec.models.target_pass.PREFILL_ROWS", 18)
    target.prefill(chunked, ids)
    torch.testing.assert_close(chunked.values[:, :, : len(ids)], whole.values[:, :, : len(ids)], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("prefix", [0, 1, 5])
@pytest.mark.parametrize("shape", SHAPES)
def test_bits_do_not_depend_on_the_other_copies(tiny_sdar, shape, prefix):
    check_every_number(load(tiny_sdar, shape), prefix, range(1, 41))


@pytest.mark.parametrize("num_threads", [2, 3])
def test_bits_do_not_depend_on_the_other_copies_with_threads(tiny_sdar, num_threads, set_threads):
    set_threads(num_threads)
    check_every_number(load(tiny_sdar, (16, 3, 3)), 3, (1, 6, 17, 40))


def check_every_number(target: Target, prefix: int, numbers: Iterable[int]) -> None:
    """Random selections of 40 copies, in random order, against each copy in a pass of its own."""
    cache = prefilled(target, prefix)
    copies = [BlockCopy(draw(target, seed=i), 0, ()) for i in range(40)]
    alone = [target.forward(cache, [copy]) for copy in copies]
    logits = torch.stack([all_logits(target, output, 0) for output in alone])
    hidden = torch.cat([output.hidden for output in alone])
    keys, values = (torch.cat([getattr(o, name) for o in alone], dim=1) for name in ("keys", "values"))
    rng = random.Random(3)
    for number in numbers:
        chosen = rng.sample(range(40), number)
        output = target.forward(cache, [copies[i] for i in chosen])
        rows = [(i, p) for i in range(number) for p in range(target.spec.block_length)]
        assert torch.equal(output.hidden, hidden[chosen])
        assert torch.equal(output.keys, keys[:, chosen])
        assert torch.equal(output.values, values[:, chosen])
        assert torch.equal(output.logit_rows(rows), logits[chosen].flatten(0, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("prefix", [0, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_an_ancestor_in_the_pass_equals_the_cache(tiny_sdar, shape, prefix, dtype):
    """The folding claim, two blocks deep, with rival chains and in any order."""
    target = load(tiny_sdar, shape, dtype)
    cache = prefilled(target, prefix)
    token_rows = [draw(target, seed=i) for i in range(9)]
    # copy -> (block, ancestors): two rival first blocks, children of both, grandchildren of one
    tree = [(0, ()), (0, ()), (1, (0,)), (1, (1,)), (1, (0,)), (2, (0, 4)), (0, ()), (2, (0, 2)), (2, (0, 4))]
    copies = [BlockCopy(token_rows[i], *node) for i, node in enumerate(tree)]
    output = target.forward(cache, copies)
    shuffled = random.Random(5).sample(range(9), 9)
    place = {i: shuffled.index(i) for i in range(9)}
    mixed = [BlockCopy(copies[i].tokens, tree[i][0], tuple(place[a] for a in tree[i][1])) for i in shuffled]
    again = target.forward(cache, mixed)
    for i in range(9):
        assert_same_copy(output, i, again, place[i])
    start = cache.length
    for i, (_, ancestors) in enumerate(tree):
        cache.length = start
        for ancestor in ancestors:  # one real pass and store per ancestor
            target.forward(cache, [BlockCopy(token_rows[ancestor], 0, ())]).store(cache, 0)
        assert_same_copy(output, i, target.forward(cache, [BlockCopy(token_rows[i], 0, ())]), 0)


def test_siblings_are_invisible(tiny_sdar):
    target = load(tiny_sdar)
    cache = prefilled(target, 2)
    kept = [BlockCopy(draw(target, seed=0), 0, ()), BlockCopy(draw(target, seed=1), 1, (0,))]
    outputs = []
    for seed in (2, 4):
        rivals = [BlockCopy(draw(target, seed=seed), 0, ()), BlockCopy(draw(target, seed=seed + 1), 1, (2,))]
        outputs.append(target.forward(cache, [*kept, *rivals]))
    for i in range(2):
        assert_same_copy(outputs[0], i, outputs[1], i)
    assert not torch.equal(outputs[0].hidden[2], outputs[1].hidden[2])


def test_every_row_sees_all_of_its_copy_and_its_ancestors(tiny_sdar):
    target = load(tiny_sdar)
    cache = prefilled(target, 2)
    parent, child = list(draw(target, seed=0)), list(draw(target, seed=1))
    before = target.forward(cache, [BlockCopy(tuple(parent), 0, ()), BlockCopy(tuple(child), 1, (0,))])
    parent[-1] = (parent[-1] + 1) % 60
    after = target.forward(cache, [BlockCopy(tuple(parent), 0, ()), BlockCopy(tuple(child), 1, (0,))])
    assert (before.hidden - after.hidden).abs().amax(-1).min() > 1e-4  # every row of both copies moves


def test_storing_a_copy_equals_a_store_pass(tiny_sdar):
    """A final copy among others is folded: the request continues bit for bit as after a store pass."""
    target = load(tiny_sdar, (8, 5, 1))
    folded, stored = (prefilled(target, 2) for _ in range(2))
    rivals = [BlockCopy(draw(target, seed=i), 0, ()) for i in range(6)]
    target.forward(folded, rivals).store(folded, 4)
    target.forward(stored, [rivals[4]]).store(stored, 0)
    assert folded.length == stored.length == 24
    assert torch.equal(folded.keys[:, :, :24], stored.keys[:, :, :24])
    following = [BlockCopy(draw(target, seed=10 + i), 0, ()) for i in range(3)]
    a, b = (target.forward(cache, following) for cache in (folded, stored))
    for i in range(3):
        assert_same_copy(a, i, b, i)


def test_scratch_rows_of_an_earlier_pass_leave_no_trace(tiny_sdar):
    target = load(tiny_sdar)
    used, fresh = (prefilled(target, 2) for _ in range(2))
    chain = [BlockCopy(draw(target, seed=i), i, tuple(range(i))) for i in range(4)]
    target.forward(used, chain)
    other = [BlockCopy(draw(target, seed=20 + i), i, tuple(range(i))) for i in range(3)]
    a, b = (target.forward(cache, other) for cache in (used, fresh))
    for i in range(3):
        assert_same_copy(a, i, b, i)


def test_logits_do_not_depend_on_the_rows_asked_for(tiny_sdar):
    target = load(tiny_sdar, (16, 3, 3))
    output = target.forward(prefilled(target, 1), [BlockCopy(draw(target, seed=i), 0, ()) for i in range(5)])
    every = [(copy, position) for copy in range(5) for position in range(16)]
    together = output.logit_rows(every)
    assert together.shape == (80, target.spec.vocab_size)
    for i, (copy, position) in enumerate(every):
        assert torch.equal(output.logits(copy, [position])[0], together[i])
    assert output.logits(0, []).shape == (0, target.spec.vocab_size)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_of_a_product_do_not_depend_on_their_number(dtype):
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(*shape, generator=generator).to(dtype) for shape in ((256, 200), (200, 148)))
    scale = torch.randn(200, generator=generator).to(dtype)
    ops = {
        "matrix product": lambda rows: rows @ weight,
        "head": lambda rows: torch.nn.functional.linear(rows, weight.t().contiguous()),
        "norm": lambda rows: rms_norm(rows, scale, 1e-6),
        "softmax": softmax_rows,
        "gated silu": gated_silu,
    }
    for name, op in ops.items():
        whole = op(pad_rows(x))
        for number in range(1, 257):
            assert torch.equal(op(pad_rows(x[:number]))[:number], whole[:number]), f"{name}, {number} rows"


def test_gated_silu_rows_stay_equal_when_threads_split_rows(set_threads):
    """Three threads cut some of these counts of 108 elements in the middle of a row."""
    set_threads(3)
    x = torch.randn(720, 216, generator=torch.Generator().manual_seed(0)) * 3
    whole = gated_silu(x)
    for number in range(16, 720, 16):
        assert torch.equal(gated_silu(x[:number]), whole[:number]), f"{number} rows"


def test_padding_reaches_the_next_multiple_of_16_with_zeros():
    for number, padded in ((1, 16), (15, 16), (16, 16), (17, 32), (0, 16)):
        result = pad_rows(torch.ones(number, 3))
        assert result.shape == (padded, 3)
        assert result.sum() == number * 3


def test_every_product_of_a_pass_runs_on_whole_groups_of_rows(tiny_sdar, monkeypatch):
    """Row counts, not bits: so a lost padding shows on machines whose kernels happen to agree."""
    target = load(tiny_sdar, (4, 6, 2))  # 4 rows of a copy, 12 query rows per kv head
    cache = prefilled(target, 2)
    seen = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if getattr(func, "__name__", "") in ("linear", "matmul", "__matmul__", "bmm", "mm"):
                seen.append(args[0].shape[-2])
            return func(*args, **(kwargs or {}))

    with Watch():
        output = target.forward(cache, [BlockCopy(draw(target, seed=i), 0, ()) for i in range(3)])
        output.logits(1, [0, 2])
    assert len(seen) >= 2 * 8 + 1
    assert all(number % 16 == 0 for number in seen), seen


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_rows_that_are_not_read_are_left_out_of_the_last_layer_only(tiny_sdar, shape):
    """Catches a wrong row, a row computed otherwise beside fewer others, and keys or values that change."""
    target = load(tiny_sdar, shape)
    cache, length = prefilled(target, 2), shape[0]
    tokens = [draw(target, seed=i) for i in range(4)]
    reads = ((0, 3), (), (4,), (1, 2, 3))
    whole = target.forward(cache, [BlockCopy(row, 0, ()) for row in tokens])
    copies = [BlockCopy(row, 0, (), read) for row, read in zip(tokens, reads, strict=True)]
    part = target.forward(cache, copies)
    assert torch.equal(part.keys, whole.keys)
    assert torch.equal(part.values, whole.values)
    for copy, read in enumerate(reads):
        assert torch.equal(part.hidden[copy, list(read)], whole.hidden[copy, list(read)])
        unread = [position for position in range(length) if position not in read]
        assert not part.hidden[copy, unread].any()
    nothing = target.forward(cache, [BlockCopy(tokens[0], 0, (), ())])
    assert torch.equal(nothing.keys[:, 0], whole.keys[:, 0])
