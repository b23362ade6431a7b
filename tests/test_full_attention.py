"""Full-attention families (LLaDA, Dream): the whole canvas in every pass, and the dual cache, each exact.

Catches: a canvas of the wrong length or with other blocks' guesses in it, rows or positions off by the prompt, a dual
cache that is frozen too late, kept into the next block or reads the block's old rows, a shifted first position that is
read from another row, drafters that break a decode, prefix caching where it is not exact.
"""

import pytest
import torch
from torch import Tensor

from dlmspec.config import DecodeConfig
from dlmspec.decode import decode, reference_decode
from dlmspec.drafters import UNTRAINED
from dlmspec.models.mlp import DenseMlp
from dlmspec.models.target import Target
from dlmspec.models.transformer import apply_rope, rms_norm, rope_table
from dlmspec.rules import EntropyBounded, LowConfidenceDynamic, LowConfidenceStatic
from dlmspec.step import Sampling

MASK = 0
PROMPTS = [[5], [7, 3, 9, 11, 2, 8], [4, 4, 6, 28, 9, 21, 13, 2, 2, 5, 17]]


def plain_pass(target: Target, tokens: list[int], frozen: list[tuple[Tensor, Tensor]] | None, own: range):
    """Logits of all rows, and keys and values by layer, of a plain full-attention forward; slow and obvious.

    With `frozen` keys and values of the whole canvas only the rows `own` are run; the others' are taken as they are.
    """
    spec, transformer = target.spec, target.transformer
    cos, sin = rope_table(spec.max_position_embeddings, spec.head_dim, spec.rope_theta)
    rows = list(own) if frozen else list(range(len(tokens)))
    x = transformer.embedding[torch.tensor([tokens[row] for row in rows])]
    kept = []
    for index, layer in enumerate(transformer.layers):
        heads, groups = spec.num_heads, spec.num_kv_heads
        qkv = (rms_norm(x, layer.input_norm, spec.rms_norm_eps) @ layer.qkv).unflatten(-1, (-1, spec.head_dim))
        q, k, v = qkv.split([heads, groups, groups], 1)
        if layer.qk_norm is not None:
            q = rms_norm(q, layer.qk_norm[:heads], spec.rms_norm_eps)
            k = rms_norm(k, layer.qk_norm[heads:], spec.rms_norm_eps)
        q, k = (apply_rope(part, cos[rows, None].to(x), sin[rows, None].to(x)) for part in (q, k))
        if frozen:
            k, v = (old.index_copy(0, torch.tensor(rows), new) for old, new in zip(frozen[index], (k, v), strict=True))
        kept.append((k, v))
        mixed = torch.empty(len(rows), heads, spec.head_dim, dtype=x.dtype)
        for head in range(heads):
            group = head // (heads // groups)
            weights = (q[:, head] @ k[:, group].T * spec.head_dim**-0.5).softmax(-1)
            mixed[:, head] = weights @ v[:, group]
        x = x + mixed.flatten(1) @ layer.output
        assert isinstance(layer.mlp, DenseMlp)
        x = x + layer.mlp(rms_norm(x, layer.mlp_norm, spec.rms_norm_eps))
    return rms_norm(x, transformer.final_norm, spec.rms_norm_eps) @ transformer.lm_head.T, kept


