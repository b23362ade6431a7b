"""SPOT: a tree grown from predicted commit orders (arXiv 2610.22543; the growth is this project's own).

The order model reads the stale distributions only. Where the rule commits several positions at one step it proposes
the step that the rule would take on the stale scores.
"""

from pathlib import Path

import torch
from torch import Tensor

from dlmspec.config import DecodeConfig
from dlmspec.drafters.base import DraftContext
from dlmspec.drafters.growth import Step, grow_tree
from dlmspec.drafters.stale import (
    commits_one_by_confidence,
    masked_rows,
    position_steps,
    stale_steps,
)
from dlmspec.evidence import Evidence
from dlmspec.models.target import Target
from dlmspec.order.calibration import TokenTable, load_calibration
from dlmspec.order.features import MAX_POSITIONS, order_features, position_code
from dlmspec.order.model import OrderModel, load_order_model
from dlmspec.state import BlockState
from dlmspec.tree import DraftTree


class SpotDrafter:
    """Positions by the order model, tokens by coupled noise with calibrated alternatives."""

    name = "spot"

    def __init__(self, model: OrderModel, table: TokenTable) -> None:
        self.model, self.table = model, table
        self.sampled = False

    @classmethod
    def from_directory(cls, directory: str | Path) -> "SpotDrafter":
        """Load a trained drafter; raises ValueError if the directory is none or damaged."""
        directory = Path(directory)
        return cls(load_order_model(directory), load_calibration(directory))

    def begin(self, target: Target, prompt_ids: list[int], config: DecodeConfig) -> None:
        self.sampled = config.sampling.temperature > 0

    def propose(self, context: DraftContext, budget: int) -> DraftTree:
        return grow_tree(context, budget, self.steps)

    def steps(self, states: list[BlockState], evidence: Evidence, context: DraftContext) -> list[list[Step]]:
        """The likeliest hypothetical steps of each state: a `Scorer`."""
        step, length = states[0].step, len(states[0].tokens)
        if not commits_one_by_confidence(context.rule, step, length):
            return stale_steps(states, evidence, context)
        candidates = evidence.candidates(step)
        weights = self.order(states, evidence, context.mask_id).exp().tolist()
        staleness = step - evidence.state.step
        token_probs = [
            [self.table.probability(self.sampled, rank, staleness, value) for rank, value in enumerate(row)]
            for row in candidates.log_probs
        ]
        return position_steps(states, weights, token_probs, candidates, context.mask_id)

    def order(self, states: list[BlockState], evidence: Evidence, mask_id: int) -> Tensor:
        """Log-probability that each masked position is committed next, `[N, B]`, −inf elsewhere."""
        step = states[0].step
        log_probs = evidence.candidates(step).log_probs
        places = most_confident(evidence.positions, log_probs)
        masked = masked_rows(states, mask_id)
        here = masked[:, places]
        features = order_features(
            evidence.top[places].expand(len(states), -1, -1),
            torch.tensor([log_probs[place][0] for place in places]).expand(here.shape),
            here,
            ~here * float(step - evidence.state.step),
            position_code(masked.shape[-1])[places],
        )
        order = torch.full(masked.shape, float("-inf"))
        order[:, places] = self.model(features, here)
        return order


def most_confident(positions: list[int], log_probs: list[list[float]]) -> list[int]:
    """The positions that the order model reads: all, or in a long block those whose coupled token is surest."""
    if len(positions) <= MAX_POSITIONS:
        return positions
    return sorted(sorted(positions, key=lambda place: -log_probs[place][0])[:MAX_POSITIONS])
