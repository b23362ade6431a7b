"""The command line: `dlmspec COMMAND …`. Bad input ends with one line on stderr and exit code 2."""

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from rich.console import Console

from dlmspec import __version__
from dlmspec.cli import benching, doctor, generating, training, verifying

COMMANDS = (generating, verifying, benching, training, doctor)


class LineParser(argparse.ArgumentParser):
    """A parser whose errors are one line like all others."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see `{self.prog} --help`")


def build_parser() -> argparse.ArgumentParser:
    """All commands with their flags."""
    parser = LineParser(
        prog="dlmspec", description="Lossless speculative decoding for masked-diffusion language models."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in COMMANDS:
        module.register(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    try:
        arguments = build_parser().parse_args(argv)
        return arguments.run(arguments)
    except KeyboardInterrupt as interrupt:
        return fail(": ".join(["interrupted", *map(str, interrupt.args)]), 130)
    except (ValueError, OSError) as error:
        return fail(str(error), 2)


def fail(message: str, code: int) -> int:
    """One line on stderr."""
    line = " ".join(message.split())
    Console(stderr=True, soft_wrap=True, highlight=False, markup=False).print(f"dlmspec: {line}")
    return code


if __name__ == "__main__":
    sys.exit(main())
