"""The plain loop that defines the output: its ends, its counts, its batches, and the models that it decodes.

Catches: masks or tokens behind a stop returned, passes miscounted, a prompt of a batch that sees its peers, a shifted
position that is read from another row, masks that an autoregressive model runs.
"""

import pytest
import torch

from dlmspec.config import DecodeConfig
from dlmspec.decode import decode, reference_decode, reference_decode_batch
from dlmspec.drafters import UNTRAINED
from dlmspec.models.spec import NO_MASK
from dlmspec.models.target_pass import BlockCopy
from dlmspec.step import Sampling

MASK, STOP = 0, 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(("block_length", "shift"), [(1, True), (4, False), (4, True)])
def test_a_prompt_of_a_batch_gets_the_ids_it_gets_alone(make_target, block_length, shift, temperature):
    """Ragged prompts, lengths and seeds: some end early, and each has its own prompt riding along."""
    target = make_target(block_length, shift=shift)
    prompts = [[2 + (7 * i + n) % 26 for i in range(length)] for n, length in enumerate((1, 9, 4, 22, 13))]
    configs = [
        DecodeConfig(max_new_tokens=5 + 3 * n, seed=n, sampling=Sampling(temperature=temperature)) for n in range(5)
    ]
    together = dict(reference_decode_batch(target, prompts, configs))
    assert together.keys() == set(range(5))
    for index, (prompt, config) in enumerate(zip(prompts, configs, strict=True)):
        alone = reference_decode(target, prompt, config)
        assert together[index].token_ids == alone.token_ids
        assert together[index].finish_reason == alone.finish_reason
        assert together[index].stats.num_passes == alone.stats.num_passes


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_autoregressive_model_takes_one_pass_per_token_and_runs_no_mask(make_target, temperature):
    target = make_target(1, shift=True, mask_id=NO_MASK, stop=-1)
    rows = []
    embed = target.transformer._embed
    target.transformer._embed = lambda ids: rows.append(len(ids)) or embed(ids)  # type: ignore[method-assign]
    config = DecodeConfig(max_new_tokens=6, sampling=Sampling(temperature=temperature))
    prompt = [5, 9, 3, 0, 28]
    outputs = [reference_decode(target, prompt, config, store_passes=stored) for stored in (False, True)]
    assert outputs[0].token_ids == outputs[1].token_ids
    assert [output.stats.num_passes for output in outputs] == [6, 6]
    assert rows == [5, 1, 1, 1, 1, 1] * 2, "the prompt, then each token once; the last one never"
    for make in UNTRAINED.values():
        assert decode(target, prompt, config, drafter=make(), budget=4).token_ids == outputs[0].token_ids


