"""Tests of the benchmark.

They catch means of ratios in place of ratios of sums, wrong percentiles, keys that differ from the schema,
a speed printed beside a red parity check, an oracle that is timed, a busy machine that is measured, a
comparison that calls noise an improvement, a verdict on part of the cells, rows of a stopped run that are lost,
measured twice or taken from another run.
"""

import io
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from dlmspec.bench import BenchRow, exit_status, run_bench
from dlmspec.bench.busy import MachineLoad, ProcessLoad
from dlmspec.bench.compare import compare
from dlmspec.bench.gate import gated
from dlmspec.bench.measure import Decoders, Trial
from dlmspec.bench.plan import BenchPlan
from dlmspec.bench.plots import write_plots
from dlmspec.bench.report import SAME, BenchReport
from dlmspec.bench.rows import SPEED_KEYS, Label, Samples, aggregate
from dlmspec.bench.tables import bench_tables, verdict_table
from dlmspec.config import DecodeConfig
from dlmspec.decode import decode, reference_decode
from dlmspec.drafters import UNTRAINED
from dlmspec.models.target import Target
from dlmspec.request import DecodeOutput
from dlmspec.stats import DecodeStats

KEYS = [
    "target", "dtype", "block_length", "domain", "rule", "rule_args", "temperature", "noise", "cache", "seed",
    "drafter", "budget", "prompts", "tokens", "passes", "passes_reference", "passes_reference_store",
    "passes_ratio", "passes_ratio_folded", "mat", "tokens_per_pass", "accepted_histogram", "expected_steps",
    "seconds", "wall_ratio", "wall_ratio_store", "wall_ratio_low", "wall_ratio_high", "drafter_share",
    "exact_match", "accuracy", "samples",
]  # fmt: skip

LABEL = Label(
    "tiny", "float32", 4, "math", "low_confidence_static", {"denoising_steps": None}, 0.0, "step", "prefix",
    0, "confidence", 8,
)  # fmt: skip


def output(passes: int, seconds: float = 1.0, ids: tuple[int, ...] = (5, 6, 7)) -> DecodeOutput:
    """A made-up decode of `passes` passes in all, each of 2 steps."""
    denoising = passes - 1
    stats = DecodeStats(
        num_prefill_passes=1,
        num_denoising_passes=denoising,
        num_steps=2 * denoising,
        accepted=Counter({2: denoising}),
        expected_steps=1.5 * denoising,
        seconds=seconds,
        draft_seconds=seconds / 4,
    )
    return DecodeOutput(ids, "length", stats)


def trial(passes: int, folded: int, store: int, seconds: float = 1.0) -> Trial:
    """Reference seconds are 1 (folded) and 2 (with store passes)."""
    return Trial(output(passes, seconds), output(folded), output(store, 2.0))


def row(drafter: str, samples: tuple[int, ...], domain: str = "math", budget: int = 8) -> BenchRow:
    made = aggregate(replace(LABEL, drafter=drafter, domain=domain, budget=budget), [
        trial(passes, 40, 44) for passes in samples
    ], is_timed=True)  # fmt: skip
    assert made.samples.passes == samples
    return made


def test_ratios_are_ratios_of_sums():
    made = aggregate(LABEL, [trial(2, 10, 12), trial(30, 90, 98)], is_timed=True)
    assert (made.passes, made.passes_reference, made.passes_reference_store) == (32, 100, 110)
    assert made.passes_ratio == 110 / 32
    assert made.passes_ratio_folded == 100 / 32  # the mean of ratios is 4
    assert (made.mat, made.expected_steps) == (2.0, 1.5)
    assert made.accepted_histogram == {"2": 30}
    assert (made.tokens, made.tokens_per_pass) == (6, 6 / 32)
    assert (made.exact_match, made.accuracy) == (1.0, None)


def test_wall_ratio_is_the_median_with_its_percentiles():
    made = aggregate(LABEL, [trial(4, 8, 9, 1 / ratio) for ratio in (5, 1, 2, 3, 4, 6)], is_timed=True)
    assert made.wall_ratio == pytest.approx(3.5)
    assert (made.wall_ratio_low, made.wall_ratio_high) == (pytest.approx(2.0), pytest.approx(5.0))
    assert made.wall_ratio_store == pytest.approx(7.0)
    assert made.drafter_share == pytest.approx(0.25)
    assert made.seconds == pytest.approx(sum(1 / ratio for ratio in (5, 1, 2, 3, 4, 6)))


def test_what_is_not_timed_has_no_time():
    made = aggregate(LABEL, [trial(4, 8, 9)], is_timed=False)
    times = (
        "seconds",
        "wall_ratio",
        "wall_ratio_store",
        "wall_ratio_low",
        "wall_ratio_high",
        "drafter_share",
    )
    assert all(getattr(made, key) is None for key in times)
    assert made.passes_ratio == 9 / 4


def test_keys_are_those_of_the_schema():
    made = row("confidence", (4, 5)).as_dict()
    assert list(made) == KEYS
    assert json.loads(json.dumps(made)) == made


def test_the_gate_takes_every_speed_from_a_row_that_is_not_exact():
    wrong = Trial(output(4, ids=(5, 6, 8)), output(8), output(9))
    red = gated(aggregate(LABEL, [trial(4, 8, 9), wrong], is_timed=True))
    assert red.exact_match == 0.5
    assert all(getattr(red, key) is None for key in SPEED_KEYS)
    assert red.samples == Samples()
    green = row("none", (8, 8))
    assert gated(green) is green
    assert (exit_status([green]), exit_status([green, red])) == (0, 1)
    unlike = Trial(output(4), output(8), output(9, ids=(5,)))
    assert not unlike.is_identical  # the two references must agree too


