"""Share of word problems answered right, with and without speculation. Both must give the same ids."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dlmspec.bench.measure import Meter
from dlmspec.bench.prompt_sets import Prompt
from dlmspec.bench.rows import BenchRow
from dlmspec.config import DecodeConfig
from dlmspec.drafters.base import Drafter
from dlmspec.request import DecodeOutput
from dlmspec.training.math_problems import extract_answer

MAX_NEW_TOKENS = 128


@dataclass(frozen=True, slots=True)
class AnswerSheet:
    """Outputs of the prompts in order, and the share of right answers."""

    token_ids: tuple[tuple[int, ...], ...]
    accuracy: float


@dataclass(frozen=True, slots=True)
class Examiner:
    """Decodes word problems to their end and marks them. `decode_text` turns ids into text."""

    meter: Meter
    prompts: tuple[list[int], ...]
    answers: tuple[int, ...]
    decode_text: Callable[[Sequence[int]], str]

    def reference(self, config: DecodeConfig) -> AnswerSheet:
        """Without speculation."""
        outputs = []
        for prompt in self.prompts:
            outputs.append(self.meter.reference(prompt, to_end(config)))
            self.meter.advance()
        return self._mark(outputs)

    def speculative(self, config: DecodeConfig, drafter: Drafter, budget: int) -> AnswerSheet:
        """With speculation."""
        outputs = []
        for prompt in self.prompts:
            outputs.append(self.meter.speculative(prompt, to_end(config), drafter, budget))
            self.meter.advance()
        return self._mark(outputs)

    def _mark(self, outputs: Sequence[DecodeOutput]) -> AnswerSheet:
        texts = [self.decode_text(output.token_ids) for output in outputs]
        right = sum(extract_answer(text) == answer for text, answer in zip(texts, self.answers, strict=True))
        return AnswerSheet(tuple(output.token_ids for output in outputs), right / len(outputs))


def to_end(config: DecodeConfig) -> DecodeConfig:
    """The config under which answers are given: up to 128 tokens, over as soon as the stop is certain."""
    return replace(config, max_new_tokens=MAX_NEW_TOKENS, early_stop=True)


def has_answers(prompts: Sequence[Prompt]) -> bool:
    """Whether every prompt has one right answer."""
    return all(prompt.answer is not None for prompt in prompts)


def with_accuracy(row: BenchRow, sheet: AnswerSheet, reference: AnswerSheet) -> BenchRow:
    """The row with its accuracy; these decodes count in `exact_match` too."""
    identical = sum(a == b for a, b in zip(sheet.token_ids, reference.token_ids, strict=True))
    exact_match = (row.exact_match * row.prompts + identical) / (row.prompts + len(sheet.token_ids))
    is_exact = row.exact_match == 1.0 and identical == len(sheet.token_ids)
    samples = replace(row.samples, accuracy_reference=reference.accuracy)
    return replace(row, accuracy=sheet.accuracy, exact_match=1.0 if is_exact else exact_match, samples=samples)
