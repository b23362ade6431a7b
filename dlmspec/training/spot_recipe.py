"""The recipe of a shipped drafter: training prompts, recorded decodes of its target, the order model.

The prompts come from training templates, documents and dialogues only; the held-out sets are never recorded.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

import dlmspec
from dlmspec.cli import main as command_line
from dlmspec.training.dialogues import Dialogue
from dlmspec.training.training_prompts import write_prompts


def make_drafter(target: str, *, dialogues: Sequence[Dialogue] = (), per_domain: int = 160) -> None:
    """The command line of a recipe; all stages resume where an earlier run stopped."""
    parser = argparse.ArgumentParser(description=f"Makes `{target}-spot`.")
    parser.add_argument("--target", default=target)
    parser.add_argument("--work", type=Path, default=Path(f".cache/{target}-spot"))
    parser.add_argument("--per-domain", type=int, default=per_domain)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--out", type=Path, default=Path(f"models/{target}-spot"))
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    prompts = arguments.work / "prompts.jsonl"
    if not prompts.exists():
        write_prompts(prompts, dlmspec.load(arguments.target).target, arguments.per_domain, 7, dialogues)
    records = {temperature: str(arguments.work / f"records-{temperature}") for temperature in ("0", "1")}
    shared = ["--threads", str(arguments.threads)]
    for command in (
        *(["record", arguments.target, "--prompts", str(prompts), "--temperature", temperature,
           "--max-new-tokens", "64", "--out", directory] for temperature, directory in records.items()),
        ["train-drafter", *records.values(), "--steps", str(arguments.steps), "--out", str(arguments.out),
         "--json", str(arguments.work / "report.json")],
    ):  # fmt: skip
        status = command_line([*command, *shared])
        if status:
            raise SystemExit(status)
