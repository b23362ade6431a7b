"""Whole benchmark runs on a tiny target.

Catches: rows that do not come from the decodes, times where none were asked for, a red row that passes, rows lost or
measured twice after a stop, plans that cannot be.
"""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from dlmspec.bench import BenchRow, exit_status, run_bench
from dlmspec.bench.busy import MachineLoad, ProcessLoad
from dlmspec.bench.measure import Decoders
from dlmspec.bench.plan import BenchPlan
from dlmspec.bench.report import SAME, BenchReport
from dlmspec.bench.rows import SPEED_KEYS
from dlmspec.config import DecodeConfig
from dlmspec.decode import decode, reference_decode
from dlmspec.drafters import UNTRAINED
from dlmspec.models.target import Target
from dlmspec.request import DecodeOutput


@pytest.fixture(scope="module")
def target(tiny_sdar) -> Target:
    torch.set_num_threads(1)
    return Target.from_directory(tiny_sdar(block_length=8))


def encode(text: str) -> list[int]:
    """Ids of the tiny vocabulary, mask (66) and stop (0) left out; a ragged length."""
    return [1 + byte % 60 for byte in text.encode()[:21]]


def bench(target: Target, **options) -> list[BenchRow]:
    settings = {"prompts": ["math"], "drafters": ["none", "confidence", "oracle"], "budgets": [4], "limit": 2}
    settings |= {"max_new_tokens": 16, "allow_busy": True, **options}
    return run_bench(target=target, encode=encode, make_drafter=lambda name: UNTRAINED[name](), **settings)


def test_prompts_must_fit_the_answers_too(target: Target, tmp_path: Path):
    """Accuracy decodes 128 tokens, whatever the plan says."""
    path = tmp_path / "own.jsonl"
    rows = [{"id": name, "prompt": "a" * length, "answer": 3} for name, length in (("short", 9), ("long", 400))]
    path.write_text("\n".join(map(json.dumps, rows)))

    def whole(text: str) -> list[int]:
        return [7] * len(text)

    settings = {"target": target, "make_drafter": lambda name: UNTRAINED[name](), "encode": whole, "allow_busy": True}
    settings |= {"prompts": (path,), "drafters": ("none",), "max_new_tokens": 4}
    assert run_bench(**settings)
    with pytest.raises(ValueError, match=r"prompt 'long' \(.*own\.jsonl:2\): 528 tokens"):
        run_bench(**settings, accuracy=True, decode_text=lambda ids: "3")


def test_counting_passes_alone_gives_the_same_passes_on_a_busy_machine(target: Target, monkeypatch):
    """Catches a folded reference that is decoded per configuration all the same, and times that mean nothing."""
    busy = MachineLoad((ProcessLoad(72, "trainer", 97.0),), (1.0, 1.0, 1.0))
    monkeypatch.setattr("dlmspec.bench.run.machine_load", lambda: busy)
    decodes = []

    def counted(*arguments, **options):
        decodes.append(options)
        return reference_decode(*arguments, **options)

    timed = bench(target, budgets=[2, 4])
    rows = bench(target, budgets=[2, 4], allow_busy=False, passes_only=True, decoders=Decoders(reference=counted))
    assert [(row.passes, row.passes_reference, row.samples) for row in rows] == [
        (row.passes, row.passes_reference, row.samples) for row in timed
    ]
    assert all(row.wall_ratio is row.seconds is row.drafter_share is None for row in rows)
    assert all(row.exact_match == 1.0 for row in rows)
    assert len(decodes) == 1 + 2 * 2, "the warm-up, then each prompt with store passes and folded"


