"""Builds the held-out prompt sets of the benchmark: word problems, code and prose that training never saw.

`python -m dlmspec.training.prompts --tokenizer DIR --out DIR` writes `{math,math-known,code,prose,chat}.jsonl`.
`math` holds templates that training never saw, `math-known` trained templates with held-out numbers, `chat`
instructions whose topic training never asks this kind of question about. Ids name the source (`math/TEMPLATE#n`,
`code/FILE#n`, `prose/CHAPTER#n`, `chat/KIND/TOPIC#n`). The first prompts of every file are spread over its sources, so
that a limit keeps the mixture.
"""

import argparse
import json
import random
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from dlmspec.atomic import write_text
from dlmspec.training.corpus import Document, read_documents
from dlmspec.training.instructions import all_instructions
from dlmspec.training.math_problems import TEMPLATES, Template, generate_problem, is_held_out_question, prompt_text

NUM_PROMPTS = 240
MIN_TOKENS, MAX_TOKENS = 48, 192
SEED = 20_260_101

_LICENCE = re.compile(r"copyright|licen[cs]e|all rights reserved|warrant(y|ies)", re.IGNORECASE)
_LEAST_LETTERS = 0.55  # of the characters that are no space: keeps out rulers, tables and hex dumps
_LEAST_LINES = 3
_SENTENCE_ENDS = (".", ":", ";", "?", "!", ")")


def build_prompt_sets(documents: Sequence[Document], tokenizer: Tokenizer, directory: Path) -> dict[str, int]:
    """Write the sets into `directory`, replacing files whole; returns the number of prompts of each.

    Code and prose come from held-out documents only. Raises ValueError if those are too few.
    """
    sets = {
        "math": math_prompts(NUM_PROMPTS, [template for template in TEMPLATES if template.held_out]),
        "math-known": math_prompts(NUM_PROMPTS, [template for template in TEMPLATES if not template.held_out]),
        "code": code_prompts(documents, tokenizer, NUM_PROMPTS),
        "prose": prose_prompts(documents, tokenizer, NUM_PROMPTS),
        "chat": chat_prompts(),
    }
    directory.mkdir(parents=True, exist_ok=True)
    for domain, prompts in sets.items():
        write_prompts(directory / f"{domain}.jsonl", prompts)
    return {domain: len(prompts) for domain, prompts in sets.items()}


def math_prompts(count: int, templates: Sequence[Template], seed: int = SEED) -> list[dict]:
    """`count` distinct questions, one template after the other: `id`, `prompt`, `answer`.

    Questions of trained templates are those whose numbers and names training leaves out.
    """
    rng = random.Random(seed)
    seen: set[str] = set()
    prompts = []
    while len(prompts) < count:
        template = templates[len(prompts) % len(templates)]
        problem = generate_problem(rng, template)
        if problem.question not in seen and (template.held_out or is_held_out_question(problem.question)):
            seen.add(problem.question)
            number = len(prompts) // len(templates)
            row = {
                "id": f"math/{template.name}#{number}",
                "prompt": prompt_text(problem),
                "answer": problem.answer,
            }
            prompts.append(row)
    return prompts


def code_prompts(documents: Sequence[Document], tokenizer: Tokenizer, count: int, seed: int = SEED) -> list[dict]:
    """`count` excerpts of held-out source files: `id`, `prompt`."""
    chosen = [document for document in documents if document.domain == "code" and document.held_out]
    return _spread(chosen, tokenizer, count, seed)


