"""Runs the decodes of one benchmark cell, reference and configuration prompt by prompt.

Knows nothing of rows or tables. Time is what a decode says of itself (`stats.seconds`), with the garbage
collector at rest. What is not timed shares one folded reference.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from dlmspec.config import DecodeConfig
from dlmspec.decode import decode, reference_decode
from dlmspec.drafters.base import Drafter
from dlmspec.models.target import Target
from dlmspec.request import DecodeOutput


@dataclass(frozen=True, slots=True)
class Decoders:
    """The two decode functions. A test may replace them."""

    reference: Callable[..., DecodeOutput] = reference_decode
    speculative: Callable[..., DecodeOutput] = decode


@dataclass(frozen=True, slots=True)
class Cell:
    """What all configurations of a cell share: the prompts as ids, and the decode config."""

    prompts: tuple[list[int], ...]
    config: DecodeConfig


@dataclass(frozen=True, slots=True)
class References:
    """The reference decodes of a cell, one of each kind per prompt."""

    store: tuple[DecodeOutput, ...]
    folded: tuple[DecodeOutput, ...]


@dataclass(frozen=True, slots=True)
class Trial:
    """One prompt under one configuration; its references, folded (run beside it) and with store passes."""

    output: DecodeOutput
    folded: DecodeOutput
    store: DecodeOutput

    @property
    def is_identical(self) -> bool:
        """Whether all three gave the same ids."""
        return self.output.token_ids == self.folded.token_ids == self.store.token_ids


@dataclass(frozen=True, slots=True)
class Meter:
    """Decodes and measures. `advance` is called after every prompt."""

    target: Target
    decoders: Decoders
    advance: Callable[[], None]

    def references(self, cell: Cell) -> References:
        """Every prompt by the reference, with store passes and folded, alternating."""
        self.reference(cell.prompts[0], warm_up(cell.config, self.target))
        store, folded = [], []
        for prompt in cell.prompts:
            store.append(self.reference(prompt, cell.config, store_passes=True))
            folded.append(self.reference(prompt, cell.config))
            self.advance()
        return References(tuple(store), tuple(folded))

    def trials(self, cell: Cell, configuration: tuple[Drafter, int], references: References, *,
               is_timed: bool) -> list[Trial]:  # fmt: skip
        """Every prompt by the configuration (drafter, budget); if timed, each after the folded reference."""
        drafter, budget = configuration
        if is_timed:
            self.speculative(cell.prompts[0], warm_up(cell.config, self.target), drafter, budget)
        trials = []
        for prompt, store, folded in zip(cell.prompts, references.store, references.folded, strict=True):
            if is_timed:
                folded = self.reference(prompt, cell.config)
            output = self.speculative(prompt, cell.config, drafter, budget)
            trials.append(Trial(output, folded, store))
            self.advance()
        return trials

    def reference(self, prompt: list[int], config: DecodeConfig, *, store_passes: bool = False) -> DecodeOutput:
        """One reference decode."""
        with resting_collector():
            return self.decoders.reference(self.target, prompt, config, store_passes=store_passes)

    def speculative(self, prompt: list[int], config: DecodeConfig, drafter: Drafter, budget: int) -> DecodeOutput:
        """One speculative decode."""
        with resting_collector():
            return self.decoders.speculative(self.target, prompt, config, drafter=drafter, budget=budget)


def warm_up(config: DecodeConfig, target: Target) -> DecodeConfig:
    """The same decode, over after two blocks: what a first call sets up is then in place."""
    return replace(config, max_new_tokens=min(config.max_new_tokens, 2 * target.spec.block_length))


@contextmanager
def resting_collector() -> Iterator[None]:
    """No garbage collection inside."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