def test_comparison_needs_more_than_luck():
    rival = tuple(range(20, 40))
    clear = [row("spot", tuple(passes - 5 for passes in rival)), row("chain", rival)]
    verdict = compare(clear, "spot", "chain")
    assert verdict.is_better
    assert verdict.ratio == pytest.approx(sum(rival) / (sum(rival) - 100))
    assert verdict.low < verdict.ratio < verdict.high
    assert not compare(clear, "chain", "spot").is_better
    noisy = tuple(passes + (9 if passes % 2 else -10) for passes in rival)
    assert not compare([row("spot", noisy), row("chain", rival)], "spot", "chain").is_better


def test_one_cell_much_worse_spoils_a_comparison():
    rows = [row("spot", (10, 10, 10)), row("chain", (20, 20, 20))]
    rows += [row("spot", (21, 21, 21), "code"), row("chain", (20, 20, 20), "code")]
    verdict = compare(rows, "spot", "chain")
    assert verdict.ratio == pytest.approx((2 * 20 / 21) ** 0.5)
    assert verdict.low > 1
    assert not verdict.is_better
    with pytest.raises(ValueError, match="share no"):
        compare(rows, "spot", "absent")
    with pytest.raises(ValueError, match="not exact"):
        compare([replace(rows[0], samples=Samples()), rows[1]], "spot", "chain")


def text_of(tables: list) -> str:
    console = Console(width=160, record=True, file=io.StringIO())
    for table in tables:
        console.print(table)
    return console.export_text()


def test_tables_mark_the_best_and_show_no_speed_of_a_red_row():
    rows = [row("confidence", (10, 10)), row("spot", (5, 5)), row("oracle", (2, 2))]
    rows.append(gated(replace(row("spiffy", (7, 7)), exact_match=0.5)))
    rows.append(row("confidence", (10, 10), "code"))
    tables = bench_tables(rows)
    assert len(tables) == 2
    lines = {match[1]: line for line in text_of(tables[:1]).splitlines() if (match := re.search(r"8 │ (\S+)", line))}
    assert "8.80x*" in lines["spot"]
    assert "4.40x*" not in lines["confidence"]
    assert lines["spot"].count("*") == lines["confidence"].count("*") + 2  # the other columns are tied
    assert "*" not in lines["oracle"]  # a ceiling, not a rival
    assert "22.00x" in lines["oracle"]
    assert "NO (50 %)" in lines["spiffy"]
    assert "x" not in lines["spiffy"]


def test_plots_are_written_per_temperature(tmp_path: Path):
    rows = [row(drafter, (passes,), domain, budget) for drafter, passes in (("spot", 5), ("oracle", 3))
            for domain in ("math", "code") for budget in (4, 8)]  # fmt: skip
    rows += [replace(made, temperature=1.0) for made in rows]
    rows.append(gated(replace(rows[0], temperature=2.0, exact_match=0.0)))
    paths = write_plots(rows, tmp_path / "plots")
    assert [path.name for path in paths] == [
        "passes-T0.png", "accepted-T0.png", "passes-T1.png", "accepted-T1.png"
    ]  # fmt: skip
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    assert sorted(path.name for path in paths) == sorted(path.name for path in (tmp_path / "plots").iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot write"):
        write_plots(rows[:1], tmp_path / "file" / "plots")


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
        assert list(made.as_dict()) == KEYS
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


def verdicts(rows: list[BenchRow]) -> list[list[str]]:
    """The cells of the table of verdicts, row by row."""
    table = verdict_table(rows)
    assert table is not None
    return [list(cells) for cells in zip(*(map(str, column.cells) for column in table.columns), strict=True)]


def test_verdicts_are_per_temperature_and_leave_oracles_out():
    better, worse = (20, 22, 24, 20), (30, 30, 31, 28)
    rows = [row("none", worse, budget=1), row("spot", better), row("confidence", worse), row("oracle", (5, 5, 5, 5))]
    rows += [replace(made, temperature=1.0) for made in (row("spot", worse), row("confidence", better))]
    found = verdicts(rows)
    assert [(cells[0], cells[1], cells[2], cells[5]) for cells in found] == [
        ("0", "spot", "confidence", "yes"),
        ("0", "confidence", "spot", "no"),
        ("1", "spot", "confidence", "no"),
        ("1", "confidence", "spot", "yes"),
    ]
    assert found[0][3].startswith("1.384 [")
    assert found[0][4].startswith("math/8: 1.384 [")
    assert verdict_table([row("none", worse), row("spot", better), row("oracle", better)]) is None


def test_a_verdict_names_the_cell_that_spoils_it():
    rows = [row("spot", (100, 100)), row("chain", (200, 200))]
    rows += [row("spot", (100, 100), "code"), row("chain", (98, 98), "code")]  # surely worse
    rows += [row("spot", (150, 50), "prose"), row("chain", (100, 80), "prose")]  # lower still, but by luck
    comparison = compare(rows, "spot", "chain")
    assert min(comparison.cells, key=lambda cell: cell.ratio).domain == "prose"
    assert comparison.worst.domain == "code"
    assert verdicts(rows)[0][4:] == ["code/8: 0.980 [0.980-0.980]", "no"]
    without = [made for made in rows if made.domain != "code"]
    assert compare(without, "spot", "chain").worst.domain == "prose"


def test_no_verdict_on_a_drafter_with_a_red_row():
    """Its other cells may well be better."""
    rows = [row("spot", (10, 11)), row("confidence", (20, 22))]
    rows += [gated(replace(row("spot", (9, 9), "code"), exact_match=0.5)), row("confidence", (20, 20), "code")]
    assert [cells[3:] for cells in verdicts(rows)] == [["-", "-", "not exact"]] * 2


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
