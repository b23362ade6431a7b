"""Prompts to record drafters' training decodes from: training templates and training documents, nothing held out.

A drafter also has to serve a target that is less sure of itself than on the problems that it knows, so half of the
questions are spliced from two problems.
"""

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from dlmspec.atomic import write_text
from dlmspec.bench.prompt_sets import DOMAINS
from dlmspec.models.target import Target
from dlmspec.training.corpus import read_documents
from dlmspec.training.dialogues import Dialogue
from dlmspec.training.math_problems import prompt_text, sample_training_problem
from dlmspec.training.target import Corpus

PROMPT_TOKENS = (48, 128)


def write_prompts(path: Path, target: Target, per_domain: int, seed: int,
                  dialogues: Sequence[Dialogue] = ()) -> None:  # fmt: skip
    """`per_domain` training prompts of each domain, interleaved, as JSONL; those of `chat` if there are dialogues."""
    rng, rows = random.Random(seed), []
    tokenizer = Tokenizer.from_file(str(target.tokenizer_path / "tokenizer.json"))
    streams = Corpus(read_documents(), tokenizer, target.spec).streams[False]
    talks = [dialogue for dialogue in dialogues if not dialogue.held_out]
    for number in range(per_domain):
        for domain in DOMAINS:
            if domain == "math":
                prompt = prompt_text(spliced_question(rng) if number % 2 else sample_training_problem(rng))
            else:
                window = streams[domain].window(rng, rng.randint(*PROMPT_TOKENS))
                prompt = tokenizer.decode(window.tolist())
            rows.append({"id": f"{domain}-{number}", "prompt": prompt})
        if number < len(talks):
            rows.append({"id": f"chat-{number}", "prompt": talks[number].prompt})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def spliced_question(rng: random.Random) -> str:
    """The first sentences of one training problem and the last ones of another: a question unlike any template's."""
    first, second = (re.split(r"(?<=[.?]) ", sample_training_problem(rng).question) for _ in range(2))
    return " ".join(first[: (len(first) + 1) // 2] + second[len(second) // 2 :])