@pytest.mark.parametrize("block_length", [1, 4])
def test_a_shifted_row_predicts_the_position_after_it(make_target, block_length):
    """Against one plain forward of the whole text: the row before a masked position, wherever it lies."""
    target = make_target(block_length, shift=True, dtype=torch.float64)
    prompt = [5, 9, 3, 7, 28, 4, 11, 2]
    seen = []
    reference_decode(target, prompt, DecodeConfig(max_new_tokens=12, early_stop=False),
                     observer=lambda *step: seen.append(step))  # fmt: skip
    known = prompt[:]
    for block, state, logits, successor in seen:
        start = block * block_length
        text = known[:start] + list(state.tokens)
        cache = target.new_cache(len(text))
        copies = [
            BlockCopy(tuple(text[i : i + block_length]), i // block_length, tuple(range(i // block_length)))
            for i in range(0, len(text), block_length)
        ]
        states = target.forward(cache, copies).hidden.flatten(0, 1)
        rows = [start + position - 1 for position in state.masked_positions(MASK)]
        expected = states[rows] @ target.transformer.lm_head.T
        torch.testing.assert_close(logits.double(), expected, atol=1e-5, rtol=1e-5)
        known[start:] = successor.tokens
    assert len(seen) == 12


def test_early_stop_saves_passes_and_changes_no_id(make_target):
    """Both ends: the limit inside a block, and a stop id that leaves later positions undecided."""
    saved = []
    for seed in range(12):
        plain = reference_decode(
            make_target(4, stop=-1, seed=seed), [5, 6, 7], DecodeConfig(max_new_tokens=18, early_stop=False)
        )
        target = make_target(4, stop=plain.token_ids[9], seed=seed)
        full, cut = (
            reference_decode(target, [5, 6, 7], DecodeConfig(max_new_tokens=18, early_stop=early_stop))
            for early_stop in (False, True)
        )
        assert cut.token_ids == full.token_ids
        assert cut.finish_reason == full.finish_reason == "stop"
        saved.append(full.stats.num_passes - cut.stats.num_passes)
    assert min(saved) >= 0
    assert max(saved) > 0


def test_a_stop_id_ends_the_text_and_one_in_the_prompt_does_not(make_target):
    plain = reference_decode(make_target(4), [5, 6, 7], DecodeConfig(max_new_tokens=20))
    stop = plain.token_ids[len(plain.token_ids) // 2]
    target = make_target(4, stop=stop)
    again = reference_decode(target, [5, 6, 7], DecodeConfig(max_new_tokens=20))
    assert again.finish_reason == "stop"
    assert again.token_ids == plain.token_ids[: plain.token_ids.index(stop) + 1]
    prompted = reference_decode(make_target(4, stop=28), [5, 28, 7], DecodeConfig(max_new_tokens=6))
    without = reference_decode(make_target(4, stop=STOP), [5, 28, 7], DecodeConfig(max_new_tokens=6))
    assert 28 not in without.token_ids
    assert prompted.finish_reason == "length"
    assert prompted.token_ids == without.token_ids


def test_passes_are_counted_as_the_families_count_them(make_target):
    target = make_target(4)
    config = DecodeConfig(max_new_tokens=8, early_stop=False)
    folded = reference_decode(target, [5] * 4, config).stats
    stored = reference_decode(target, [5] * 4, config, store_passes=True).stats
    assert (folded.num_prefill_passes, folded.num_store_passes, folded.num_denoising_passes) == (0, 0, 8)
    assert (stored.num_prefill_passes, stored.num_store_passes, stored.num_denoising_passes) == (1, 2, 8)
    assert reference_decode(target, [5] * 3, config, store_passes=True).stats.num_prefill_passes == 0


def test_a_prompt_of_more_than_one_pass_is_prefilled_but_for_its_last_part(make_target, monkeypatch):
    target = make_target(4)
    config = DecodeConfig(max_new_tokens=8, early_stop=False)
    prompt = [2 + (5 * i) % 26 for i in range(21)]
    whole = reference_decode(target, prompt, config)
    monkeypatch.setattr("dlmspec.models.target_pass.PREFILL_ROWS", 8)
    for make in (UNTRAINED["none"], UNTRAINED["confidence-tree"]):
        output = decode(target, prompt, config, drafter=make(), budget=6)
        assert output.token_ids == whole.token_ids
        assert output.stats.num_prefill_passes == 2, "8 + 8 rows by themselves, the last block rides along"
    assert reference_decode(target, prompt, config, store_passes=True).stats.num_prefill_passes == 3


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "empty"),
        ([4, MASK], "mask id 0 at position 1"),
        ([4, 29], "29 is outside"),
        ([4] * 90, "do not fit"),
    ],
)
def test_bad_prompts_are_refused(make_target, prompt, message):
    with pytest.raises(ValueError, match=message):
        reference_decode(make_target(4), prompt, DecodeConfig(max_new_tokens=8))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"max_new_tokens": 0}, "max_new_tokens"), ({"noise": "none"}, "noise"), ({"seed": -1}, "seed")],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DecodeConfig(**options)
