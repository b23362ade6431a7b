"""SPOT: a tree grown from predicted commit orders (arXiv 2610.22543; the growth is this project's own).

The order model reads the stale distributions only, once per evidence (under noise once per step of it): all
hypothetical states that read it share its answer for their step, renormalised over the positions that each still masks.
Without noise it is not asked where confidence alone puts one position far ahead.
Where the rule commits several positions at one step it proposes the step that the rule would take on the stale scores.
"""

from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakKeyDictionary

import torch

from dlmspec.drafters.base import DraftContext, Stateless
from dlmspec.drafters.growth import Step, grow_tree
from dlmspec.drafters.stale import (
    commits_one_by_confidence,
    confidence_odds,
    coupled,
    position_steps,
    stale_steps,
)
from dlmspec.evidence import Candidates, Evidence
from dlmspec.order.calibration import TokenTable, load_calibration
from dlmspec.order.features import MAX_POSITIONS, order_features, position_code
from dlmspec.order.model import MAX_STALENESS, FrozenOrderModel, OrderModel, load_order_model
from dlmspec.state import BlockState
from dlmspec.tree import DraftTree

CLEAR = 0.75  # at T = 0, with this share of the odds by confidence, a position is not worth a call of the model
UNLIKELY = 1e-4  # a position with less than this share of the odds is no candidate


@dataclass(frozen=True, slots=True)
class Forecast:
    """The model's word on one step of a block: `odds` `[B]` of being committed there, up to a common factor; and
    `token_probs` `[B][rank]`, that a candidate is then the committed token."""

    odds: list[float]
    token_probs: list[list[float]]


@dataclass(frozen=True, slots=True)
class Answer:
    """The model's output for the positions `places`, by staleness − 1: odds and token probabilities.

    `guessed` are positions without odds: the model was told that they are taken, which is a guess.
    """

    places: list[int]
    odds: list[list[float]]
    holds: list[list[float]]
    guessed: tuple[int, ...]


@dataclass(slots=True)
class Reading:
    """What was made of one evidence so far: odds by confidence and answers by step under noise, else one of each;
    forecasts by step."""

    by_confidence: dict[int, list[float]] = field(default_factory=dict)
    answers: dict[int, Answer] = field(default_factory=dict)
    forecasts: dict[int, Forecast] = field(default_factory=dict)


