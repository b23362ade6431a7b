"""Files are written whole or not at all.

Catches: a file that is truncated when its writing fails, temporary files left behind, a directory that loads although
its files are of two different writings.
"""

import json
import os

import pytest
import torch
from tokenizers import Tokenizer, models

from dlmspec.atomic import replacing, write_text
from dlmspec.models.loader import load_weights, save_checkpoint
from dlmspec.models.read_spec import spec_from_directory
from dlmspec.order.calibration import EDGES, TokenTable, calibration_text, load_calibration
from dlmspec.order.model import OrderConfig, OrderModel, load_order_model
from dlmspec.training.drafter import save_drafter
from dlmspec.training.tokenizer import save_tokenizer


class Crash(BaseException):
    """What no handler expects."""


def table(value: float) -> TokenTable:
    rows = [[[value] * (len(EDGES) + 1) for _ in range(8)]]
    return TokenTable(rows, rows)


def break_off(place, error) -> None:
    with replacing(place) as (temporary,):
        temporary.write_text("ne")
        raise error


def crash_at_rename(monkeypatch, number: int) -> None:
    """Every rename from the given one on fails."""
    done = []
    original = os.replace

    def replace(source, target):
        done.append(target)
        if len(done) >= number:
            raise Crash
        original(source, target)

    monkeypatch.setattr("dlmspec.atomic.os.replace", replace)


def test_a_failed_writing_leaves_the_old_file_and_nothing_else(tmp_path):
    place = tmp_path / "a.json"
    write_text(place, "old é")
    for error in (Crash, OSError):
        with pytest.raises(error):
            break_off(place, error)
    assert place.read_text("utf-8") == "old é"
    write_text(place, "new")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert place.read_text() == "new"


def test_a_failed_rename_keeps_the_old_calibration(tmp_path, monkeypatch):
    write_text(tmp_path / "calibration.json", calibration_text(table(0.5)))
    crash_at_rename(monkeypatch, 1)
    with pytest.raises(Crash):
        write_text(tmp_path / "calibration.json", calibration_text(table(0.25)))
    assert load_calibration(tmp_path) == table(0.5)


def test_failing_weights_leave_the_old_drafter_whole(tmp_path, monkeypatch):
    save_drafter(OrderModel(OrderConfig()), table(0.5), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*_args, **_options):
        raise OSError("disk full")

    monkeypatch.setattr("dlmspec.training.drafter.save_file", full)
    with pytest.raises(OSError, match="disk full"):
        save_drafter(OrderModel(OrderConfig()), table(0.25), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_drafter_of_two_writings_does_not_load(tmp_path, monkeypatch, number):
    save_drafter(OrderModel(OrderConfig()), table(0.5), tmp_path)
    crash_at_rename(monkeypatch, number)
    with pytest.raises(Crash):
        save_drafter(OrderModel(OrderConfig()), table(0.25), tmp_path)
    with pytest.raises(ValueError, match="model\\.safetensors"):
        load_order_model(tmp_path)


@pytest.mark.parametrize("number", [1, 2])
def test_a_checkpoint_of_two_writings_does_not_load(tiny_sdar, monkeypatch, number):
    directory = tiny_sdar()
    spec = spec_from_directory(directory)
    weights = load_weights(directory, spec, torch.float32, "cpu")
    config = json.loads((directory / "config.json").read_text())
    crash_at_rename(monkeypatch, number)
    with pytest.raises(Crash):
        save_checkpoint(directory, weights, {**config, "rope_theta": 5e5})
    with pytest.raises(ValueError, match="no weights"):
        load_weights(directory, spec, torch.float32, "cpu")


def test_a_tokenizer_is_written_last(tmp_path, monkeypatch):
    save_tokenizer(Tokenizer(models.BPE()), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokenizer.json", "tokenizer_config.json"]
    crash_at_rename(monkeypatch, 2)
    with pytest.raises(Crash):
        save_tokenizer(Tokenizer(models.BPE()), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer_config.json"]
