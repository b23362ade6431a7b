"""Makes `pocket-spot`: training prompts, recorded decodes of `pocket`, the order model.

    python models/pocket-spot/recipe.py            # all three, resuming where an earlier run stopped

The prompts come from training templates and training documents only; the held-out sets are never recorded.
"""

import argparse
from pathlib import Path

import torch

from dlmspec.cli import main as dlmspec
from dlmspec.training.training_prompts import write_prompts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="pocket")
    parser.add_argument("--work", type=Path, default=Path(".cache/pocket-spot"))
    parser.add_argument("--corpus", type=Path, default=Path(".cache/pocket"))
    parser.add_argument("--per-domain", type=int, default=160)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--out", type=Path, default=Path("models/pocket-spot"))
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    prompts = arguments.work / "prompts.jsonl"
    if not prompts.exists():
        write_prompts(prompts, arguments.corpus, arguments.per_domain, seed=7)
    records = {temperature: str(arguments.work / f"records-{temperature}") for temperature in ("0", "1")}
    shared = ["--threads", str(arguments.threads)]
    for command in (
        *(["record", arguments.target, "--prompts", str(prompts), "--temperature", temperature,
           "--max-new-tokens", "64", "--out", directory] for temperature, directory in records.items()),
        ["train-drafter", *records.values(), "--steps", str(arguments.steps), "--out", str(arguments.out),
         "--json", str(arguments.work / "report.json")],
    ):  # fmt: skip
        status = dlmspec([*command, *shared])
        if status:
            raise SystemExit(status)


if __name__ == "__main__":
    main()
