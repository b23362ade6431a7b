"""SPOT's reading of one evidence: how often the model is asked, on what, and what its answer becomes.

Catches: a call per level, an answer of another evidence or step that is kept, odds that are not renormalised over the
masked positions, a commit since the reading that is not flagged, coupled tokens and alternatives mixed up.
"""

import pytest
import torch

from dlmspec.config import DecodeConfig
from dlmspec.drafters.base import DraftContext, NothingKnown
from dlmspec.drafters.spot import SpotDrafter, taken_next
from dlmspec.drafters.stale import position_steps
from dlmspec.evidence import Candidates, Evidence
from dlmspec.grid import Grid
from dlmspec.law import DenoisingLaw
from dlmspec.models.spec import ModelSpec
from dlmspec.order.calibration import EDGES, TokenTable
from dlmspec.order.model import FrozenOrderModel, OrderConfig, OrderModel
from dlmspec.state import BlockState, new_commits
from dlmspec.step import Sampling

MASK = 0
SPEC = ModelSpec(
    name="tiny", family="sdar", hidden_size=16, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=8,
    intermediate_size=16, vocab_size=40, rms_norm_eps=1e-6, rope_theta=10_000.0, max_position_embeddings=64,
    tie_word_embeddings=True, block_length=7, mask_id=MASK, stop_ids=(1,),
)  # fmt: skip
START = BlockState((5, MASK, MASK, MASK, MASK, MASK, MASK), 0)
ROOT = BlockState((5, MASK, MASK, 9, MASK, MASK, MASK), 1)


class CountingModel(FrozenOrderModel):
    """Keeps what it was asked."""

    def __init__(self, model: OrderModel) -> None:
        super().__init__(model)
        self.asked: list[torch.Tensor] = []

    def __call__(self, features):
        self.asked.append(features)
        return super().__call__(features)


def spot() -> SpotDrafter:
    table = [[[0.6 / (1 + rank)] * (len(EDGES) + 1)] * 8 for rank in range(3)]
    torch.manual_seed(4)
    model = OrderModel(OrderConfig()).eval().requires_grad_(False)
    drafter = SpotDrafter(model, TokenTable(table, table))
    drafter.model = CountingModel(model)
    return drafter


def evidence_of(temperature: float, *, block: int = 2, state: BlockState = START, seed: int = 1,
                successor: BlockState | None = ROOT) -> Evidence:  # fmt: skip
    law = DenoisingLaw(SPEC, DecodeConfig(sampling=Sampling(temperature=temperature)), Grid(0, SPEC.block_length))
    masked = sum(token == MASK for token in state.tokens)
    logits = torch.randn(masked, SPEC.vocab_size, generator=torch.Generator().manual_seed(seed)) * 3
    return Evidence(block, state, logits, law, None if successor is None else new_commits(state, successor))


def context_of(evidence: Evidence, root: BlockState) -> DraftContext:
    return DraftContext(
        root=root, block=evidence.block, num_blocks=5, mask_id=MASK, vocab_size=SPEC.vocab_size,
        rule=DecodeConfig().rule, evidence={evidence.block: evidence},
        fresh_state=lambda block: BlockState((MASK,) * 7, 0), ends=lambda state, block: False,
        known=NothingKnown(),
    )  # fmt: skip


def calls(drafter: SpotDrafter) -> int:
    assert isinstance(drafter.model, CountingModel)
    return len(drafter.model.asked)


def test_a_tree_costs_one_call_without_noise_and_one_per_step_with_it():
    for temperature in (0.0, 1.0):
        drafter, evidence = spot(), evidence_of(temperature)
        tree = drafter.propose(context_of(evidence, ROOT), 24)
        depth = max(node.state.step for node in tree.nodes if node.block == 0) - ROOT.step
        assert depth >= 2
        if temperature:
            assert depth <= calls(drafter) <= 5, "five positions are left to commit"
        else:
            assert calls(drafter) == 1
        before = calls(drafter)
        again = drafter.propose(context_of(evidence, ROOT), 24)
        assert calls(drafter) == before
        assert [node.state for node in again.nodes] == [node.state for node in tree.nodes]
        drafter.propose(context_of(evidence_of(temperature, seed=2), ROOT), 24)
        assert calls(drafter) > before, "other distributions are asked anew"