def plain_decode(target: Target, prompt: list[int], config: DecodeConfig, block_length: int) -> list[int]:
    """Greedy `low_confidence_static`, one position per step, over blocks counted from the prompt's end."""
    num_blocks = -(-config.max_new_tokens // block_length)
    tokens = prompt + [MASK] * (num_blocks * block_length)
    shift = 1 if target.spec.logit_shift else 0
    for block in range(num_blocks):
        own = range(len(prompt) + block * block_length, len(prompt) + (block + 1) * block_length)
        frozen, before = None, None
        while MASK in (tokens[row] for row in own):
            logits, kept = plain_pass(target, tokens, frozen, own)
            if frozen is None:
                before = logits[own.start - 1]
                logits = logits[own.start : own.stop] if not shift else logits[own.start - 1 : own.stop - 1]
            elif shift:
                assert before is not None
                logits = torch.cat([before[None], logits[:-1]])
            if config.cache == "dual" and frozen is None:
                frozen = kept
            probs = logits.index_fill(-1, torch.tensor([MASK]), -torch.inf).softmax(-1)
            confidence, best = probs.max(-1)
            open_ = torch.tensor([tokens[row] == MASK for row in own])
            place = int(confidence.masked_fill(~open_, -1.0).argmax())
            tokens[own.start + place] = int(best[place])
    return tokens[len(prompt) : len(prompt) + config.max_new_tokens]


@pytest.mark.parametrize("cache", ["none", "dual"])
@pytest.mark.parametrize("shift", [False, True], ids=["plain", "shifted"])
@pytest.mark.parametrize("block_length", [1, 4, 7])
def test_the_reference_is_a_plain_loop(make_target, block_length, shift, cache):
    target = make_target(block_length, dtype=torch.float64, shift=shift, full=True, stop=-1)
    for prompt in PROMPTS:
        for new in (1, block_length, 2 * block_length + 3):
            config = DecodeConfig(max_new_tokens=new, cache=cache, early_stop=False)
            output = reference_decode(target, prompt, config)
            assert list(output.token_ids) == plain_decode(target, prompt, config, block_length)
            num_blocks = -(-new // block_length)
            assert output.stats.num_passes == num_blocks * block_length
            length = len(prompt) + num_blocks * block_length
            later = num_blocks * (block_length - 1) * (length if cache == "none" else block_length)
            assert output.stats.num_rows == num_blocks * length + later


def test_the_two_semantics_differ(make_target):
    """Else the tests of one would be tests of the other."""
    target = make_target(8, full=True, stop=-1)
    outputs = {
        cache: reference_decode(target, PROMPTS[1], DecodeConfig(max_new_tokens=24, cache=cache)).token_ids
        for cache in ("none", "dual", None)
    }
    assert outputs["none"] != outputs["dual"]
    assert outputs[None] == outputs["none"]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("cache", ["none", "dual"])
@pytest.mark.parametrize("shift", [False, True], ids=["plain", "shifted"])
@pytest.mark.parametrize(
    "rule",
    [LowConfidenceStatic(), LowConfidenceStatic(denoising_steps=3), LowConfidenceDynamic(threshold=0.3),
     EntropyBounded(gamma=1.5)],
    ids=["static", "static-3", "dynamic", "entropy"],
)  # fmt: skip
def test_every_drafter_gives_the_reference_ids(make_target, rule, shift, cache, temperature):
    target = make_target(5, shift=shift, full=True)
    for prompt, early_stop in zip(PROMPTS, (True, False, True), strict=True):
        config = DecodeConfig(
            max_new_tokens=12, rule=rule, cache=cache, early_stop=early_stop, seed=3,
            sampling=Sampling(temperature=temperature),
        )  # fmt: skip
        reference = reference_decode(target, prompt, config)
        stored = reference_decode(target, prompt, config, store_passes=True)
        assert (stored.token_ids, stored.stats.num_passes) == (reference.token_ids, reference.stats.num_passes)
        for make in UNTRAINED.values():
            for budget in (2, 6):
                output = decode(target, prompt, config, drafter=make(), budget=budget)
                assert output.token_ids == reference.token_ids, (make, budget)
                assert output.finish_reason == reference.finish_reason
                assert output.stats.num_passes <= reference.stats.num_passes


def test_speculation_saves_passes_and_looks_ahead_only_without_a_cache(make_target):
    target = make_target(6, full=True, stop=-1)
    config = DecodeConfig(max_new_tokens=18, early_stop=False)
    passes = {}
    for cache in ("none", "dual"):
        asked = DecodeConfig(max_new_tokens=18, early_stop=False, cache=cache)
        output = decode(target, PROMPTS[2], asked, drafter=UNTRAINED["oracle"](), budget=40)
        passes[cache] = output.stats.num_passes
    assert passes == {"none": 1, "dual": 6}, "a block's first pass stands alone, then one more walks to its end"
    assert reference_decode(target, PROMPTS[2], config).stats.num_passes == 18


def test_cache_semantics_that_a_family_does_not_have_are_refused(make_target):
    with pytest.raises(ValueError, match=r"cache 'prefix' is not defined.*none or dual"):
        reference_decode(make_target(4, full=True), [5], DecodeConfig(8, cache="prefix"))
    with pytest.raises(ValueError, match=r"cache 'dual' is not defined.*choose prefix"):
        reference_decode(make_target(4), [5], DecodeConfig(8, cache="dual"))


def test_the_context_holds_the_aligned_canvas(make_target):
    target = make_target(8, full=True)  # a context of 96
    reference_decode(target, [5] * 8, DecodeConfig(max_new_tokens=88))
    with pytest.raises(ValueError, match="do not fit the context of 96"):
        reference_decode(target, [5] * 9, DecodeConfig(max_new_tokens=81))  # 9 + 88
