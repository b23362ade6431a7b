"""`record` and `train-drafter`: make a drafter for a target."""

import argparse
from pathlib import Path

from rich.table import Table

from dlmspec.bench.prompt_sets import encode_prompts, load_prompts
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
from dlmspec.engine import load
from dlmspec.order.model import load_order_model
from dlmspec.provenance import build_meta
from dlmspec.training.drafter import DrafterPlan, train_drafter
from dlmspec.training.record import RecordJob, read_records


def register(commands) -> None:
    parser = commands.add_parser("record", help="record exact decodes to train a drafter on")
    add_model(parser)
    parser.add_argument("--prompts", required=True, help="a .jsonl file of training prompts (or a domain)")
    parser.add_argument("--out", type=Path, required=True, help="directory; an interrupted recording goes on there")
    parser.add_argument("--limit", type=int, help="prompts")
    parser.add_argument("--temperature", type=listed(float), default=[0.0, 1.0])
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    add_rule(parser)
    parser.set_defaults(run=run_record)
    parser = commands.add_parser("train-drafter", help="train an order model on a recording")
    parser.add_argument("records", type=Path, metavar="RECORDS", nargs="+", help="directories of recordings")
    parser.add_argument("--out", type=Path, required=True, help="drafter directory")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--start", type=Path, help="drafter directory to start from")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=0)
    add_json(parser)
    parser.set_defaults(run=run_train)


def run_record(arguments: argparse.Namespace) -> int:
    check_directory(arguments.out)
    use_threads(arguments)
    lm = load(arguments.model, **model_options(arguments))
    configs = [
        lm.config(
            max_new_tokens=arguments.max_new_tokens,
            rule=rule_from(arguments),
            seed=arguments.seed,
            early_stop=False,
            **{**sampling_options(arguments), "temperature": temperature},
        )
        for temperature in arguments.temperature
    ]
    chosen = load_prompts(arguments.prompts, arguments.limit)
    prompts = encode_prompts(chosen, lm.encode, lm.target, arguments.max_new_tokens)
    with progress_bar(len(prompts) * len(configs)) as show:
        job = RecordJob(lm.target, prompts, configs, arguments.out, lambda done, total: show(done, "prompts recorded"))
        steps = job.run()
    console_for().print(f"{steps} steps of {len(prompts) * len(configs)} decodes in {arguments.out}")
    return 0


def run_train(arguments: argparse.Namespace) -> int:
    check_writable(arguments.json)
    check_directory(arguments.out)
    use_threads(arguments)
    plan = DrafterPlan(steps=arguments.steps, batch=arguments.batch, seed=arguments.seed)
    start = load_order_model(arguments.start) if arguments.start else None
    records = read_records(*arguments.records)
    with progress_bar(plan.steps) as show:
        report = train_drafter(
            records, arguments.out, plan, start=start,
            progress=lambda step, total, loss: show(step, f"training, loss {loss:.3f}"),
        )  # fmt: skip
    console = console_for(arguments.json)
    table = Table(title=f"held-out next-commit accuracy ({report['recorded_steps']} recorded steps)")
    for name in ("staleness", "order model", "stale-confidence order", "stale token right", "its log loss",
                 "by the table", "examples"):  # fmt: skip
        table.add_column(name, justify="right")
    for staleness, row in report["next_commit"].items():
        names = ("model", "confidence", "token", "token_loss", "token_loss_table")
        shares = [f"{row[name]:.3f}" for name in names]
        table.add_row(staleness, *shares, str(row["examples"]))
    console.print(table)
    console.print(replay_table(report["steps_per_pass"]))
    write_json(arguments.json, {"schema": 1, "meta": build_meta(), "rows": [report]})
    return 0


def replay_table(rows: list[dict]) -> Table:
    """Steps per pass on held-out recorded decodes: realised, and in brackets what the drafter expected."""
    budgets = sorted({row["budget"] for row in rows})
    table = Table(title="steps per pass within a block, held-out recordings (expected)")
    for name in ("drafter", "T", *(f"budget {budget}" for budget in budgets)):
        table.add_column(name, justify="right")
    for drafter, sampled in dict.fromkeys((row["drafter"], row["sampled"]) for row in rows):
        own = {row["budget"]: row for row in rows if (row["drafter"], row["sampled"]) == (drafter, sampled)}
        cells = [f"{own[b]['realised_steps']:.2f} ({own[b]['expected_steps']:.2f})" for b in budgets]
        table.add_row(drafter, "> 0" if sampled else "0", *cells)
    return table