def test_end_to_end(target: Target, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dlmspec.bench.accuracy.MAX_NEW_TOKENS", 12)
    seen: list[tuple[int, int, str]] = []
    rows = bench(
        target, temperatures=[0.0, 1.0], accuracy=True, decode_text=lambda ids: "The answer is 18.",
        progress=lambda *now: seen.append(now),
    )  # fmt: skip
    assert [(made.drafter, made.budget) for made in rows] == [
        ("none", 1),
        ("confidence", 4),
        ("oracle", 4),
    ] * 2
    assert [made.temperature for made in rows] == [0.0] * 3 + [1.0] * 3
    assert exit_status(rows) == 0
    for made in rows:
        assert list(made.as_dict()) == [field.name for field in fields(BenchRow)]  # in full: test_bench
        written = json.loads(json.dumps(made.as_dict()))
        assert written == made.as_dict()
        again = BenchRow.from_dict(written)
        assert (again, again.samples) == (made, made.samples)
        assert made.accuracy == made.samples.accuracy_reference == 0.5  # answers: 18, 200
        assert (made.wall_ratio is None) == (made.drafter == "oracle")
        assert made.prompts == 2
        assert made.passes_reference_store > made.passes_reference
    none, _, oracle = rows[:3]
    assert none.passes == none.passes_reference
    assert none.mat == 1.0
    assert oracle.passes_ratio_folded is not None
    assert oracle.passes_ratio_folded > 2
    assert [done for done, _, _ in seen] == list(range(1, 33))
    assert seen[-1][1] == 32
    assert seen[-1][2] == "math T=1 oracle/4"


def test_a_stopped_run_keeps_its_rows_and_the_next_measures_the_rest(target: Target, tmp_path: Path):
    path, meta = tmp_path / "bench.json", {**dict.fromkeys(SAME, "x"), "date": "now"}
    settings = {"temperatures": [0.0, 1.0], "drafters": ["none", "confidence"], "limit": 1}

    class Stopped(BenchReport):
        def add(self, row: BenchRow) -> None:
            super().add(row)
            if len(self.rows) == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench(target, on_row=Stopped(path, meta).add, **settings)
    written = json.loads(path.read_text())
    assert (len(written["rows"]), written["meta"]["complete"]) == (3, False)
    for name in SAME:
        other = BenchReport(path, {**meta, name: "another"})
        assert (other.rows, other.differs) == ([], (name,)), f"another {name} is another measurement"
    report = BenchReport(path, {**meta, "date": "later"})
    assert (len(report.rows), report.differs) == (3, ())
    new: list[BenchRow] = []
    seen: list[tuple[int, int, str]] = []
    rows = bench(
        target, kept=report.rows, on_row=new.append, progress=lambda *now: seen.append(now), **settings
    )  # fmt: skip
    assert [(row.temperature, row.drafter) for row in new] == [(1.0, "confidence")]
    assert rows == [*report.rows, *new]
    assert seen[-1][:2] == (2, 2), "one prompt by the reference and by the one configuration"
    report.add(new[0])
    report.write(complete=True)
    assert json.loads(path.read_text())["meta"]["complete"] is True
    finished = BenchReport(path, meta)
    assert (finished.rows, finished.differs) == ([], ()), "a finished report is measured anew, as ever"
    del written["rows"][1]["passes"]
    path.write_text(json.dumps(written))
    strange = BenchReport(path, meta)
    assert (strange.rows, strange.differs) == ([], ("fields of rows",))
    path.write_text("{")
    assert not BenchReport(path, meta).rows


def test_passes_are_those_of_the_decoders(target: Target):
    made = bench(target, drafters=["confidence"], limit=1)[0]
    config = BenchPlan(max_new_tokens=16).config(0.0)
    ids = encode("Question: Omar lets a kite fly")
    drafted = decode(target, ids, config, drafter=UNTRAINED["confidence"](), budget=4)
    assert not config.early_stop
    assert made.passes == drafted.stats.num_passes
    assert made.passes_reference == reference_decode(target, ids, config).stats.num_passes
    assert made.passes_reference_store == reference_decode(target, ids, config, store_passes=True).stats.num_passes


def test_a_decode_that_differs_turns_the_run_red(target: Target):
    def broken(target: Target, prompt: list[int], config: DecodeConfig, *, drafter, budget: int) -> DecodeOutput:
        found = decode(target, prompt, config, drafter=drafter, budget=budget)
        return replace(found, token_ids=(found.token_ids[0] + 1, *found.token_ids[1:]))

    rows = bench(target, drafters=["confidence"], decoders=Decoders(speculative=broken))
    assert rows[0].exact_match == 0.0
    assert all(getattr(rows[0], key) is None for key in SPEED_KEYS)
    assert exit_status(rows) == 1


def test_answers_that_differ_turn_the_run_red(target: Target, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dlmspec.bench.accuracy.MAX_NEW_TOKENS", 12)

    def broken(target: Target, prompt: list[int], config: DecodeConfig, *, drafter, budget: int) -> DecodeOutput:
        found = decode(target, prompt, config, drafter=drafter, budget=budget)
        return replace(found, token_ids=(1,)) if config.early_stop else found

    options = {"accuracy": True, "decode_text": lambda ids: "", "drafters": ["confidence"]}
    rows = bench(target, decoders=Decoders(speculative=broken), **options)
    assert rows[0].exact_match == 0.5
    assert rows[0].passes_ratio is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"drafters": []}, "drafters is empty"),
        ({"budgets": [4, 4]}, "twice"),
        ({"budgets": [0]}, "got 0"),
        ({"prompts": ["poems"]}, "poems"),
        ({"temperatures": [-1.0]}, "-1"),
        ({"limit": 0}, "limit"),
        ({"accuracy": True}, "decode_text"),
        ({"prompts": ["math", "other/math.jsonl"]}, "told apart"),
    ],
)
def test_plans_that_cannot_be_are_refused(target: Target, options: dict, message: str):
    with pytest.raises(ValueError, match=message):
        bench(target, **options)
    with pytest.raises(TypeError, match="speed"):
        bench(target, speed="high")


def test_the_run_refuses_a_busy_machine(target: Target, monkeypatch: pytest.MonkeyPatch):
    busy = MachineLoad((ProcessLoad(72, "trainer", 97.0),), (1.0, 1.0, 1.0))
    monkeypatch.setattr("dlmspec.bench.run.machine_load", lambda: busy)
    with pytest.raises(ValueError, match="trainer"):
        bench(target, allow_busy=False)
