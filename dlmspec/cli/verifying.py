"""`verify`: is speculative decoding exact on this machine?"""

import argparse
from collections import defaultdict
from dataclasses import asdict

from rich.table import Table

from dlmspec.bench.prompt_sets import domain_name, encode_prompts, load_prompts
from dlmspec.cli.options import (
    add_json,
    add_model,
    add_rule,
    check_writable,
    console_for,
    listed,
    model_options,
    progress_bar,
    rules_from,
    sampling_options,
    use_threads,
    write_json,
)
from dlmspec.config import DecodeConfig
from dlmspec.divergence import Divergence, measure_divergence
from dlmspec.engine import LanguageModel, load
from dlmspec.ladder import climb
from dlmspec.parity import ParityCheck, ParityReport
from dlmspec.provenance import build_meta


def register(commands) -> None:
    parser = commands.add_parser("verify", help="compare speculative ids with the reference decoder's")
    add_model(parser, optional=True)
    parser.add_argument(
        "--tiny", type=int, metavar="N", help="instead of MODEL, N decodes of random tiny models of all kinds"
    )
    parser.add_argument("--prompts", type=listed(str), default=["math", "code", "prose"])
    parser.add_argument("--limit", type=int, default=4, help="prompts per domain")
    parser.add_argument("--temperature", type=listed(float), default=[0.0, 1.0])
    parser.add_argument("--drafters", type=listed(str), default=["auto", "confidence-tree", "random"])
    parser.add_argument("--budgets", type=listed(int), default=[4, 16])
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--divergence", action="store_true",
        help="count differences, beside those of the reference in batches: for dtypes without a promise",
    )  # fmt: skip
    add_rule(parser, several=True)
    add_json(parser)
    parser.set_defaults(run=run_verify)


def run_verify(arguments: argparse.Namespace) -> int:
    """Exit code 1 if any decode differs."""
    check_writable(arguments.json)
    use_threads(arguments)
    if arguments.tiny is not None:
        return verify_tiny(arguments)
    if arguments.model is None:
        raise ValueError("verify needs a MODEL, or --tiny N")
    lm = load(arguments.model, **model_options(arguments))
    configs = [
        lm.config(
            max_new_tokens=arguments.max_new_tokens,
            rule=rule,
            seed=arguments.seed,
            **{**sampling_options(arguments), "temperature": temperature},
        )
        for rule in rules_from(arguments)
        for temperature in arguments.temperature
    ]
    prompts = {
        domain_name(name): encode_prompts(
            load_prompts(name, arguments.limit), lm.encode, lm.target, arguments.max_new_tokens
        )
        for name in arguments.prompts
    }
    if arguments.divergence:
        return report_divergence(arguments, lm, configs, prompts)
    # by rule: `auto` is another drafter under another rule
    drafters = {config.rule: [lm.drafter(name, config.rule) for name in arguments.drafters] for config in configs}
    per_config = 1 + len(arguments.drafters) * len(arguments.budgets)
    total = len(configs) * per_config * sum(len(rows) for rows in prompts.values())
    rows, done = [], 0
    with progress_bar(total) as show:

        def advance(count: int) -> None:
            nonlocal done
            done += count
            show(done, "decodes compared")

        for domain, ids in prompts.items():
            for config in configs:
                check = ParityCheck(lm.target, drafters[config.rule], arguments.budgets, advance)
                rows.extend(check.run(domain, ids, [config]))
    report = ParityReport(tuple(rows))
    console_for(arguments.json).print(parity_table(report))
    target = {"target": arguments.model, "dtype": str(lm.target.dtype).removeprefix("torch.")}
    content = [{**target, **asdict(row), "exact_match": row.exact_match} for row in rows]
    write_json(arguments.json, {"schema": 1, "meta": build_meta(lm.target.device), "rows": content})
    return 0 if report.exact_match == 1.0 else 1


