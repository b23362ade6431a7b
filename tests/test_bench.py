"""Rows, comparisons, tables and plots of the benchmark, on made-up decodes.

They catch means of ratios in place of ratios of sums, wrong percentiles, keys that differ from the schema, a speed
printed beside a red parity check, a comparison that calls noise an improvement, a verdict on part of the cells.
"""

import io
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from dlmspec.bench import BenchRow, exit_status
from dlmspec.bench.compare import compare
from dlmspec.bench.gate import gated
from dlmspec.bench.measure import Trial
from dlmspec.bench.plots import write_plots
from dlmspec.bench.rows import SPEED_KEYS, Label, Samples, aggregate
from dlmspec.bench.tables import bench_tables, verdict_table
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
