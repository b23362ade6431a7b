"""The order model, its features and its token table.

Catches: features that depend on the order of commits, on token ids or on other rows; a softmax over decided
positions; a table read at the wrong rank, staleness or bin; damaged drafter directories that load.
"""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dlmspec.order.calibration import EDGES, TokenTable, load_calibration, log_prob_bin, save_calibration
from dlmspec.order.features import NUM_FEATURES, doubt, order_features, position_code
from dlmspec.order.model import OrderConfig, OrderModel, load_order_model, num_parameters
from dlmspec.training.drafter import save_drafter


def inputs(num_states: int, block_length: int, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    top = -torch.rand(num_states, block_length, 32, generator=generator).mul(20).sort(-1).values
    masked = torch.rand(num_states, block_length, generator=generator) < 0.6
    masked[:, 0] = True
    depth = (~masked).float() * 3
    return top, top[..., 0], masked, depth


def flat_table() -> TokenTable:
    """Probability 0.5 / (rank + 1) at staleness 1, a tenth less per staleness; `sampled` half of it."""
    greedy = [[[0.5 / (rank + 1) * 0.9**d for _ in range(len(EDGES) + 1)] for d in range(8)] for rank in range(3)]
    return TokenTable(greedy, [[[x / 2 for x in row] for row in rank] for rank in greedy])


def test_the_model_has_the_size_on_the_card():
    assert 600_000 < num_parameters(OrderModel(OrderConfig())) <= 650_000


@given(block_length=st.integers(1, 40), num_states=st.integers(1, 5))
def test_probabilities_lie_on_masked_positions_only(block_length, num_states):
    top, coupled, masked, depth = inputs(num_states, block_length)
    features = order_features(top, coupled, masked, depth, position_code(block_length))
    assert features.shape == (num_states, block_length, NUM_FEATURES)
    assert features.isfinite().all()
    log_probs = OrderModel(OrderConfig()).eval()(features, masked)
    assert torch.equal(log_probs.isfinite(), masked)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(num_states))


def test_a_row_does_not_depend_on_the_others():
    model = OrderModel(OrderConfig()).eval()
    top, coupled, masked, depth = inputs(5, 13)
    with torch.no_grad():
        together = model(order_features(top, coupled, masked, depth, position_code(13)), masked)
        alone = model(order_features(top[2:3], coupled[2:3], masked[2:3], depth[2:3], position_code(13)), masked[2:3])
    torch.testing.assert_close(together[2:3], alone)


def test_hidden_rows_are_the_same_as_rows_left_out():
    """Training hides decided positions, a drafter leaves them out: one function."""
    model = OrderModel(OrderConfig()).eval()
    top, coupled, masked, depth = inputs(3, 11)
    present = torch.tensor([0, 2, 3, 7, 10])
    masked &= torch.zeros(11, dtype=torch.bool).index_fill(0, present, True)
    features = order_features(top, coupled, masked, depth, position_code(11))
    shown = torch.zeros(3, 11, dtype=torch.bool).index_fill(1, present, True)
    with torch.no_grad():
        hidden = model(features, masked, shown)[:, present]
        left_out = model(features[:, present], masked[:, present])
    torch.testing.assert_close(hidden, left_out)


def test_filtered_tokens_and_certain_tokens_give_finite_features():
    top = torch.full((1, 3, 32), float("-inf"))
    top[..., 0] = 0.0
    masked = torch.ones(1, 3, dtype=torch.bool)
    features = order_features(top, top[..., 0], masked, torch.zeros(1, 3), position_code(3))
    assert features.isfinite().all()


def test_doubt_keeps_near_certain_tokens_apart():
    values = doubt(torch.tensor([-1e-6, -1e-4, -1e-2, -1.0, -50.0]))
    assert (values.diff() > 0.1).all()


def test_the_table_is_read_by_rank_staleness_and_bin():
    table = flat_table()
    assert table.probability(False, 1, 1, -0.3) == pytest.approx(0.25)
    assert table.probability(True, 1, 1, -0.3) == pytest.approx(0.125)
    assert table.probability(False, 0, 3, -0.3) == pytest.approx(0.5 * 0.81)
    assert table.probability(False, 0, 99, -0.3) == table.probability(False, 0, 8, -0.3)
    assert table.probability(False, 0, 0, -0.3) == table.probability(False, 0, 1, -0.3)
    assert table.probability(False, 7, 1, -0.3) == 0.0


def test_bins_agree_with_bucketize():
    values = torch.tensor([0.0, 5e-5, 1e-4, 2e-3, 0.3, 1.0, 5.9, 6.0, 100.0])
    expected = torch.bucketize(values, torch.tensor(EDGES)).tolist()
    assert [log_prob_bin(-v) for v in values.tolist()] == expected


def test_a_saved_drafter_loads_again(tmp_path):
    model = OrderModel(OrderConfig())
    save_drafter(model, flat_table(), tmp_path)
    loaded = load_order_model(tmp_path)
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], tensor.to(torch.bfloat16).float())
    assert load_calibration(tmp_path) == flat_table()


def test_damaged_drafters_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"config\.json is missing"):
        load_order_model(tmp_path)
    save_drafter(OrderModel(OrderConfig()), flat_table(), tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ValueError, match="cannot load"):
        load_order_model(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "sdar"}))
    with pytest.raises(ValueError, match="no order model"):
        load_order_model(tmp_path)
    (tmp_path / "calibration.json").write_text("{}")
    with pytest.raises(ValueError, match="calibration"):
        load_calibration(tmp_path)
    save_calibration(tmp_path, flat_table())
    content = json.loads((tmp_path / "calibration.json").read_text())
    (tmp_path / "calibration.json").write_text(json.dumps({**content, "edges": [1.0]}))
    with pytest.raises(ValueError, match="other bins"):
        load_calibration(tmp_path)
