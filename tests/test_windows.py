"""Families whose loops go through a block piece by piece (Fast-dLLM v2): where a step may commit.

Catches: a commit outside the first sub-block with a mask, a first position that waits its turn or has company, windows
that the drafters or the recorded steps do not see.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dlmspec.config import DecodeConfig
from dlmspec.decode import decode, reference_decode
from dlmspec.drafters import UNTRAINED
from dlmspec.rules import RULES, LowConfidenceDynamic, LowConfidenceStatic, PositionScores, make_rule
from dlmspec.step import Sampling
from dlmspec.windows import windowed


def test_a_family_without_windows_keeps_its_rule():
    rule = LowConfidenceStatic()
    assert windowed(rule, None, False) is rule
    narrow = windowed(rule, 4, False)
    assert (narrow.name, narrow.memoryless, narrow.needs_entropy) == (rule.name, True, False)
    assert windowed(make_rule("entropy_bounded"), 4, True).needs_entropy


@settings(max_examples=60)
@given(
    name=st.sampled_from(sorted(RULES)),
    length=st.integers(1, 13),
    sub_block=st.one_of(st.none(), st.integers(1, 6)),
    leads=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_a_step_commits_what_the_rule_commits_of_the_window_alone(name, length, sub_block, leads, seed):
    generator = torch.Generator().manual_seed(seed)
    masked = torch.rand(5, length, generator=generator) < 0.6
    scores = PositionScores(
        torch.zeros(5, length, dtype=torch.long),
        torch.rand(5, length, generator=generator),
        torch.rand(5, length, generator=generator),
    )
    rule = make_rule(name)
    found = windowed(rule, sub_block, leads).select(scores, masked, [0] * 5)
    for row in range(5):
        places = masked[row].nonzero().flatten().tolist()
        if sub_block is not None:
            places = [place for place in places if place // sub_block == places[0] // sub_block]
        if leads and 0 in places:
            places = [0]
        window = torch.zeros(1, length, dtype=torch.bool)
        window[0, places] = True
        one = PositionScores(*(values[row : row + 1] for values in (scores.tokens, scores.confidence, scores.entropy)))
        assert torch.equal(found[row], rule.select(one, window, [0])[0])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "rule", [LowConfidenceStatic(), LowConfidenceDynamic(threshold=0.3)], ids=["static", "dynamic"]
)
def test_decoding_goes_through_a_block_piece_by_piece(make_target, rule, temperature):
    target = make_target(8, shift=True, stop=-1, sub_block_length=3, leads_with_first=True)
    for prompt in ([5], [5, 9, 3, 4, 4, 6, 28, 9, 21], [7] * 8):
        config = DecodeConfig(19, rule=rule, sampling=Sampling(temperature=temperature), early_stop=False, seed=4)
        steps = []
        reference = reference_decode(target, prompt, config, observer=lambda *step, seen=steps: seen.append(step))
        for _, state, _, successor in steps:
            places = [
                i for i, pair in enumerate(zip(state.tokens, successor.tokens, strict=True)) if len(set(pair)) > 1
            ]
            first = state.tokens.index(0)
            assert {place // 3 for place in places} == {first // 3}
            assert first or places == [0]
        for make in UNTRAINED.values():
            for budget in (3, 9):
                output = decode(target, prompt, config, drafter=make(), budget=budget)
                assert output.token_ids == reference.token_ids
                assert output.stats.num_passes <= reference.stats.num_passes
    assert {state.tokens.index(0) for _, state, _, _ in steps} > {0}
