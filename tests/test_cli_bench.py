"""`dlmspec bench` on the command line, run in process.

Catches: rows of a stopped run that are lost, measured twice or mixed with another run's, an interrupt that lies about
what is on disk, verdicts that need more than the rows kept.
"""

import json
import re

from dlmspec.bench.measure import Meter
from dlmspec.cli import main


def run(capsys, *argv: str) -> tuple[int, str, str]:
    code = main(list(argv))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_bench_writes_rows_and_tables(capsys, tmp_path):
    path = tmp_path / "bench.json"
    code, out, _ = run(
        capsys, "bench", "pocket", "--prompts", "math", "--limit", "2", "--budgets", "4",
        "--drafters", "confidence-tree", "--max-new-tokens", "16", "--allow-busy",
        "--json", str(path), "--plots", str(tmp_path / "plots"),
    )  # fmt: skip
    assert code == 0
    (row,) = json.loads(path.read_text())["rows"]
    assert row["exact_match"] == 1.0
    assert row["passes_ratio"] > 1
    assert list((tmp_path / "plots").glob("*.png"))
    assert "confidence-tree" in out


BENCH = (
    "bench", "pocket", "--prompts", "math", "--limit", "1", "--temperature", "0,1", "--budgets", "3",
    "--drafters", "confidence,confidence-tree", "--max-new-tokens", "8", "--allow-busy",
)  # fmt: skip


class Interrupter:
    """Decodes like `Meter.trials`, notes what, and raises KeyboardInterrupt in place of configuration `after` + 1."""

    def __init__(self, after: int = 99) -> None:
        self.after, self.original = after, Meter.trials
        self.seen: list[tuple[float, str]] = []

    def __call__(self, meter, cell, configuration, references, *, is_timed):
        if len(self.seen) == self.after:
            raise KeyboardInterrupt
        self.seen.append((cell.config.sampling.temperature, configuration[0].name))
        return self.original(meter, cell, configuration, references, is_timed=is_timed)


def bench_with(capsys, monkeypatch, spy: Interrupter, *argv: str) -> tuple[int, str, str]:
    """A `bench` of one commit whose trials go through `spy`."""
    with monkeypatch.context() as patch:
        patch.setattr("dlmspec.bench.measure.Meter.trials", lambda *given, is_timed: spy(*given, is_timed=is_timed))
        patch.setattr("dlmspec.provenance.git_commit", lambda: "abc")
        patch.setattr("sys.argv", ["dlmspec", *argv])
        return run(capsys, *argv)


def test_a_bench_that_is_stopped_goes_on_where_it_was(capsys, monkeypatch, tmp_path):
    path = tmp_path / "bench.json"
    argv = (*BENCH, "--json", str(path))
    code, _, err = bench_with(capsys, monkeypatch, Interrupter(after=3), *argv)
    assert (code, err.count("\n")) == (130, 1)
    assert f"interrupted: 3 rows are kept in {path}" in err
    stopped = json.loads(path.read_text())
    assert (len(stopped["rows"]), stopped["meta"]["complete"]) == (3, False)
    rest = Interrupter()
    code, out, err = bench_with(capsys, monkeypatch, rest, *argv)
    assert (code, err) == (0, "")
    assert rest.seen == [(1.0, "confidence-tree")]
    assert "3 rows of a run that was stopped are kept" in out
    assert "not exact" not in out
    for drafter, against in (("confidence", "confidence-tree"), ("confidence-tree", "confidence")):
        for temperature in "01":
            assert re.search(rf"{temperature} │ +{drafter} │ +{against} │.* │ +(yes|no) ", out), "verdicts on kept rows"
    whole = json.loads(path.read_text())
    assert whole["meta"]["complete"] is True
    assert whole["rows"][:3] == stopped["rows"]
    assert [(row["temperature"], row["drafter"]) for row in whole["rows"]] == [
        (temperature, drafter) for temperature in (0.0, 1.0) for drafter in ("confidence", "confidence-tree")
    ]
    again = Interrupter()
    assert bench_with(capsys, monkeypatch, again, *argv)[0] == 0
    assert len(again.seen) == 4, "a complete report is measured anew"


def test_a_stopped_bench_of_another_plan_is_measured_anew(capsys, monkeypatch, tmp_path):
    path = tmp_path / "bench.json"
    bench_with(capsys, monkeypatch, Interrupter(after=1), *BENCH, "--json", str(path))
    left = path.read_text()
    other = (*BENCH, "--seed", "1", "--json", str(path))
    code, out, err = bench_with(capsys, monkeypatch, Interrupter(after=0), *other)
    assert (code, err.count("\n")) == (130, 2)
    assert f"the unfinished report in {path} is of another run (argv); everything is measured anew" in err
    assert err.endswith("interrupted: nothing was written\n")
    assert path.read_text() == left
    anew = Interrupter()
    code, out, err = bench_with(capsys, monkeypatch, anew, *other)
    assert (code, err.count("\n"), len(anew.seen)) == (0, 1, 4)
    assert "are kept" not in out
    assert {row["seed"] for row in json.loads(path.read_text())["rows"]} == {1}


def test_an_interrupt_between_a_row_and_its_file_loses_nothing(capsys, monkeypatch, tmp_path):
    def interrupted(report, row):
        report.rows.append(row)
        raise KeyboardInterrupt

    monkeypatch.setattr("dlmspec.bench.report.BenchReport.add", interrupted)
    path = tmp_path / "bench.json"
    code, _, err = run(capsys, *BENCH, "--json", str(path))
    assert (code, "1 rows are kept" in err) == (130, True)
    assert len(json.loads(path.read_text())["rows"]) == 1
