"""Is speculative decoding exact here? Compares ids with the reference decoder's, drafter by drafter."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dlmspec.config import DecodeConfig
from dlmspec.decode import decode, reference_decode
from dlmspec.drafters.base import Drafter
from dlmspec.memory import cache_semantics
from dlmspec.models.target import Target
from dlmspec.request import DecodeOutput


@dataclass(frozen=True, slots=True)
class ParityRow:
    """One configuration's count, labelled as a benchmark's row is. `tokens` are the reference's in all decodes.

    `mismatches` are (prompt index, first differing position of the output).
    """

    block_length: int
    domain: str
    rule: str
    rule_args: dict[str, Any]
    temperature: float
    noise: str
    cache: str
    seed: int
    drafter: str
    budget: int
    tokens: int
    decodes: int
    identical: int
    mismatches: tuple[tuple[int, int], ...]

    @property
    def exact_match(self) -> float:
        """Share of decodes whose ids are the reference's."""
        return self.identical / max(1, self.decodes)


@dataclass(frozen=True, slots=True)
class ParityReport:
    """All rows of a check."""

    rows: tuple[ParityRow, ...]

    @property
    def decodes(self) -> int:
        return sum(row.decodes for row in self.rows)

    @property
    def exact_match(self) -> float:
        """Share of decodes whose ids are the reference's."""
        return sum(row.identical for row in self.rows) / max(1, self.decodes)


@dataclass(frozen=True, slots=True)
class ParityCheck:
    """What to compare: every prompt under every config, by every drafter at every budget."""

    target: Target
    drafters: Sequence[Drafter]
    budgets: Sequence[int]
    progress: Callable[[int], None] | None = None  # called with the decodes just done

    def __post_init__(self) -> None:
        for budget in self.budgets:
            if budget < 1:
                raise ValueError(f"budget must be at least 1 (the current state itself), got {budget}")

    def run(self, domain: str, prompts: Sequence[list[int]], configs: Sequence[DecodeConfig]) -> Iterator[ParityRow]:
        """Rows of one domain. The reference with store passes is compared too, as drafter `store-passes`."""
        for config in configs:
            references = [reference_decode(self.target, prompt, config) for prompt in prompts]
            stored = [reference_decode(self.target, prompt, config, store_passes=True) for prompt in prompts]
            yield self._row(domain, config, ("store-passes", 1), references, stored)
            for drafter in self.drafters:
                for budget in self.budgets:
                    outputs = [
                        decode(self.target, prompt, config, drafter=drafter, budget=budget) for prompt in prompts
                    ]
                    yield self._row(domain, config, (drafter.name, budget), references, outputs)

    def _row(self, domain: str, config: DecodeConfig, name: tuple[str, int], references: list[DecodeOutput],
             outputs: list[DecodeOutput]) -> ParityRow:  # fmt: skip
        if self.progress is not None:
            self.progress(len(outputs))
        pairs = list(zip(references, outputs, strict=True))
        mismatches = tuple(
            (index, first_difference(reference.token_ids, output.token_ids))
            for index, (reference, output) in enumerate(pairs)
            if (reference.token_ids, reference.finish_reason) != (output.token_ids, output.finish_reason)
        )
        return ParityRow(
            block_length=self.target.spec.block_length,
            domain=domain,
            rule=config.rule.name,
            rule_args=asdict(config.rule),  # pyright: ignore[reportArgumentType]
            temperature=config.sampling.temperature,
            noise=config.noise,
            cache=cache_semantics(self.target.spec, config.cache),
            seed=config.seed,
            drafter=name[0],
            budget=name[1],
            tokens=sum(len(reference.token_ids) for reference in references),
            decodes=len(pairs),
            identical=len(pairs) - len(mismatches),
            mismatches=mismatches,
        )


def first_difference(left: Sequence[int], right: Sequence[int]) -> int:
    """Index of the first position at which two outputs differ; the shorter length if one begins the other."""
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return min(len(left), len(right))
