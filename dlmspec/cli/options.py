"""Flags that several commands share, and what they mean."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dlmspec.atomic import temporary_name, write_text
from dlmspec.presets import PRESETS, find_preset
from dlmspec.rules import RULES, CommitRule, LowConfidenceStatic, make_rule, rule_options
from dlmspec.step import CONFIDENCES

T = TypeVar("T")
SECONDS_BETWEEN_LINES = 60.0
RULE_OPTIONS = ("threshold", "gamma", "factor", "denoising_steps")


def listed(kind: Callable[[str], T]) -> Callable[[str], list[T]]:
    """An argparse type: comma-separated values."""

    def parse(text: str) -> list[T]:
        values = [kind(part.strip()) for part in text.split(",") if part.strip()]
        if not values:
            raise argparse.ArgumentTypeError(f"{text!r} lists nothing; give at least one value")
        return values

    parse.__name__ = f"comma-separated {kind.__name__}"
    return parse


def add_model(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    nargs = "?" if optional else None
    parser.add_argument("model", metavar="MODEL", nargs=nargs, help="shipped name, directory or hub id")
    parser.add_argument("--dtype", help="float32, bfloat16 or float64 (default: float32 on a CPU)")
    parser.add_argument("--device", help="cpu (default) or cuda")
    add_resolved(parser)
    parser.add_argument("--threads", type=int, help="CPU threads")


def add_resolved(parser: argparse.ArgumentParser) -> None:
    """What a checkpoint may leave open."""
    parser.add_argument("--block-length", type=int, help="if the checkpoint names none")
    parser.add_argument("--mask-id", type=int, help="if the checkpoint names none")


def model_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `load` takes beside the model."""
    return {name: getattr(arguments, name) for name in ("dtype", "device", "block_length", "mask_id")}


def add_rule(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """How a decode commits and draws: the options of `make_config` that all commands share."""
    names = f"{', '.join(RULES)}" + (" or all" if several else "")
    if several:
        parser.add_argument("--rules", type=listed(str), help=names + " (default: all, or the preset's)")
    else:
        parser.add_argument("--rule", help=names + " (default: low_confidence_static, or the preset's)")
    parser.add_argument("--threshold", type=float, help="of low_confidence_dynamic")
    parser.add_argument("--gamma", type=float, help="entropy bound of entropy_bounded, nats")
    parser.add_argument("--factor", type=float, help="of factor")
    parser.add_argument("--denoising-steps", type=int, help="steps per block where the rule has a schedule")
    parser.add_argument("--preset", help=f"another engine's decoder: {', '.join(PRESETS)}")
    parser.add_argument("--confidence", help=f"what rules order by: {', '.join(CONFIDENCES)}")
    parser.add_argument("--top-k", type=int, help="draw from the likeliest K tokens (0: from all)")
    parser.add_argument("--top-p", type=float, help="draw from the likeliest tokens of this mass (1: from all)")
    parser.add_argument("--noise", default="step", help="Gumbel noise keyed by step or by position")
    parser.add_argument("--cache", help="of full-attention families: none or dual")


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="PATH", help="write machine-readable results (- for stdout)")


def sampling_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of `make_config` that stand for how a token is drawn; what was not given is left to it."""
    names = ("preset", "confidence", "top_k", "top_p", "noise", "cache", "temperature")
    given = {name: getattr(arguments, name, None) for name in names}
    return {name: value for name, value in given.items() if value is not None and not isinstance(value, list)}


def rule_from(arguments: argparse.Namespace) -> CommitRule:
    """The rule, or the preset's, with the flags that were given.

    Raises ValueError if the rule or preset is unknown or does not take one of them.
    """
    given = given_rule_options(arguments)
    if arguments.rule is not None or arguments.preset is None:
        return make_rule(arguments.rule or LowConfidenceStatic.name, **given)
    rule = find_preset(arguments.preset).rule
    return make_rule(rule.name, **{**asdict(rule), **given})  # pyright: ignore[reportArgumentType]


def rules_from(arguments: argparse.Namespace) -> list[CommitRule]:
    """The listed rules, all by default; each takes those flags that it knows. The preset's own if none is listed.

    Raises ValueError if a rule is unknown or none of them takes a flag that was given.
    """
    if arguments.rules is None and arguments.preset is not None:
        return [rule_from(argparse.Namespace(**vars(arguments), rule=None))]
    names = list(RULES) if arguments.rules in (None, ["all"]) else arguments.rules
    given = given_rule_options(arguments)
    known = {name: rule_options(name) for name in names}
    for option in given:
        if not any(option in options for options in known.values()):
            takers = ", ".join(name for name in RULES if option in rule_options(name))
            flag = "--" + option.replace("_", "-")
            raise ValueError(f"{flag} is an option of {takers}, and not of {', '.join(names)}; leave it out")
    return [
        make_rule(name, **{option: value for option, value in given.items() if option in known[name]}) for name in names
    ]


def given_rule_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of rules whose flags were given."""
    values = {option: getattr(arguments, option) for option in RULE_OPTIONS}
    return {option: value for option, value in values.items() if value is not None}


def use_threads(arguments: argparse.Namespace) -> None:
    if arguments.threads is not None:
        if arguments.threads < 1:
            raise ValueError(f"--threads must be at least 1, got {arguments.threads}")
        torch.set_num_threads(arguments.threads)


def check_writable(path: str | None) -> None:
    """Raises ValueError now, before the work, if a result could not be written there."""
    if path in (None, "-"):
        return
    assert path is not None
    try:
        if Path(path).is_dir():
            raise IsADirectoryError("it is a directory")
        probe(temporary_name(Path(path)))
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror or error}; choose another place") from error


def check_directory(path: str | Path | None) -> None:
    """Raises ValueError now, before the work, if results could not be written into that directory; creates nothing."""
    if path is None:
        return
    place = Path(path)
    while not place.exists():
        place = place.parent
    try:
        if not place.is_dir():
            raise NotADirectoryError(f"{place} is a file")
        probe(temporary_name(place / "probe"))
    except OSError as error:
        raise ValueError(f"cannot write into {path}: {error.strerror or error}; choose another place") from error


def probe(path: Path) -> None:
    """Create and remove a file; never touches one that is there."""
    path.touch(exist_ok=False)
    path.unlink()


def write_json(path: str | None, content: Any) -> None:
    """Write by rename, or to stdout for `-`."""
    if path is None:
        return
    text = json.dumps(content, indent=1) + "\n"
    if path == "-":
        sys.stdout.write(text)
        return
    write_text(Path(path), text)


def console_for(json_path: str | None = None) -> Console:
    """Where tables go: stdout, or stderr when the JSON has it."""
    stream = sys.stderr if json_path == "-" else sys.stdout
    return Console(file=stream, highlight=False, width=None if stream.isatty() else 120)


@contextmanager
def progress_bar(total: int | None = None) -> Iterator[Callable[..., None]]:
    """A bar on stderr; call it with the steps done in all, a word on what is being done, and a total learnt late.

    Where stderr is no terminal, a line now and then.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    said = time.monotonic()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=total)

        def show(done: int, text: str, total: int | None = None) -> None:
            nonlocal said
            progress.update(task, completed=done, description=text, total=total)
            if not console.is_terminal and time.monotonic() - said > SECONDS_BETWEEN_LINES:
                said = time.monotonic()
                console.print(f"{done} of {progress.tasks[0].total or '?'}: {text}", markup=False, highlight=False)

        yield show
