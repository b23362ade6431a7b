"""Committing, and the denoising step composed of score and rule.

Catches: a committed token touched, rows out of order between states, a step that is another than score and rule give,
a block that never ends.
"""

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dlmspec.rules import EntropyBounded, Factor, LowConfidenceDynamic, LowConfidenceStatic, Sequential
from dlmspec.state import BlockState
from dlmspec.step import (
    CONFIDENCES,
    PositionScores,
    Sampling,
    commit,
    denoise_step,
    score,
)

INF = math.inf
RULES = [
    Sequential(4),
    LowConfidenceStatic(3),
    LowConfidenceDynamic(0.3),
    LowConfidenceDynamic(0.99, 2),
    EntropyBounded(2.0),
    Factor(2.0),
]


def test_commit_writes_the_chosen_tokens_only():
    states = [BlockState((9, 5, 9), 2), BlockState((9, 9, 9), 0)]
    scores = PositionScores(torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([[0.2, 1.0, 0.6], [0.1, 0.1, 0.7]]))
    assert commit(scores, states, LowConfidenceStatic(), 9) == [
        BlockState((9, 5, 3), 3),
        BlockState((9, 9, 6), 1),
    ]
    assert commit(scores, states, LowConfidenceDynamic(0.05), 9) == [
        BlockState((1, 5, 3), 3),
        BlockState((4, 5, 6), 1),
    ]


@st.composite
def blocks(draw):
    """N states of one block length with at least one mask each, logits and noise of their masked rows."""
    length, vocab_size = draw(st.sampled_from([1, 3, 13, 16])), draw(st.sampled_from([4, 7, 41]))
    mask_id = draw(st.integers(0, vocab_size - 1))
    states = []
    for _ in range(draw(st.integers(1, 4))):
        tokens = draw(st.lists(st.one_of(st.just(mask_id), st.integers(0, vocab_size - 1)),
                               min_size=length, max_size=length))  # fmt: skip
        assume(mask_id in tokens)
        states.append(BlockState(tuple(tokens), draw(st.integers(0, 20))))
    rows = sum(state.num_masked(mask_id) for state in states)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    logits = torch.randn(rows, vocab_size, generator=generator) * draw(st.sampled_from([0.5, 4.0]))
    gumbel = -torch.log(-torch.log(torch.rand(rows, vocab_size, generator=generator).clamp(1e-6, 1 - 1e-6)))
    return states, logits, gumbel, mask_id


@settings(deadline=None, max_examples=400)
@given(
    block=blocks(),
    rule=st.sampled_from(RULES),
    temperature=st.sampled_from([0.0, 0.8]),
    confidence=st.sampled_from(CONFIDENCES),
)
def test_denoise_step_composes_score_and_rule(block, rule, temperature, confidence):
    states, logits, gumbel, mask_id = block
    sampling = Sampling(temperature, confidence=confidence)
    successors = denoise_step(states, logits, gumbel if temperature else None, sampling, rule, mask_id)
    start = 0
    for state, successor in zip(states, successors, strict=True):
        positions = state.masked_positions(mask_id)
        rows = slice(start, start + len(positions))
        start += len(positions)
        # each state alone, scattered by hand
        own = score(logits[rows], gumbel[rows], sampling, mask_id=mask_id, with_entropy=True)
        full = PositionScores(*(torch.zeros(1, len(state.tokens), dtype=t.dtype) for t in (
            own.tokens, own.confidence, own.confidence)))  # fmt: skip
        assert full.entropy is not None
        assert own.entropy is not None
        for index, position in enumerate(positions):
            full.tokens[0, position] = own.tokens[index]
            full.confidence[0, position] = own.confidence[index]
            full.entropy[0, position] = own.entropy[index]
        masked = torch.tensor([[token == mask_id for token in state.tokens]])
        chosen = rule.select(full, masked, [state.step])[0].tolist()
        expected = [int(full.tokens[0, i]) if chosen[i] else token for i, token in enumerate(state.tokens)]
        assert successor == BlockState(tuple(expected), state.step + 1, state.aux)
        assert all(type(token) is int for token in successor.tokens)
        assert successor.num_masked(mask_id) < state.num_masked(mask_id)
        assert all(new == old for new, old in zip(successor.tokens, state.tokens, strict=True) if old != mask_id)


def test_every_block_ends_without_masks():
    mask_id, generator = 3, torch.Generator().manual_seed(5)
    for rule in RULES:
        state = BlockState((mask_id,) * 13, 0)
        while not rule.is_final(state, mask_id):
            logits = torch.randn(state.num_masked(mask_id), 11, generator=generator) * 4
            (state,) = denoise_step([state], logits, None, Sampling(), rule, mask_id)
            assert state.step <= 13
        assert mask_id not in state.tokens


def test_a_model_without_mask_id_passes_a_negative_one():
    (state,) = denoise_step(
        [BlockState((-1,), 0)], torch.tensor([[0.0, 2.0, 1.0]]), None, Sampling(), LowConfidenceStatic(), -1
    )
    assert state == BlockState((1,), 1)


def test_denoise_step_refuses_what_does_not_fit():
    full, part = BlockState((1, 2), 2), BlockState((9, 2), 1)
    with pytest.raises(AssertionError, match="without masks"):
        denoise_step([part, full], torch.zeros(1, 12), None, Sampling(), Sequential(), 9)
    for rows in (0, 2):
        with pytest.raises(ValueError, match=f"got {rows} rows of logits for 1 masked"):
            denoise_step([part], torch.zeros(rows, 12), None, Sampling(), Sequential(), 9)
