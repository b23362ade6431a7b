"""Answers that an instruction model gives itself: what a model converted from it is trained on to keep its manner.

One JSON object a line: `id`, `prompt` (the rendered chat template), `answer`. An interrupted run goes on.
"""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import track

from dlmspec.config import DecodeConfig
from dlmspec.decode import reference_decode_batch
from dlmspec.step import Sampling
from dlmspec.training.instructions import Instruction

if TYPE_CHECKING:
    from dlmspec.engine import LanguageModel

SAMPLING = Sampling(temperature=0.7, top_p=0.95)
MAX_NEW_TOKENS = 160
BATCH = 24


@dataclass(frozen=True, slots=True)
class Dialogue:
    """One instruction as the model reads it, and its answer; held out with the instruction's topic."""

    id: str
    prompt: str
    answer: str
    held_out: bool


def chat_prompt(lm: "LanguageModel", instruction: Instruction) -> str:
    """The rendered chat template of one instruction."""
    messages = [{"role": "user", "content": instruction.text}]
    return lm.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)


def record_dialogues(lm: "LanguageModel", instructions: Sequence[Instruction], path: Path) -> None:
    """Append the answers that `path` lacks, sampled with a seed of their own; answers cut by the limit are kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    known = {row.id for row in read_dialogues(path)} if path.exists() else set()
    missing = [instruction for instruction in instructions if instruction.name not in known]
    batches = [missing[start : start + BATCH] for start in range(0, len(missing), BATCH)]
    with path.open("a", encoding="utf-8") as file:
        for batch in track(batches, "answering", console=Console(stderr=True), disable=not batches):
            prompts = [chat_prompt(lm, instruction) for instruction in batch]
            configs = [
                DecodeConfig(MAX_NEW_TOKENS, sampling=SAMPLING, seed=zlib.crc32(instruction.name.encode()))
                for instruction in batch
            ]
            outputs = reference_decode_batch(lm.target, [lm.encode(prompt) for prompt in prompts], configs)
            answers = {index: lm.decode_text(output.token_ids) for index, output in outputs}
            for index, instruction in enumerate(batch):
                row = {
                    "id": instruction.name,
                    "prompt": prompts[index],
                    "answer": answers[index],
                    "held_out": instruction.held_out,
                }
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()


def read_dialogues(path: Path) -> list[Dialogue]:
    """The dialogues of a file. Raises ValueError with the line that is none."""
    dialogues = []
    for number, line in enumerate(path.read_text(encoding="utf-8").rstrip("\n").split("\n"), 1):
        try:
            dialogues.append(Dialogue(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}:{number}: no dialogue ({error}); delete the line to record it again") from error
    return dialogues
