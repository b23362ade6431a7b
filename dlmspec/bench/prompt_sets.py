"""The prompts of the benchmark: the held-out sets that ship with the package, or a file of the user's.

A file holds one JSON object a line: `id`, `prompt`; where one answer is right, the integer `answer`; and `chat: true`
where the prompt is a user's message, which a model reads by its chat template.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlmspec.models.target import Target
from dlmspec.request import check_request

DOMAINS = ("math", "code", "prose")
# chat: instructions, for models with a chat template; math-known: trained templates with held-out numbers
SETS = (*DOMAINS, "chat", "math-known")
_DIRECTORY = Path(__file__).parent / "prompts"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt; `answer` is the right answer of a word problem, else None; `place` its file and line.

    `chat`: the prompt is a user's message.
    """

    id: str
    prompt: str
    answer: int | None = None
    chat: bool = False
    place: str = field(default="", compare=False)

    @property
    def content(self) -> str | list[dict[str, str]]:
        """What a model is given: text, or chat messages."""
        return [{"role": "user", "content": self.prompt}] if self.chat else self.prompt


def load_prompts(domain_or_path: str | Path, limit: int | None = None) -> list[Prompt]:
    """The prompts of a domain or of a `.jsonl` file, in order; the first `limit` of them.

    Raises ValueError for an unknown domain, an unreadable or empty file, a malformed line or a limit below 1.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1 prompt, got {limit}")
    path = prompt_path(domain_or_path)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # JSON may hold other ends of lines
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the prompts {path}: {error}") from error
    prompts = [_parse(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise ValueError(f"{path} holds no prompts; give one JSON object a line with id and prompt")
    return prompts[:limit]


def encode_prompts(prompts: Sequence[Prompt], encode: Callable[[Any], list[int]], target: Target,
                   max_new_tokens: int) -> list[list[int]]:  # fmt: skip
    """Ids of the prompts, all checked before any is decoded.

    Raises ValueError with id, file and line of the first that could not be.
    """
    rows = []
    for prompt in prompts:
        try:
            ids = encode(prompt.content)
            check_request(target, ids, max_new_tokens)
        except ValueError as error:
            raise ValueError(f"prompt {prompt.id!r} ({prompt.place}): {error}") from error
        rows.append(ids)
    return rows


def prompt_path(domain_or_path: str | Path) -> Path:
    """The file of a domain, or the path itself if it ends in `.jsonl`; anything else is a ValueError."""
    if str(domain_or_path) in SETS:
        return _DIRECTORY / f"{domain_or_path}.jsonl"
    path = Path(domain_or_path)
    if path.suffix == ".jsonl":
        return path
    known = ", ".join(SETS)
    raise ValueError(f"unknown prompts {str(domain_or_path)!r}; choose {known} or give a .jsonl file")


def domain_name(domain_or_path: str | Path) -> str:
    """What results call it: the domain, or the file's name without its suffix."""
    return prompt_path(domain_or_path).stem


def _parse(line: str, place: str) -> Prompt:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{place}: not a JSON object ({error}); write one prompt a line") from error
    if not isinstance(row, dict):
        raise ValueError(f"{place}: a JSON object is needed, not {type(row).__name__}")
    for key in ("id", "prompt"):
        if not isinstance(row.get(key), str) or not row[key]:
            raise ValueError(f"{place}: {key!r} is {row.get(key)!r}; it must be a text that is not empty")
    answer = row.get("answer")
    if answer is not None and (not isinstance(answer, int) or isinstance(answer, bool)):
        raise ValueError(f"{place}: 'answer' is {answer!r}; it must be an integer or absent")
    chat = row.get("chat", False)
    if not isinstance(chat, bool):
        raise ValueError(f"{place}: 'chat' is {chat!r}; it must be true, false or absent")
    return Prompt(row["id"], row["prompt"], answer, chat, place)
