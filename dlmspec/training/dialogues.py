"""Answers that an instruction model gives itself: what a model converted from it is trained on to keep its manner.

One JSON object a line: `id`, `prompt` (the rendered chat template), `answer`, `is_whole` (false: cut by the limit),
`held_out`. An interrupted run goes on; a line that it left half-written is recorded again.
"""

import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import track

from dlmspec.atomic import replacing
from dlmspec.config import DecodeConfig
from dlmspec.decode import reference_decode_batch
from dlmspec.step import Sampling
from dlmspec.training.instructions import Instruction

if TYPE_CHECKING:
    from dlmspec.engine import LanguageModel

SAMPLING = Sampling(temperature=0.7, top_p=0.95)
MAX_NEW_TOKENS = 160
BATCH = 64


@dataclass(frozen=True, slots=True)
class Dialogue:
    """One instruction as the model reads it, and its answer; held out with the instruction's topic.

    An answer that is not whole was cut by the limit: no end follows it.
    """

    id: str
    prompt: str
    answer: str
    is_whole: bool
    held_out: bool


def chat_prompt(lm: "LanguageModel", instruction: Instruction) -> str:
    """The rendered chat template of one instruction."""
    messages = [{"role": "user", "content": instruction.text}]
    return lm.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)


def record_dialogues(lm: "LanguageModel", instructions: Sequence[Instruction], path: Path) -> None:
    """Append the answers that `path` lacks, each sampled with a seed of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    drop_half_line(path)
    known = {row.id for row in read_dialogues(path)} if path.exists() else set()
    missing = [instruction for instruction in instructions if instruction.name not in known]
    batches = [missing[start : start + BATCH] for start in range(0, len(missing), BATCH)]
    with path.open("a", encoding="utf-8") as file:
        for batch in track(batches, "answering", console=Console(stderr=True), disable=not batches):
            file.write("".join(json.dumps(asdict(dialogue)) + "\n" for dialogue in answer(lm, batch)))
            file.flush()


def answer(lm: "LanguageModel", instructions: Sequence[Instruction]) -> list[Dialogue]:
    """The model's answers to a batch of instructions."""
    prompts = [chat_prompt(lm, instruction) for instruction in instructions]
    configs = [
        DecodeConfig(MAX_NEW_TOKENS, sampling=SAMPLING, seed=zlib.crc32(instruction.name.encode()))
        for instruction in instructions
    ]
    outputs = dict(reference_decode_batch(lm.target, [lm.encode(prompt) for prompt in prompts], configs))
    return [
        Dialogue(
            id=instruction.name,
            prompt=prompts[index],
            answer=lm.decode_text(outputs[index].token_ids),
            is_whole=outputs[index].finish_reason == "stop",
            held_out=instruction.held_out,
        )
        for index, instruction in enumerate(instructions)
    ]


def drop_half_line(path: Path) -> None:
    """Cut off a last line that an interrupt left without its end."""
    if path.exists() and not (content := path.read_bytes()).endswith(b"\n"):
        with replacing(path) as (temporary,):
            temporary.write_bytes(content[: content.rfind(b"\n") + 1])


def read_dialogues(path: Path) -> list[Dialogue]:
    """The dialogues of a file. Raises ValueError if there is none, or with the line that is no dialogue."""
    if not path.is_file():
        raise ValueError(f"{path} is missing; record the dialogues first (recipe.py --dialogues)")
    dialogues = []
    for number, line in enumerate(path.read_bytes().decode().split("\n"), 1):
        if not line:
            continue
        try:
            dialogues.append(Dialogue(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}:{number}: no dialogue ({error}); delete the line to record it again") from error
    return dialogues