class SpotDrafter(Stateless):
    """Positions by the order model, tokens by coupled noise with calibrated alternatives."""

    name = "spot"

    def __init__(self, model: OrderModel, table: TokenTable) -> None:
        self.model, self.table = FrozenOrderModel(model), table
        self._read: WeakKeyDictionary[Evidence, Reading] = WeakKeyDictionary()

    @classmethod
    def from_directory(cls, directory: str | Path) -> "SpotDrafter":
        """Load a trained drafter; raises ValueError if the directory is none or damaged."""
        directory = Path(directory)
        return cls(load_order_model(directory), load_calibration(directory))

    def propose(self, context: DraftContext, budget: int) -> DraftTree:
        return grow_tree(context, budget, self.steps)

    def steps(self, states: list[BlockState], evidence: Evidence, context: DraftContext) -> list[list[Step]]:
        """The likeliest hypothetical steps of each state: a `Scorer`."""
        step, length = states[0].step, len(states[0].tokens)
        if not commits_one_by_confidence(context.rule, step, length):
            return stale_steps(states, evidence, context)
        forecast = self.forecast(evidence, step)
        candidates = evidence.candidates(step)
        return position_steps(states, forecast.odds, forecast.token_probs, candidates, context.mask_id)

    def forecast(self, evidence: Evidence, step: int) -> Forecast:
        """What the evidence tells of the commit at `step`; the model is called where it was not asked yet."""
        reading = self._read.get(evidence)
        if reading is None:
            reading = self._read[evidence] = Reading()
        if step not in reading.forecasts:
            reading.forecasts[step] = self._forecast(evidence, reading, step)
        return reading.forecasts[step]

    def _forecast(self, evidence: Evidence, reading: Reading, step: int) -> Forecast:
        candidates = evidence.candidates(step)
        staleness = min(step - evidence.state.step, MAX_STALENESS)
        key = step if evidence.is_redrawn else 0
        if key not in reading.by_confidence:
            reading.by_confidence[key] = self._by_confidence(evidence, candidates)
        by_confidence = reading.by_confidence[key]
        if staleness == 0 or (not evidence.is_sampled and is_clear(by_confidence)):
            holds = {
                p: self.table.probabilities(evidence.is_sampled, staleness, candidates.bins[p][:1])[0]
                for p in evidence.positions
                if by_confidence[p]
            }
            return Forecast(by_confidence, self._token_probs(candidates, holds, staleness, evidence.is_sampled))
        if key not in reading.answers:
            reading.answers[key] = self._ask(evidence, candidates)
        answer = reading.answers[key]
        odds = [0.0] * len(candidates.ids)
        for place, value in zip(answer.places, answer.odds[staleness - 1], strict=True):
            odds[place] = value
        for place in answer.guessed:  # taken first on the likeliest path; on the others it is still to come
            odds[place] = share_of(place, by_confidence, odds)
        least = UNLIKELY * sum(odds)
        holds = {p: hold for p, hold in zip(answer.places, answer.holds[staleness - 1], strict=True) if odds[p] > least}
        return Forecast(odds, self._token_probs(candidates, holds, staleness, evidence.is_sampled))

    def _by_confidence(self, evidence: Evidence, candidates: Candidates) -> list[float]:
        """Odds in the order of confidence, none where it is known that the position is taken."""
        odds = confidence_odds(coupled(candidates)[1])
        gone = evidence.taken or ()
        return [odds[p] if ids and p not in gone else 0.0 for p, ids in enumerate(candidates.ids)]

    def _ask(self, evidence: Evidence, candidates: Candidates) -> Answer:
        """One call of the model."""
        places = most_confident(evidence.positions, candidates.log_probs)
        taken = taken_next(evidence)
        left = torch.tensor([[place not in taken for place in places]])
        coupled_log_probs = torch.tensor([[candidates.log_probs[place][0] for place in places]])
        code = position_code(len(candidates.ids))[places]
        order, token = self.model(order_features(evidence.top[places][None], coupled_log_probs, left, code)[0])
        order = order.masked_fill(~left, float("-inf"))
        odds = (order - order.amax(-1, keepdim=True)).exp()  # among what is left: nothing underflows there
        return Answer(places, odds.tolist(), token.sigmoid().tolist(), tuple(taken) if evidence.taken is None else ())

    def _token_probs(self, candidates: Candidates, holds: dict[int, float], staleness: int,
                     sampled: bool) -> list[list[float]]:  # fmt: skip
        """Per position and rank: how surely the coupled token holds, by the model, and the rest shared among the others
        as in the table. A position of which the model says nothing is no candidate for this step: zeros."""
        rows = [[0.0] * len(log_probs) for log_probs in candidates.log_probs]
        for position, first in holds.items():
            row = self.table.probabilities(sampled, staleness, candidates.bins[position])
            rest = (1 - first) / max(1 - row[0], 1e-6)
            rows[position] = [first, *(value * rest for value in row[1:])]
        return rows


def is_clear(odds: list[float]) -> bool:
    """Whether confidence puts one position far ahead."""
    return max(odds) > CLEAR * sum(odds)


def share_of(place: int, by_confidence: list[float], odds: list[float]) -> float:
    """Odds of a place beside those of the others, in the proportion that their stale confidences have."""
    others = sum(value for other, value in enumerate(by_confidence) if other != place and odds[other] > 0)
    return by_confidence[place] * sum(odds) / others if others else 1.0


def taken_next(evidence: Evidence) -> frozenset[int]:
    """The positions committed next after what was read; where that is not known, the one that the step would take."""
    if evidence.taken is not None:
        return evidence.taken
    log_probs = coupled(evidence.candidates(evidence.state.step))[1]
    return frozenset({max(evidence.positions, key=lambda position: log_probs[position])})


def most_confident(positions: list[int], log_probs: list[list[float]]) -> list[int]:
    """The positions that the order model reads: all, or in a long block those whose coupled token is surest."""
    if len(positions) <= MAX_POSITIONS:
        return positions
    return sorted(sorted(positions, key=lambda place: -log_probs[place][0])[:MAX_POSITIONS])
