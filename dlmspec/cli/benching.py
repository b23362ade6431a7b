"""`bench`: passes and seconds against the reference, behind the parity gate; `--stale` reports what drafters read."""

import argparse
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from dlmspec.bench import exit_status, run_bench
from dlmspec.bench.busy import machine_load
from dlmspec.bench.plots import write_plots
from dlmspec.bench.report import BenchReport
from dlmspec.bench.stale import stale_report
from dlmspec.bench.tables import bench_tables, stale_table, verdict_table
from dlmspec.cli.options import (
    add_json,
    add_model,
    add_rule,
    check_directory,
    check_writable,
    console_for,
    listed,
    model_options,
    progress_bar,
    rule_from,
    sampling_options,
    use_threads,
    write_json,
)
from dlmspec.drafters.spot import SpotDrafter
from dlmspec.engine import LanguageModel, load
from dlmspec.provenance import build_meta


def register(commands) -> None:
    parser = commands.add_parser("bench", help="measure passes and seconds against the reference")
    add_model(parser)
    parser.add_argument("--prompts", type=listed(str), default=["math", "code", "prose"])
    parser.add_argument("--limit", type=int, default=20, help="prompts per domain")
    parser.add_argument("--temperature", type=listed(float), default=[0.0])
    parser.add_argument("--drafters", type=listed(str), default=["confidence", "confidence-tree", "auto"])
    parser.add_argument("--budgets", type=listed(int), default=[4, 8, 16, 32])
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--accuracy", action="store_true", help="exact-answer accuracy where prompts have answers")
    parser.add_argument("--stale", action="store_true", help="report stale tokens and next-commit accuracy instead")
    parser.add_argument("--plots", metavar="DIR", help="draw passes over budgets")
    parser.add_argument("--allow-busy", action="store_true", help="measure although other processes run")
    parser.add_argument("--passes-only", action="store_true", help="count passes, measure no times: much faster")
    add_rule(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Exit code 1 if a decode differs from the reference: then that row shows no speed."""
    check_writable(arguments.json)
    check_plots(arguments.plots)
    use_threads(arguments)
    lm = load(arguments.model, **model_options(arguments))
    if arguments.stale:
        return report_stale(arguments, lm)
    console = console_for(arguments.json)
    report = BenchReport(report_path(arguments.json), build_meta(lm.target.device, machine_load().as_dict()))
    announce(report, console)
    try:
        measure(arguments, lm, report)
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt(keep(report)) from interrupt
    report.write(complete=True)
    if arguments.json == "-":
        write_json("-", report.content(complete=True))
    for table in [*bench_tables(report.rows), verdict_table(report.rows)]:
        if table is not None:
            console.print(table)
    if arguments.plots:
        for path in write_plots(report.rows, Path(arguments.plots)):
            console.print(f"wrote {path}")
    return exit_status(report.rows)


def report_path(json_path: str | None) -> Path | None:
    """The file of the report, if it is one."""
    return None if json_path in (None, "-") else Path(json_path)


def announce(report: BenchReport, console: Console) -> None:
    """Say what becomes of the rows that a stopped run left; that they go is said on stderr."""
    if report.rows:
        console.print(f"{len(report.rows)} rows of a run that was stopped are kept")
    if report.differs:
        reason = f"the unfinished report in {report.path} is of another run ({', '.join(report.differs)})"
        stderr = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
        stderr.print(f"dlmspec: {reason}; everything is measured anew")


def keep(report: BenchReport) -> str:
    """Make sure of the rows of a run that is being stopped; says in one line where they are."""
    if report.path is None or not report.rows:
        return "nothing was written"
    report.write(complete=False)  # the interrupt may have come between a row and its file
    return f"{len(report.rows)} rows are kept in {report.path}; the same command goes on from there"


def measure(arguments: argparse.Namespace, lm: LanguageModel, report: BenchReport) -> None:
    """Add to the report what it lacks."""
    config = lm.config(rule=rule_from(arguments), **sampling_options(arguments))
    with progress_bar() as show:
        run_bench(
            target=lm.target,
            encode=lm.encode,
            decode_text=lm.decode_text,
            make_drafter=lambda name: lm.drafter(name, config.rule),
            model_name=arguments.model,
            accuracy=arguments.accuracy,
            allow_busy=arguments.allow_busy,
            progress=lambda done, total, text: show(done, text, total),
            kept=tuple(report.rows),
            on_row=report.add,
            prompts=arguments.prompts,
            drafters=arguments.drafters,
            budgets=arguments.budgets,
            temperatures=arguments.temperature,
            rule=config.rule,
            sampling=config.sampling,
            noise=config.noise,
            cache=config.cache,
            passes_only=arguments.passes_only,
            limit=arguments.limit,
            max_new_tokens=arguments.max_new_tokens,
            seed=arguments.seed,
        )


def check_plots(directory: str | None) -> None:
    """Raises ValueError now, before the work, if the plots could not be drawn or written."""
    check_directory(directory)
    if directory is not None and find_spec("matplotlib") is None:
        raise ValueError("--plots needs matplotlib; install dlmspec[bench]")


def report_stale(arguments: argparse.Namespace, lm: LanguageModel) -> int:
    """How often a stale token is the committed one, and how often the next position is predicted."""
    config = lm.config(rule=rule_from(arguments), **sampling_options(arguments))
    drafter = lm.drafter("auto", config.rule)
    spot = drafter if isinstance(drafter, SpotDrafter) else None
    with progress_bar() as show:
        rows = stale_report(
            target=lm.target,
            encode=lm.encode,
            prompts=arguments.prompts,
            temperatures=tuple(arguments.temperature),
            rule=config.rule,
            sampling=config.sampling,
            noise=config.noise,
            limit=arguments.limit,
            max_new_tokens=arguments.max_new_tokens,
            seed=arguments.seed,
            order=spot and (lambda evidence, step: spot.forecast(evidence, step).odds),
            progress=lambda done, total, text: show(done, text, total),
        )
    console_for(arguments.json).print(stale_table(rows))
    write_json(
        arguments.json, {"schema": 1, "meta": build_meta(lm.target.device), "rows": [row.as_dict() for row in rows]}
    )
    return 0
