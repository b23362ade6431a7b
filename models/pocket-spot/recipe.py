"""Makes `pocket-spot`: training prompts, recorded decodes of `pocket`, the order model.

    python models/pocket-spot/recipe.py            # all three, resuming where an earlier run stopped

The prompts come from training templates and training documents only; the held-out sets are never recorded.
"""

import argparse
import json
import random
from pathlib import Path

import torch

from dlmspec.cli import main as dlmspec
from dlmspec.training.batches import DOMAINS
from dlmspec.training.math_problems import prompt_text, sample_problem
from dlmspec.training.target import Corpus

PROMPT_TOKENS = (48, 128)


def write_prompts(path: Path, work: Path, per_domain: int, seed: int) -> None:
    """`per_domain` training prompts of each domain, interleaved, as JSONL."""
    corpus, rng = Corpus(work), random.Random(seed)
    rows = []
    for number in range(per_domain):
        for domain in DOMAINS:
            if domain == "math":
                prompt = prompt_text(sample_problem(rng))
            else:
                window = corpus.streams[False][domain].window(rng, rng.randint(*PROMPT_TOKENS))
                prompt = corpus.tokenizer.decode(window.tolist())
            rows.append({"id": f"{domain}-{number}", "prompt": prompt})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="pocket")
    parser.add_argument("--work", type=Path, default=Path(".cache/pocket-spot"))
    parser.add_argument("--corpus", type=Path, default=Path(".cache/pocket"))
    parser.add_argument("--per-domain", type=int, default=200)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--out", type=Path, default=Path("models/pocket-spot"))
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    prompts = arguments.work / "prompts.jsonl"
    if not prompts.exists():
        write_prompts(prompts, arguments.corpus, arguments.per_domain, seed=7)
    records = arguments.work / "records"
    shared = ["--threads", str(arguments.threads)]
    for command in (
        ["record", arguments.target, "--prompts", str(prompts), "--temperature", "0,1", "--max-new-tokens", "64",
         "--out", str(records)],
        ["train-drafter", str(records), "--steps", str(arguments.steps), "--out", str(arguments.out),
         "--json", str(arguments.work / "report.json")],
    ):  # fmt: skip
        status = dlmspec([*command, *shared])
        if status:
            raise SystemExit(status)


if __name__ == "__main__":
    main()
