"""Commit rules against slow twins in plain Python, over grids full of ties.

Catches: `>` for `>=` at the threshold and the bounds; a schedule off by one, or zero when it has more steps
than positions; ties that go to the highest position; unmasked positions selected or counted; a row that
depends on its neighbours; an empty choice; the fallback of the dynamic rule missing or too large; entropies
taken in the wrong order or summed with the wrong bound; the factor rule stopping one early; options that are
silently ignored.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dlmspec.rules import (
    RULES,
    EntropyBounded,
    Factor,
    LowConfidenceDynamic,
    LowConfidenceStatic,
    PositionScores,
    Sequential,
    make_rule,
    num_transfer,
)
from dlmspec.state import BlockState

# Few values, so that ties and hits on the very bound are common; 0.9 and 0.85 round down and up in fp32.
GRID = [0.0, 0.25, 0.5, 0.75, 0.85, 0.9, 0.95, 1.0]
ENTROPIES = [0.0, 0.125, 0.25, 0.35, 0.5, 3.0]


def slow_schedule(step: int, block_length: int, denoising_steps: int | None) -> int:
    """The reference's list, as it is written down by SDAR's get_num_transfer_tokens."""
    total = block_length if denoising_steps is None else denoising_steps
    counts = [block_length // total] * total
    for i in range(block_length % total):
        counts[i] += 1
    return max(1, counts[step]) if step < total else 1


def slow_best(keys: dict[int, float], count: int) -> set[int]:
    """The `count` positions of largest key; the lowest position wins ties."""
    chosen: set[int] = set()
    while len(chosen) < min(count, len(keys)):
        best = None
        for position in sorted(keys.keys() - chosen):
            if best is None or keys[position] > keys[best]:
                best = position
        assert best is not None
        chosen.add(best)
    return chosen


def slow_select(rule, confidence, entropy, masked, step) -> set[int]:
    """One row of each rule, written in plain Python."""
    positions = [i for i, flag in enumerate(masked) if flag]
    if not positions:
        return set()
    conf = {i: float(np.float32(confidence[i])) for i in positions}
    if isinstance(rule, EntropyBounded):
        return slow_entropy_bounded(rule.gamma, {i: float(np.float32(entropy[i])) for i in positions})
    if isinstance(rule, Factor):
        fits = [1]
        values = sorted(conf.values(), reverse=True)
        fits += [n for n in range(1, len(values) + 1) if (n + 1) * (1 - values[n - 1]) < rule.factor]
        return slow_best(conf, max(fits))
    n = max(1, min(slow_schedule(step, len(masked), rule.denoising_steps), len(positions)))
    if isinstance(rule, Sequential):
        return set(positions[:n])
    if isinstance(rule, LowConfidenceDynamic):
        above = {i for i in positions if conf[i] > float(np.float32(rule.threshold))}
        if len(above) >= n:
            return above
    return slow_best(conf, n)


def slow_entropy_bounded(gamma: float, entropy: dict[int, float]) -> set[int]:
    negative = {i: -value for i, value in entropy.items()}
    chosen = slow_best(negative, 1)
    for n in range(2, len(entropy) + 1):
        longer = slow_best(negative, n)
        if sum(sorted(entropy[i] for i in longer)) > gamma:
            break
        chosen = longer
    return chosen


DENOISING_STEPS = st.one_of(st.none(), st.integers(1, 20))
RULE = st.one_of(
    st.builds(Sequential, denoising_steps=DENOISING_STEPS),
    st.builds(LowConfidenceStatic, denoising_steps=DENOISING_STEPS),
    st.builds(LowConfidenceDynamic, threshold=st.sampled_from([*GRID, -0.5]), denoising_steps=DENOISING_STEPS),
    st.builds(EntropyBounded, gamma=st.sampled_from([0.0, 0.25, 0.35, 0.5, 1.0, 100.0])),
    st.builds(Factor, factor=st.sampled_from([0.25, 0.5, 1.0, 2.0, 30.0])),
)


@st.composite
def rows(draw):
    """N rows of one block length: confidences, entropies, mask, steps."""
    count, length = draw(st.integers(1, 3)), draw(st.sampled_from([1, 3, 13, 16]))

    def grid(values):
        return draw(st.lists(st.lists(values, min_size=length, max_size=length), min_size=count, max_size=count))

    anywhere = st.floats(0, 1, width=32)
    confidence = grid(st.one_of(st.sampled_from(GRID), anywhere))
    entropy = grid(st.one_of(st.sampled_from(ENTROPIES), anywhere))
    steps = draw(st.lists(st.integers(0, 25), min_size=count, max_size=count))
    return confidence, entropy, grid(st.booleans()), steps


def scores_of(confidence, entropy) -> PositionScores:
    values = torch.tensor(confidence)
    return PositionScores(torch.zeros(values.shape, dtype=torch.long), values, torch.tensor(entropy))


@settings(deadline=None, max_examples=600)
@given(rule=RULE, rows=rows())
def test_rule_equals_its_slow_twin(rule, rows):
    confidence, entropy, masked, steps = rows
    chosen = rule.select(scores_of(confidence, entropy), torch.tensor(masked), steps)
    assert chosen.dtype == torch.bool
    assert chosen.shape == torch.tensor(masked).shape
    for row, flags in enumerate(masked):
        found = {i for i, flag in enumerate(chosen[row].tolist()) if flag}
        assert found == slow_select(rule, confidence[row], entropy[row], flags, steps[row])
        assert found <= {i for i, flag in enumerate(flags) if flag}
        assert bool(found) == any(flags)


@settings(deadline=None, max_examples=200)
@given(rule=RULE, rows=rows())
def test_a_row_ignores_its_company_and_values_that_are_not_masked(rule, rows):
    confidence, entropy, masked, steps = rows
    mask = torch.tensor(masked)
    scores = scores_of(confidence, entropy)
    together = rule.select(scores, mask, steps)
    garbage = torch.where(mask, scores.confidence, torch.tensor(float("nan")))
    assert scores.entropy is not None
    clean = PositionScores(scores.tokens, garbage, torch.where(mask, scores.entropy, torch.tensor(0.0)))
    assert torch.equal(rule.select(clean, mask, steps), together)
    for row in range(len(masked)):
        alone = rule.select(scores_of(confidence[row : row + 1], entropy[row : row + 1]), mask[row : row + 1],
                            steps[row : row + 1])  # fmt: skip
        assert torch.equal(alone[0], together[row])


@pytest.mark.parametrize("block_length", [1, 3, 4, 13, 16])
@pytest.mark.parametrize("denoising_steps", [None, 1, 2, 3, 4, 5, 13, 16, 20, 64])
def test_schedule(block_length, denoising_steps):
    counts = [num_transfer(step, block_length, denoising_steps) for step in range(80)]
    assert counts == [slow_schedule(step, block_length, denoising_steps) for step in range(80)]
    total = denoising_steps or block_length
    if total <= block_length:
        assert sum(counts[:total]) == block_length


def one_row(rule, confidence, entropy=None, step=0) -> list[int]:
    scores = scores_of([confidence], [entropy or [0.0] * len(confidence)])
    chosen = rule.select(scores, torch.ones(1, len(confidence), dtype=torch.bool), [step])
    return [i for i, flag in enumerate(chosen[0].tolist()) if flag]


def test_schedule_gives_its_larger_share_first():
    assert [num_transfer(step, 13, 5) for step in range(7)] == [3, 3, 3, 2, 2, 1, 1]
    assert [num_transfer(step, 3, 5) for step in range(7)] == [1] * 7


def test_threshold_is_strict():
    assert one_row(LowConfidenceDynamic(0.5), [0.5, 0.75, 0.5]) == [1]
    assert one_row(LowConfidenceDynamic(0.5), [0.5, 0.5, 0.5]) == [0]
    assert one_row(LowConfidenceDynamic(0.9), [0.9, 0.95]) == [1]
    assert one_row(LowConfidenceDynamic(0.85), [0.85, 0.95]) == [1]  # 0.85 in fp32 lies above 0.85 in fp64


def test_dynamic_takes_all_above_or_else_the_n_best():
    rule = LowConfidenceDynamic(0.5, denoising_steps=2)  # n = 2 of 4
    assert one_row(rule, [0.6, 0.7, 0.8, 0.1]) == [0, 1, 2]
    assert one_row(rule, [0.1, 0.7, 0.2, 0.3]) == [1, 3]


def test_lowest_position_wins_ties():
    assert one_row(LowConfidenceStatic(), [0.5] * 16) == [0]
    assert one_row(LowConfidenceStatic(4), [0.2, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.1, 0.1, 0, 0, 0, 0]) == [
        1,
        2,
        3,
        4,
    ]
    assert one_row(EntropyBounded(0.0), [0.0] * 3, [0.5, 0.25, 0.25]) == [1]
    assert one_row(Factor(1e-9), [0.5, 0.75, 0.75]) == [1]


def test_entropy_bound_is_inclusive_and_sums():
    assert one_row(EntropyBounded(0.5), [0.0] * 4, [0.25, 3.0, 0.25, 0.125]) == [0, 3]
    assert one_row(EntropyBounded(0.625), [0.0] * 4, [0.25, 3.0, 0.25, 0.125]) == [0, 2, 3]


def test_factor_bound_is_strict():
    # n = 1: 2 (1 - c) < 1; n = 2: 3 (1 - c) < 1; n = 3: 4 (1 - 0.75) = 1 is not below 1
    assert one_row(Factor(1.0), [0.75, 0.875, 0.875, 0.25]) == [1, 2]
    assert one_row(Factor(1.25), [0.75, 0.875, 0.875, 0.25]) == [0, 1, 2]


def test_registry_and_options():
    expected = ["sequential", "low_confidence_static", "low_confidence_dynamic", "entropy_bounded", "factor"]
    assert list(RULES) == expected
    for name in expected:
        rule = make_rule(name)
        assert rule.name == name
        assert rule.memoryless
        assert rule.needs_entropy == (name == "entropy_bounded")
        assert rule == make_rule(name)
        assert hash(rule) == hash(make_rule(name))
        assert rule.is_final(BlockState((1, 2), 3), 9)
        assert not rule.is_final(BlockState((1, 9), 3), 9)
    assert make_rule("low_confidence_dynamic", threshold=0.7) == LowConfidenceDynamic(0.7)
    assert LowConfidenceDynamic() == LowConfidenceDynamic(0.9, None)
    assert EntropyBounded() == EntropyBounded(0.35)
    assert Factor() == Factor(1.0)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("greedy", {}, "unknown rule 'greedy'; choose one of sequential"),
        ("factor", {"threshold": 0.5}, "no option 'threshold'; it takes factor"),
        ("sequential", {"name": "x"}, "no option 'name'"),
        ("sequential", {"denoising_steps": 0}, "denoising_steps"),
        ("low_confidence_static", {"denoising_steps": -1}, "denoising_steps"),
        ("low_confidence_dynamic", {"threshold": math.nan}, "threshold"),
        ("low_confidence_dynamic", {"threshold": 1.5}, "threshold"),
        ("low_confidence_dynamic", {"denoising_steps": 0}, "denoising_steps"),
        ("entropy_bounded", {"gamma": -0.1}, "gamma"),
        ("entropy_bounded", {"gamma": math.nan}, "gamma"),
        ("factor", {"factor": 0.0}, "factor"),
        ("factor", {"factor": math.inf}, "factor"),
    ],
)
def test_bad_options(name, options, message):
    with pytest.raises(ValueError, match=message):
        make_rule(name, **options)


def test_entropy_bounded_without_entropies():
    scores = PositionScores(torch.zeros(1, 3, dtype=torch.long), torch.zeros(1, 3))
    with pytest.raises(ValueError, match="with_entropy"):
        EntropyBounded().select(scores, torch.ones(1, 3, dtype=torch.bool), [0])