@pytest.mark.parametrize("staleness", [1, 2, 5, 8, 11])
def test_a_forecast_is_the_answer_for_its_step(staleness):
    drafter, evidence = spot(), evidence_of(0.0)
    forecast = drafter.forecast(evidence, staleness)
    assert isinstance(drafter.model, CountingModel)
    order, token = drafter.model(drafter.model.asked[0])
    row = order[min(staleness, 8) - 1].clone()
    row[evidence.positions.index(3)] = float("-inf")  # committed since
    odds = torch.tensor([forecast.odds[place] for place in evidence.positions])
    torch.testing.assert_close(odds / odds.sum(), row.softmax(-1))
    sure = token[min(staleness, 8) - 1].sigmoid()
    for index, place in enumerate(evidence.positions):
        first, second, third = forecast.token_probs[place]
        if place == 3:
            assert (first, second, third) == (0, 0, 0)
            continue
        assert first == pytest.approx(float(sure[index]), rel=1e-5)
        assert second == pytest.approx(0.3 * (1 - first) / 0.4, rel=1e-4)
        assert third == pytest.approx(0.2 * (1 - first) / 0.4, rel=1e-4)
    assert forecast.token_probs[0] == []


def test_the_model_is_told_what_was_committed_since():
    drafter, evidence = spot(), evidence_of(0.0)
    drafter.forecast(evidence, 1)
    assert isinstance(drafter.model, CountingModel)
    flags = drafter.model.asked[0][:, 35]
    assert flags.tolist() == [1, 1, 0, 1, 1, 1]
    assert taken_next(evidence) == {3}
    best = max(range(6), key=lambda row: float(evidence.top[evidence.positions[row], 0]))
    expected = {evidence.positions[best]}
    assert taken_next(evidence_of(0.0, successor=None)) == expected


def test_a_guessed_prefix_is_read_by_confidence_alone():
    drafter, evidence = spot(), evidence_of(0.0, successor=None)
    forecast = drafter.forecast(evidence, 0)
    assert calls(drafter) == 0
    best = max(evidence.positions, key=lambda place: forecast.odds[place])
    assert {best} == taken_next(evidence)


def test_the_model_is_not_asked_where_confidence_is_clear():
    for temperature, expected in ((0.0, 0), (1.0, 1)):
        drafter, evidence = spot(), evidence_of(temperature)
        best = evidence.positions[1]
        row = evidence.positions.index(best)
        evidence.top[best, 0] = evidence.log_probs[row].fill_(-20.0)[7].fill_(-1e-5)
        evidence.top_ids[row, 0] = 7
        forecast = drafter.forecast(evidence, 2)
        assert calls(drafter) == expected
        if not expected:
            assert max(evidence.positions, key=lambda place: forecast.odds[place]) == best
            assert forecast.odds[3] == 0, "committed since"
            first, second, _ = forecast.token_probs[best]
            assert (first, second) == (pytest.approx(0.6), pytest.approx(0.3)), "by the table"


def test_odds_are_shared_among_the_masked_positions():
    candidates = Candidates([[], [7, 8], [9], [4, 6]], [[], [-0.1, -3.0], [-0.5], [-0.2, -100.0]])
    states = [BlockState((5, MASK, MASK, MASK), 1), BlockState((5, 7, MASK, MASK), 2)]
    steps = position_steps(states, [0.0, 2.0, 1.0, 1.0], [[], [0.9, 0.1], [0.8], [0.5, 0.5]], candidates, MASK)
    assert steps[0] == [
        (pytest.approx(0.45), ((1, 7),)),
        (pytest.approx(0.05), ((1, 8),)),
        (pytest.approx(0.2), ((2, 9),)),
        (pytest.approx(0.125), ((3, 4),)),
    ]
    assert steps[1] == [(pytest.approx(0.4), ((2, 9),)), (pytest.approx(0.25), ((3, 4),))]
