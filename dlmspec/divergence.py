"""How often ids differ where exactness is not promised: in bf16, passes of other shapes round otherwise.

Speculation is set beside what needs no speculation to differ: the reference decoder itself, in batches. Each first
difference comes with its margin, how near the reference was to another token there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from dlmspec.config import DecodeConfig
from dlmspec.decode import decode, reference_decode, reference_decode_batch
from dlmspec.drafters.base import Drafter
from dlmspec.models.target import Target
from dlmspec.parity import first_difference
from dlmspec.request import DecodeOutput, Request
from dlmspec.state import BlockState


@dataclass(frozen=True, slots=True)
class Divergence:
    """One way to decode against the reference alone: `tokens` compared, up to the first difference of each decode.

    `margins`: at each first difference the reference's log-probability of its token less that of the next best, nats;
    None where the reference has no token there.
    """

    name: str
    temperature: float
    decodes: int
    tokens: int
    margins: tuple[float | None, ...]

    @property
    def per_thousand(self) -> float:
        """First differences per thousand tokens that were compared."""
        return 1000.0 * len(self.margins) / max(1, self.tokens)

    def as_dict(self) -> dict:
        return {
            "name": self.name,
            "temperature": self.temperature,
            "decodes": self.decodes,
            "tokens": self.tokens,
            "divergences": len(self.margins),
            "per_thousand": self.per_thousand,
            "margins": list(self.margins),
        }


@dataclass(slots=True)
class Margins:
    """A step observer: of every committed position of the answer, how near another token was."""

    start: Callable[[int], int]  # of a block
    mask_id: int
    by_position: dict[int, float] = field(default_factory=dict)

    def __call__(self, block: int, state: BlockState, logits: Tensor, successor: BlockState) -> None:
        best = logits.float().log_softmax(-1).topk(2, -1).values
        for row, position in enumerate(state.masked_positions(self.mask_id)):
            if successor.tokens[position] != self.mask_id:
                self.by_position[self.start(block) + position] = (best[row, 0] - best[row, 1]).item()


def measure_divergence(target: Target, prompts: Sequence[list[int]], config: DecodeConfig,
                       drafters: Sequence[tuple[Drafter, int]], batch_sizes: Sequence[int] = (4, 16),
                       progress: Callable[[int], None] | None = None) -> list[Divergence]:  # fmt: skip
    """A row per (drafter, budget), and per size of batch of the reference decoder."""
    references, margins = [], []
    for prompt in prompts:
        observer = Margins(Request(target, prompt, config).grid.start, target.spec.mask_id)
        references.append(reference_decode(target, prompt, config, observer=observer))
        margins.append({at - len(prompt): margin for at, margin in observer.by_position.items()})
    rows = []

    def compare(name: str, outputs: Sequence[DecodeOutput]) -> None:
        rows.append(_row(name, config, references, outputs, margins))
        if progress is not None:
            progress(len(outputs))

    for size in batch_sizes:
        outputs: list[DecodeOutput] = []
        for first in range(0, len(prompts), size):
            chosen = prompts[first : first + size]
            together = dict(reference_decode_batch(target, chosen, [config] * len(chosen)))
            outputs += [together[index] for index in range(len(chosen))]
        compare(f"reference, batches of {size}", outputs)
    for drafter, budget in drafters:
        compare(
            f"{drafter.name}, {budget} states",
            [decode(target, prompt, config, drafter=drafter, budget=budget) for prompt in prompts],
        )
    return rows


def _row(name: str, config: DecodeConfig, references: Sequence[DecodeOutput], outputs: Sequence[DecodeOutput],
         margins: Sequence[dict[int, float]]) -> Divergence:  # fmt: skip
    tokens, found = 0, []
    for reference, output, known in zip(references, outputs, margins, strict=True):
        if reference.token_ids == output.token_ids:
            tokens += len(reference.token_ids)
            continue
        place = first_difference(reference.token_ids, output.token_ids)
        tokens += place + 1
        found.append(known.get(place))
    return Divergence(name, config.sampling.temperature, len(outputs), tokens, tuple(found))
