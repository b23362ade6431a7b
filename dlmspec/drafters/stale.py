"""Hypothetical steps read off stale distributions: the rule applied as if nothing had changed, and rank by rank."""

import math

import torch
from torch import Tensor

from dlmspec.drafters.base import DraftContext
from dlmspec.drafters.growth import Step
from dlmspec.evidence import NEVER, Candidates, Evidence
from dlmspec.rules import CommitRule, LowConfidenceStatic
from dlmspec.state import BlockState
from dlmspec.step import PositionScores

NEGLIGIBLE = 1e-3  # a step as unlikely as this never earns a place in a tree


def commits_one_by_confidence(rule: CommitRule, step: int, block_length: int) -> bool:
    """Whether the rule commits the one most confident position at this step: what an order model predicts."""
    return isinstance(rule, LowConfidenceStatic) and rule.num_commits(step, block_length) == 1


def masked_rows(states: list[BlockState], mask_id: int) -> Tensor:
    """Bool `[N, B]`: the undecided positions."""
    return torch.tensor([state.tokens for state in states]) == mask_id


def coupled(candidates: Candidates) -> tuple[list[int], list[float]]:
    """The coupled token of every position and its log-probability; −1 and 0 where there is none."""
    ids = [row[0] if row else -1 for row in candidates.ids]
    log_probs = [row[0] if row else 0.0 for row in candidates.log_probs]
    return ids, log_probs


def stale_steps(states: list[BlockState], evidence: Evidence, context: DraftContext) -> list[list[Step]]:
    """For every state the one step that the rule would take on the stale distributions."""
    step = states[0].step
    candidates = evidence.candidates(step)
    ids, log_probs = coupled(candidates)
    masked = masked_rows(states, context.mask_id)
    top = evidence.top
    entropy = -(top.exp() * top).sum(-1)
    shape = masked.shape
    scores = PositionScores(
        torch.tensor(ids).expand(shape),
        torch.tensor(log_probs).exp().expand(shape),
        entropy.expand(shape),
    )
    chosen = context.rule.select(scores, masked, [state.step for state in states])
    steps: list[list[Step]] = []
    for row in chosen.tolist():
        positions = [position for position, taken in enumerate(row) if taken]
        probability = 1.0
        for position in positions:
            probability *= min(1.0, max(1e-3, math.exp(log_probs[position])))
        steps.append([(probability, tuple((position, ids[position]) for position in positions))])
    return steps


def position_steps(states: list[BlockState], odds: list[float], token_probs: list[list[float]],
                   candidates: Candidates, mask_id: int) -> list[list[Step]]:  # fmt: skip
    """One step per masked position and token rank: the position's share of the `odds` `[B]` of those that are masked,
    times `token_probs` `[B][rank]`."""
    options = [
        [
            (odds[position] * probability, ((position, token),))
            for token, log_prob, probability in zip(ids, log_probs, row, strict=True)
            if log_prob > NEVER
        ]
        for position, (ids, log_probs, row) in enumerate(
            zip(candidates.ids, candidates.log_probs, token_probs, strict=True)
        )
    ]
    steps: list[list[Step]] = []
    for state in states:
        masked = state.masked_positions(mask_id)
        total = sum(odds[position] for position in masked) or 1.0
        least = NEGLIGIBLE * total
        steps.append([(w / total, commits) for position in masked for w, commits in options[position] if w > least])
    return steps


def confidence_odds(log_probs: list[float], power: float = 0.75) -> list[float]:
    """Odds of each coupled token to a power; 1 − p by expm1, so that confidences near 1 stay apart."""
    return [
        1e-10 if log_prob < -30 else (math.exp(log_prob) / max(-math.expm1(log_prob), 1e-9)) ** power
        for log_prob in log_probs
    ]
