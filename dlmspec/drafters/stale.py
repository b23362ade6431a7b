"""Hypothetical steps read off stale distributions: the rule applied as if nothing had changed, and rank by rank."""

import torch
from torch import Tensor

from dlmspec.drafters.base import DraftContext
from dlmspec.drafters.growth import Step
from dlmspec.evidence import NEVER, Candidates, Evidence
from dlmspec.rules import CommitRule, LowConfidenceStatic, num_transfer
from dlmspec.state import BlockState
from dlmspec.step import PositionScores

NEGLIGIBLE = 1e-3  # a step as unlikely as this never earns a place in a tree


def commits_one_by_confidence(rule: CommitRule, step: int, block_length: int) -> bool:
    """Whether the rule commits the one most confident position at this step: what an order model predicts."""
    return isinstance(rule, LowConfidenceStatic) and num_transfer(step, block_length, rule.denoising_steps) == 1


def masked_rows(states: list[BlockState], mask_id: int) -> Tensor:
    """Bool `[N, B]`: the undecided positions."""
    return torch.tensor([state.tokens for state in states]) == mask_id


def coupled(candidates: Candidates, mask_id: int) -> tuple[list[int], list[float]]:
    """The coupled token of every position and its log-probability; mask id and 0 where there is none."""
    ids = [row[0] if row else mask_id for row in candidates.ids]
    log_probs = [row[0] if row else 0.0 for row in candidates.log_probs]
    return ids, log_probs


def stale_steps(states: list[BlockState], evidence: Evidence, context: DraftContext) -> list[list[Step]]:
    """For every state the one step that the rule would take on the stale distributions."""
    step = states[0].step
    candidates = evidence.candidates(step)
    ids, log_probs = coupled(candidates, context.mask_id)
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
            probability *= min(1.0, max(1e-3, 2.718281828 ** log_probs[position]))
        steps.append([(probability, tuple((position, ids[position]) for position in positions))])
    return steps


def position_steps(states: list[BlockState], weights: list[list[float]], token_probs: list[list[float]],
                   candidates: Candidates, mask_id: int) -> list[list[Step]]:  # fmt: skip
    """One step per masked position and token rank: `weights` `[N][B]` times `token_probs` `[B][rank]`."""
    steps: list[list[Step]] = []
    for state, row in zip(states, weights, strict=True):
        options: list[Step] = []
        for position in state.masked_positions(mask_id):
            log_probs = candidates.log_probs[position]
            for token, log_prob, probability in zip(
                candidates.ids[position], log_probs, token_probs[position], strict=True
            ):
                weight = row[position] * probability
                if weight > NEGLIGIBLE and log_prob > NEVER:
                    options.append((weight, ((position, token),)))
        steps.append(options)
    return steps