def verify_tiny(arguments: argparse.Namespace) -> int:
    """Random short decodes of every family, rule, temperature and cache by all drafters; exit code 1 if one differs."""
    if arguments.tiny < 1:
        raise ValueError(f"--tiny must be at least 1, got {arguments.tiny}")
    console = console_for(arguments.json)
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    differing = []
    with progress_bar(arguments.tiny) as show:
        for outcome in climb(arguments.tiny, arguments.seed, lambda done: show(min(done, arguments.tiny), "decodes")):
            counts[outcome.case.family][0] += outcome.decodes - len(outcome.differing)
            counts[outcome.case.family][1] += outcome.decodes
            if outcome.differing:
                differing.append(outcome)
    same, decodes = (sum(cell[i] for cell in counts.values()) for i in (0, 1))
    table = Table(title=f"{same} of {decodes} decodes of random tiny models identical to the reference")
    table.add_column("family")
    table.add_column("identical", justify="right")
    for family, cell in sorted(counts.items()):
        table.add_row(family, share(*cell))
    console.print(table)
    for outcome in differing[:3]:
        console.print(f"differs: {', '.join(outcome.differing)} in {outcome.case}", markup=False)
    rows = [{"family": family, "decodes": cell[1], "identical": cell[0]} for family, cell in sorted(counts.items())]
    write_json(arguments.json, {"schema": 1, "meta": build_meta(), "rows": rows})
    return 1 if differing else 0


def report_divergence(arguments: argparse.Namespace, lm: LanguageModel, configs: list[DecodeConfig],
                      prompts: dict[str, list[list[int]]]) -> int:  # fmt: skip
    """How often ids differ by dtype and shape; always exit code 0, as nothing was promised."""
    every = [row for rows in prompts.values() for row in rows]
    found: list[tuple[str, Divergence]] = []
    with progress_bar(len(configs)) as show:
        for done, config in enumerate(configs):
            show(done, f"{config.rule.name} T={config.sampling.temperature:g}")
            drafters = [(lm.drafter(name, config.rule), budget) for name in arguments.drafters
                        for budget in arguments.budgets]  # fmt: skip
            found += [(config.rule.name, row) for row in measure_divergence(lm.target, every, config, drafters)]
    dtype = str(lm.target.dtype).removeprefix("torch.")
    table = Table(title=f"decodes that differ from the reference alone, {dtype}")
    for name in ("rule", "T", "decoded by"):
        table.add_column(name)
    for name in ("decodes", "differ", "per 1,000 tokens", "margins, nats"):
        table.add_column(name, justify="right")
    for rule, row in found:
        margins = ", ".join("–" if margin is None else f"{margin:.3f}" for margin in row.margins[:6])
        counts = (str(row.decodes), str(len(row.margins)), f"{row.per_thousand:.2f}")
        table.add_row(rule, f"{row.temperature:g}", row.name, *counts, margins)
    console_for(arguments.json).print(table)
    rows = [{"target": arguments.model, "dtype": dtype, "rule": rule, **row.as_dict()} for rule, row in found]
    write_json(arguments.json, {"schema": 1, "meta": build_meta(lm.target.device), "rows": rows})
    return 0


def parity_table(report: ParityReport) -> Table:
    """Identical decodes by rule and temperature, all drafters and budgets together; then by drafter."""
    exact = sum(row.identical for row in report.rows)
    table = Table(title=f"{exact} of {report.decodes} decodes identical to the reference ({report.exact_match:.2%})")
    table.add_column("rule")
    table.add_column("T", justify="right")
    drafters = list(dict.fromkeys(row.drafter for row in report.rows))
    for name in drafters:
        table.add_column(name, justify="right")
    counts: dict[tuple, dict[str, list[int]]] = defaultdict(lambda: {name: [0, 0] for name in drafters})
    for row in report.rows:
        cell = counts[row.rule, row.temperature][row.drafter]
        cell[0] += row.identical
        cell[1] += row.decodes
    for (rule, temperature), cells in counts.items():
        table.add_row(rule, f"{temperature:g}", *(share(same, decodes) for same, decodes in cells.values()))
    return table


def share(same: int, decodes: int) -> str:
    """`same/decodes`, red if they differ, a dash if nothing was compared."""
    if not decodes:
        return "–"
    return f"{same}/{decodes}" if same == decodes else f"[red]{same}/{decodes}[/red]"
