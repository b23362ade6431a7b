"""SPOT: a tree grown from predicted commit orders (arXiv 2610.22543; the growth is this project's own).

The order model reads the stale distributions only, once per evidence: all hypothetical states of a step share its
answer for that step, renormalised over the positions that each still masks. Where the rule commits several positions
at one step it proposes the step that the rule would take on the stale scores.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from dlmspec.config import DecodeConfig
from dlmspec.drafters.base import DraftContext
from dlmspec.drafters.growth import Step, grow_tree
from dlmspec.drafters.stale import (
    commits_one_by_confidence,
    confidence_odds,
    coupled,
    position_steps,
    stale_steps,
)
from dlmspec.evidence import Candidates, Evidence
from dlmspec.models.target import Target
from dlmspec.order.calibration import TokenTable, load_calibration
from dlmspec.order.features import MAX_POSITIONS, order_features, position_code
from dlmspec.order.model import MAX_STALENESS, OrderModel, load_order_model
from dlmspec.state import BlockState
from dlmspec.tree import DraftTree


@dataclass(frozen=True, slots=True)
class Forecast:
    """The model's word on one step of a block: `odds` `[B]` of being committed there, up to a common factor; and
    `token_probs` `[B][rank]`, that a candidate is then the committed token."""

    odds: list[float]
    token_probs: list[list[float]]


class SpotDrafter:
    """Positions by the order model, tokens by coupled noise with calibrated alternatives."""

    name = "spot"

    def __init__(self, model: OrderModel, table: TokenTable) -> None:
        self.model, self.table = model, table
        self.sampled = False
        self._read: dict[int, tuple[Evidence, dict[int, Forecast]]] = {}  # by block

    @classmethod
    def from_directory(cls, directory: str | Path) -> "SpotDrafter":
        """Load a trained drafter; raises ValueError if the directory is none or damaged."""
        directory = Path(directory)
        return cls(load_order_model(directory), load_calibration(directory))

    def begin(self, target: Target, prompt_ids: list[int], config: DecodeConfig) -> None:
        self.sampled = config.sampling.temperature > 0
        self._read.clear()

    def propose(self, context: DraftContext, budget: int) -> DraftTree:
        return grow_tree(context, budget, self.steps)

    def steps(self, states: list[BlockState], evidence: Evidence, context: DraftContext) -> list[list[Step]]:
        """The likeliest hypothetical steps of each state: a `Scorer`."""
        step, length = states[0].step, len(states[0].tokens)
        if not commits_one_by_confidence(context.rule, step, length):
            return stale_steps(states, evidence, context)
        forecast = self.forecast(evidence, step, context.root if evidence.block == context.block else None)
        candidates = evidence.candidates(step)
        return position_steps(states, forecast.odds, forecast.token_probs, candidates, context.mask_id)

    def forecast(self, evidence: Evidence, step: int, root: BlockState | None) -> Forecast:
        """What the evidence tells of the commit at `step`; the model is called where it was not asked yet.

        `root` is the state that follows the evidence's own, if it is known.
        """
        if evidence.block not in self._read or self._read[evidence.block][0] is not evidence:
            self._read[evidence.block] = (evidence, {})
        known = self._read[evidence.block][1]
        staleness = min(step - evidence.state.step, MAX_STALENESS)
        if staleness == 0:  # read under a guessed prefix: the model knows of true ones only
            candidates = evidence.candidates(step)
            odds = confidence_odds(coupled(candidates)[1])
            return Forecast(odds, self._token_probs(candidates, 1, None))
        key = step if self.sampled else staleness
        if key not in known:
            if self.sampled:  # the noise of each step couples other tokens
                known[key] = self._ask(evidence, step, root)[staleness - 1]
            else:
                known.update(enumerate(self._ask(evidence, step, root), 1))
        return known[key]

    def _ask(self, evidence: Evidence, step: int, root: BlockState | None) -> list[Forecast]:
        """One call of the model: forecasts by staleness − 1, on the candidates of `step`."""
        candidates = evidence.candidates(step)
        places = most_confident(evidence.positions, candidates.log_probs)
        length = len(evidence.state.tokens)
        taken = commits_since(evidence, root)
        features = order_features(
            evidence.top[places][None],
            torch.tensor([[candidates.log_probs[place][0] for place in places]]),
            torch.tensor([[place not in taken for place in places]]),
            position_code(length)[places],
        )
        order, token = self.model(features)
        odds = (order[0] - order[0].amax(-1, keepdim=True)).exp().tolist()
        forecasts = []
        for staleness, (row, holds) in enumerate(zip(odds, token[0].sigmoid().tolist(), strict=True), 1):
            spread = [0.0] * length
            sure: list[float | None] = [None] * length
            for place, value, probability in zip(places, row, holds, strict=True):
                spread[place], sure[place] = value, probability
            forecasts.append(Forecast(spread, self._token_probs(candidates, staleness, sure)))
        return forecasts

    def _token_probs(
        self, candidates: Candidates, staleness: int, sure: list[float | None] | None
    ) -> list[list[float]]:
        """Per position and rank: the table's value; where the model says how sure the coupled token is, that, and
        the rest shared among the others as in the table."""
        rows = []
        for position, log_probs in enumerate(candidates.log_probs):
            row = [self.table.probability(self.sampled, rank, staleness, p) for rank, p in enumerate(log_probs)]
            first = None if sure is None else sure[position]
            if row and first is not None:
                rest = (1 - first) / max(1 - row[0], 1e-6)
                row = [first, *(value * rest for value in row[1:])]
            rows.append(row)
        return rows


def commits_since(evidence: Evidence, root: BlockState | None) -> set[int]:
    """The positions committed between the evidence's state and the root that follows it; where that is not known, or
    is the evidence's own state, the one that the next step would take on the evidence."""
    if root is not None and root.step > evidence.state.step:
        return {p for p in evidence.positions if root.tokens[p] != evidence.state.tokens[p]}
    log_probs = coupled(evidence.candidates(evidence.state.step))[1]
    return {max(evidence.positions, key=lambda position: log_probs[position])}


def most_confident(positions: list[int], log_probs: list[list[float]]) -> list[int]:
    """The positions that the order model reads: all, or in a long block those whose coupled token is surest."""
    if len(positions) <= MAX_POSITIONS:
        return positions
    return sorted(sorted(positions, key=lambda place: -log_probs[place][0])[:MAX_POSITIONS])