def prose_prompts(documents: Sequence[Document], tokenizer: Tokenizer, count: int, seed: int = SEED) -> list[dict]:
    """`count` excerpts of held-out prose, the Bible and the documentation in turn: `id`, `prompt`."""
    held_out = [document for document in documents if document.domain == "prose" and document.held_out]
    bible = [document for document in held_out if document.name.startswith("kjv/")]
    others = [document for document in held_out if not document.name.startswith("kjv/")]
    halves = [
        _spread(bible, tokenizer, count - count // 2, seed),
        _spread(others, tokenizer, count // 2, seed),
    ]
    return [halves[index % 2][index // 2] for index in range(count)]


def chat_prompts() -> list[dict]:
    """All instructions about held-out topics, in a seeded order, topics spread: `id`, `prompt`, `chat`."""
    queues: dict[str, list[dict]] = {}
    for instruction in all_instructions():
        if instruction.held_out:
            row = {"id": f"chat/{instruction.name}", "prompt": instruction.text, "chat": True}
            queues.setdefault(row["id"].rpartition("#")[0], []).append(row)
    longest = max(map(len, queues.values()))
    return [queue[number] for number in range(longest) for queue in queues.values() if number < len(queue)]


def write_prompts(path: Path, prompts: Sequence[dict]) -> None:
    """One JSON object a line, UTF-8; never half-written."""
    write_text(path, "".join(json.dumps(prompt, ensure_ascii=False) + "\n" for prompt in prompts))


def _spread(documents: Sequence[Document], tokenizer: Tokenizer, count: int, seed: int) -> list[dict]:
    """One excerpt from each document, then a second one, and so on, in a seeded order."""
    rng = random.Random(seed)
    queues = []
    for document in documents:
        # a generator of its own: another document or tokenizer elsewhere leaves this one's cuts alone
        texts = list(_excerpts(document, tokenizer, random.Random(f"{seed} {document.name}")))
        queue = [{"id": f"{document.domain}/{document.name}#{n}", "prompt": text} for n, text in enumerate(texts)]
        rng.shuffle(queue)
        queues.append(queue)
    rng.shuffle(queues)
    prompts: list[dict] = []
    seen: set[str] = set()
    while len(prompts) < count and any(queues):
        for queue in queues:
            if queue and len(prompts) < count:
                prompt = queue.pop()
                if prompt["prompt"] not in seen:
                    seen.add(prompt["prompt"])
                    prompts.append(prompt)
    if len(prompts) < count:
        raise ValueError(f"{len(documents)} held-out documents give {len(prompts)} of {count} prompts")
    return prompts


def _excerpts(document: Document, tokenizer: Tokenizer, rng: random.Random) -> Iterator[str]:
    """Excerpts that do not overlap, each from a paragraph's or sentence's first line on."""
    lines = document.text.splitlines()
    sizes = [len(encoding.ids) for encoding in tokenizer.encode_batch([line + "\n" for line in lines])]
    start = 0
    while start < len(lines):
        if not lines[start].strip() or not _opens(lines, start):
            start += 1
            continue
        wanted = rng.randint(MIN_TOKENS, MAX_TOKENS)
        end, total = start, 0
        while end < len(lines) and total + sizes[end] <= wanted:
            total += sizes[end]
            end += 1
        text = "\n".join(lines[start:end]).rstrip()
        if _is_worthwhile(text) and MIN_TOKENS <= len(tokenizer.encode(text).ids) <= MAX_TOKENS:
            yield text
            start = end
        else:
            start += 1


def _opens(lines: Sequence[str], index: int) -> bool:
    """Whether a paragraph or a sentence starts with this line."""
    if index == 0:
        return True
    before = lines[index - 1].rstrip()
    return not before or (lines[index][0].isupper() and before.endswith(_SENTENCE_ENDS))


def _is_worthwhile(text: str) -> bool:
    """Whether an excerpt has a few lines of words and is no licence header."""
    visible = [character for character in text if not character.isspace()]
    letters = sum(character.isalpha() for character in visible)
    lines = [line for line in text.splitlines() if line.strip()]
    enough = len(lines) >= _LEAST_LINES and letters >= _LEAST_LETTERS * len(visible)
    return enough and not _LICENCE.search(text)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m dlmspec.training.prompts", description=__doc__)
    parser.add_argument("--tokenizer", type=Path, required=True, help="directory that holds tokenizer.json")
    parser.add_argument("--out", type=Path, required=True, help="directory for the .jsonl files")
    options = parser.parse_args(arguments)
    path = options.tokenizer / "tokenizer.json"
    if not path.is_file():
        parser.error(f"{path} is missing; give the directory of a trained tokenizer")
    tokenizer = Tokenizer.from_file(str(path))
    try:
        counts = build_prompt_sets(read_documents(), tokenizer, options.out)
    except ValueError as error:
        parser.error(str(error))
    sys.stdout.write(", ".join(f"{count} {domain}" for domain, count in counts.items()) + "\n")


if __name__ == "__main__":
    main()
