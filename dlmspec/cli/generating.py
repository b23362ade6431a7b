"""`generate` and `demo`: answers, and the table that shows what speculation saved."""

import argparse
from collections.abc import Sequence

from rich.table import Table

from dlmspec.bench.prompt_sets import encode_prompts, load_prompts
from dlmspec.cli.options import (
    add_json,
    add_model,
    add_rule,
    check_writable,
    console_for,
    model_options,
    progress_bar,
    rule_from,
    sampling_options,
    use_threads,
    write_json,
)
from dlmspec.decode import decode, reference_decode
from dlmspec.engine import DEFAULT_BUDGET, Generation, LanguageModel, Prompt, load
from dlmspec.provenance import build_meta
from dlmspec.request import DecodeOutput

DEMO_PROMPTS = {"math": 2, "code": 1, "prose": 1}
DEMO_BUDGETS = (DEFAULT_BUDGET, 16)
Decoded = DecodeOutput | Generation


def register(commands) -> None:
    parser = commands.add_parser("generate", help="answer a prompt")
    add_model(parser)
    parser.add_argument("prompt", metavar="PROMPT")
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, help="0 (default) takes the likeliest token")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stop-strings", action="append", default=[], metavar="TEXT", help="end here; repeatable")
    parser.add_argument("--drafter", default="auto")
    parser.add_argument("--budget", type=int, default=DEFAULT_BUDGET)
    parser.add_argument("--chat", action="store_true", help="the prompt is a message, put into the chat template")
    parser.add_argument("--compare", action="store_true", help="decode by the reference too, and compare")
    add_rule(parser)
    add_json(parser)
    parser.set_defaults(run=run_generate)
    parser = commands.add_parser("demo", help="real prompts, by the reference and by speculation")
    add_model(parser)
    parser.add_argument("--max-new-tokens", type=int, default=96)
    parser.add_argument("--temperature", type=float, default=0.0)
    add_json(parser)
    parser.set_defaults(run=run_demo)


def run_generate(arguments: argparse.Namespace) -> int:
    check_writable(arguments.json)
    use_threads(arguments)
    lm = load(arguments.model, **model_options(arguments))
    options = {
        "max_new_tokens": arguments.max_new_tokens,
        "rule": rule_from(arguments),
        "seed": arguments.seed,
        **sampling_options(arguments),
    }
    prompt = [{"role": "user", "content": arguments.prompt}] if arguments.chat else arguments.prompt
    out = lm.generate(
        prompt, drafter=arguments.drafter, budget=arguments.budget, stop_strings=arguments.stop_strings,
        **options,
    )  # fmt: skip
    console = console_for(arguments.json)
    if arguments.json != "-":
        console.print(out.text, markup=False)
    console.print(
        f"[dim]{len(out.token_ids)} tokens, {out.stats.num_passes} target passes, "
        f"{out.stats.mat:.2f} steps per pass, {out.stats.seconds:.2f} s, drafter {out.drafter}, {out.dtype}, "
        f"finished by {out.finish_reason}[/dim]"
    )
    row = {
        "text": out.text,
        "token_ids": list(out.token_ids),
        "finish_reason": out.finish_reason,
        "drafter": out.drafter,
        "dtype": out.dtype,
        **out.stats.as_dict(),
    }
    identical = True
    if arguments.compare:
        name, text, reference = decode_by_reference(lm, prompt, arguments.stop_strings, options)
        identical = reference.token_ids == out.token_ids
        console.print(text, markup=False)
        table = comparison_table()
        add_row(table, "", reference, name, reference)
        add_row(table, "", reference, out.drafter, out)
        console.print(table)
        row["identical"] = identical
    write_json(arguments.json, {"schema": 1, "meta": build_meta(lm.target.device), "rows": [row]})
    return 0 if identical else 1


def decode_by_reference(lm: LanguageModel, prompt: Prompt, stop_strings: Sequence[str],
                        options: dict) -> tuple[str, str, Decoded]:  # fmt: skip
    """What to call it, its text and itself. Only the folded one ends at a stop string, so there it is the folded."""
    if stop_strings:
        out = lm.generate(prompt, drafter="none", stop_strings=stop_strings, **options)
        return "reference, folded", out.text, out
    config = lm.config(**options)
    output = reference_decode(lm.target, lm.encode(prompt), config, store_passes=True)
    return "reference", lm.decode_text(output.token_ids), output


def comparison_table(title: str | None = None) -> Table:
    table = Table(title=title)
    table.add_column("prompt")
    table.add_column("decoder")
    for name in ("passes", "steps / pass (MAT)", "seconds", "identical"):
        table.add_column(name, justify="right")
    return table


def add_row(table: Table, prompt: str, reference: Decoded, name: str, output: Decoded) -> None:
    """One decoder's row; identical if its ids are the reference's."""
    stats = output.stats
    table.add_row(
        prompt, name, str(stats.num_passes), f"{stats.mat:.2f}", f"{stats.seconds:.2f}",
        "yes" if output.token_ids == reference.token_ids else "NO",
    )  # fmt: skip


def run_demo(arguments: argparse.Namespace) -> int:
    """Decode a few held-out prompts by the reference and by the drafter that fits; print answers and table."""
    check_writable(arguments.json)
    use_threads(arguments)
    console = console_for(arguments.json)
    lm = load(arguments.model, **model_options(arguments))
    config = lm.config(max_new_tokens=arguments.max_new_tokens, temperature=arguments.temperature)
    prompts = [(domain, prompt) for domain, count in DEMO_PROMPTS.items() for prompt in load_prompts(domain, count)]
    encoded = encode_prompts([prompt for _, prompt in prompts], lm.encode, lm.target, arguments.max_new_tokens)
    names = list(dict.fromkeys(["confidence-tree", lm.drafter("auto", config.rule).name]))
    decoders = [(name, budget) for name in names for budget in DEMO_BUDGETS]
    table, rows, exact = comparison_table("reference (with store passes) against speculation"), [], True
    with progress_bar(len(prompts) * len(decoders)) as show:
        done = 0
        for (domain, prompt), ids in zip(prompts, encoded, strict=True):
            reference = reference_decode(lm.target, ids, config, store_passes=True)
            outputs = {"reference": reference}
            for name, budget in decoders:
                done += 1
                show(done, f"{domain}: {name}, {budget} states per pass")
                drafter = lm.drafter(name, config.rule)
                outputs[f"{name}, budget {budget}"] = decode(lm.target, ids, config, drafter=drafter, budget=budget)
            console.rule(f"{domain}: {prompt.id}")
            console.print(prompt.prompt, style="dim", markup=False, end="")
            console.print(lm.decode_text(reference.token_ids), markup=False)
            for name, output in outputs.items():
                add_row(table, domain if name == "reference" else "", reference, name, output)
                identical = output.token_ids == reference.token_ids
                exact &= identical
                rows.append({"prompt": prompt.id, "decoder": name, "identical": identical, **output.stats.as_dict()})
            table.add_section()
    console.print(table)
    write_json(arguments.json, {"schema": 1, "meta": build_meta(lm.target.device), "rows": rows})
    return 0 if exact else 1
