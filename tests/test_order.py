"""The order model, its features and its token table.

Catches: scores that depend on other rows or on hidden positions, features that are not finite, a table read at the
wrong rank, staleness or bin; damaged drafter directories that load.
"""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from dlmspec.atomic import write_text
from dlmspec.drafters.spot import SpotDrafter
from dlmspec.order.calibration import EDGES, TokenTable, calibration_text, load_calibration, log_prob_bin
from dlmspec.order.features import NUM_FEATURES, doubt, order_features, position_code
from dlmspec.order.model import MODEL_TYPE, FrozenOrderModel, OrderConfig, OrderModel, load_order_model, num_parameters
from dlmspec.training.drafter import save_drafter


def inputs(num_states: int, block_length: int, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    top = -torch.rand(num_states, block_length, 32, generator=generator).mul(20).sort(-1).values
    masked = torch.rand(num_states, block_length, generator=generator) < 0.6
    return top, top[..., 0], masked


def flat_table() -> TokenTable:
    """Probability 0.5 / (rank + 1) at staleness 1, a tenth less per staleness; `sampled` half of it."""
    greedy = [[[0.5 / (rank + 1) * 0.9**d for _ in range(len(EDGES) + 1)] for d in range(8)] for rank in range(3)]
    return TokenTable(greedy, [[[x / 2 for x in row] for row in rank] for rank in greedy])


def held(table, sampled, rank, staleness, log_prob):
    return table.probabilities(sampled, staleness, [log_prob_bin(log_prob)] * (rank + 1))[rank]


def test_the_model_has_the_size_on_the_card():
    assert 600_000 < num_parameters(OrderModel(OrderConfig())) <= 650_000


@given(block_length=st.integers(1, 40), num_states=st.integers(1, 5))
def test_every_position_has_a_score_for_eight_steps(block_length, num_states):
    features = order_features(*inputs(num_states, block_length), position_code(block_length))
    assert features.shape == (num_states, block_length, NUM_FEATURES)
    assert features.isfinite().all()
    for scores in OrderModel(OrderConfig()).eval()(features):
        assert scores.shape == (num_states, 8, block_length)
        assert scores.isfinite().all()


def test_a_row_does_not_depend_on_the_others():
    model = OrderModel(OrderConfig()).eval()
    read = inputs(5, 13)
    with torch.no_grad():
        together = model(order_features(*read, position_code(13)))
        alone = model(order_features(*(x[2:3] for x in read), position_code(13)))
    for rows, row in zip(together, alone, strict=True):
        torch.testing.assert_close(rows[2:3], row)


def test_hidden_rows_are_the_same_as_rows_left_out():
    """Training hides positions decided before, a drafter leaves them out: one function."""
    model = OrderModel(OrderConfig()).eval()
    present = torch.tensor([0, 2, 3, 7, 10])
    features = order_features(*inputs(3, 11), position_code(11))
    shown = torch.zeros(3, 11, dtype=torch.bool).index_fill(1, present, True)
    with torch.no_grad():
        hidden, left_out = model(features, shown), model(features[:, present])
    for some, others in zip(hidden, left_out, strict=True):
        torch.testing.assert_close(some[..., present], others)


@given(length=st.integers(1, 40), seed=st.integers(0, 99))
def test_the_packed_model_is_the_same_function(length, seed):
    torch.manual_seed(seed)
    model = OrderModel(OrderConfig()).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.uniform_(0.3, 1.7)
    features = order_features(*inputs(1, length, seed), position_code(length))
    for slow, fast in zip(model(features), FrozenOrderModel(model)(features[0]), strict=True):
        torch.testing.assert_close(fast, slow[0], atol=1e-5, rtol=1e-5)


def test_filtered_tokens_and_certain_tokens_give_finite_features():
    top = torch.full((1, 3, 32), float("-inf"))
    top[..., 0] = 0.0
    masked = torch.ones(1, 3, dtype=torch.bool)
    assert order_features(top, top[..., 0], masked, position_code(3)).isfinite().all()


def test_doubt_keeps_near_certain_tokens_apart():
    values = doubt(torch.tensor([-1e-6, -1e-4, -1e-2, -1.0, -50.0]))
    assert (values.diff() > 0.1).all()


def test_the_table_is_read_by_rank_staleness_and_bin():
    table = flat_table()
    assert held(table, False, 1, 1, -0.3) == pytest.approx(0.25)
    assert held(table, True, 1, 1, -0.3) == pytest.approx(0.125)
    assert held(table, False, 0, 3, -0.3) == pytest.approx(0.5 * 0.81)
    assert held(table, False, 0, 99, -0.3) == held(table, False, 0, 8, -0.3)
    assert held(table, False, 0, 0, -0.3) == held(table, False, 0, 1, -0.3)
    assert held(table, False, 7, 1, -0.3) == 0.0


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
    write_text(tmp_path / "calibration.json", calibration_text(flat_table()))
    content = json.loads((tmp_path / "calibration.json").read_text())
    (tmp_path / "calibration.json").write_text(json.dumps({**content, "edges": [1.0]}))
    with pytest.raises(ValueError, match="other bins"):
        load_calibration(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_features": NUM_FEATURES + 1}, "another version of the order model; train it again"),
        ({"num_heads": None}, "num_heads is None"),
        ({"num_heads": 0}, "num_heads is 0"),
        ({"num_heads": 7}, "hidden_size is 128"),
        ({"num_layers": "3"}, "num_layers is '3'"),
        ({"intermediate_size": 256}, r"up\.weight has shape \(512, 128\)"),
        ({"hidden_size": 800_000}, "embed"),
    ],
)
def test_order_configs_that_cannot_be_are_refused(tmp_path, changes, message):
    save_drafter(OrderModel(OrderConfig()), flat_table(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(ValueError, match=message):
        load_order_model(tmp_path)


@pytest.mark.parametrize("change", ["head of one score", "no token head", "config of other names"])
def test_a_drafter_of_another_version_says_so(tmp_path, change):
    model = OrderModel(OrderConfig())
    save_drafter(model, flat_table(), tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    if change == "head of one score":
        weights |= {name: weights[name][:1].clone() for name in ("head.weight", "head.bias")}
    elif change == "no token head":
        weights = {name: tensor for name, tensor in weights.items() if not name.startswith("head")}
    else:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": MODEL_TYPE, "width": 128}))
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="another version of the order model; train it again"):
        load_order_model(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "\udcff"])
@pytest.mark.parametrize("file", ["config.json", "calibration.json"])
def test_damaged_json_of_a_drafter_is_named(tmp_path, file, text):
    save_drafter(OrderModel(OrderConfig()), flat_table(), tmp_path)
    (tmp_path / file).write_text(text, "utf-8", "surrogateescape")
    with pytest.raises(ValueError, match=rf"/{file}: .*train the drafter again"):
        SpotDrafter.from_directory(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edges": None}, "other bins"),
        ({"edges": 3}, "other bins"),
        ({"token_table": None}, "token_table.greedy"),
        ({"token_table": [1]}, r"token_table is \[1\]"),
        ({"token_table": {"greedy": [], "sampled": []}}, "token_table.greedy"),
        ({"token_table": {"greedy": "high", "sampled": "low"}}, "token_table.greedy"),
        ({"token_table": {"greedy": flat_table().greedy}}, "token_table.sampled"),
        ({"token_table": {"greedy": [[[0.5]]], "sampled": [[[0.5]]]}}, "token_table.greedy"),
        ({"token_table": {"greedy": [[[2.0] * 14] * 8], "sampled": []}}, "token_table.greedy"),
    ],
)
def test_calibrations_that_cannot_be_are_refused(tmp_path, changes, message):
    write_text(tmp_path / "calibration.json", calibration_text(flat_table()))
    content = json.loads((tmp_path / "calibration.json").read_text())
    (tmp_path / "calibration.json").write_text(json.dumps({**content, **changes}))
    with pytest.raises(ValueError, match=message):
        load_calibration(tmp_path)
