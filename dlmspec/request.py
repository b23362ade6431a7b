"""One prompt on its way through a target: the committed blocks, the current state, and how a step moves it.

The reference loop and the speculative loop share this record, so that both mean the same by a block, a step and
an end. Knows nothing of drafters or trees.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from dlmspec.config import DecodeConfig
from dlmspec.grid import Grid
from dlmspec.law import DenoisingLaw
from dlmspec.memory import MEMORIES, Memory, ScoredRows, cache_semantics
from dlmspec.models.target import Target
from dlmspec.models.target_pass import PassOutput, PassPart, prefill_rows
from dlmspec.state import BlockState
from dlmspec.stats import DecodeStats
from dlmspec.tree import DraftTree


@dataclass(frozen=True, slots=True)
class DecodeOutput:
    """Ids after the prompt (the stop id included), why the decode ended (`stop` or `length`), and its cost."""

    token_ids: tuple[int, ...]
    finish_reason: str
    stats: DecodeStats


class StepObserver(Protocol):
    """Called with every true step: the block in the grid, the state, the logits of its masked rows, its successor."""

    def __call__(self, block: int, state: BlockState, logits: Tensor, successor: BlockState) -> None: ...


class Request:
    """The one mutable record of a decode.

    `block` is the index in the request's grid of the block being denoised, `root` its true current state, `finished`
    the tokens before it, and `memory` what the passes left for those that follow.
    """

    def __init__(self, target: Target, prompt_ids: list[int], config: DecodeConfig) -> None:
        spec = target.spec
        check_request(target, prompt_ids, config.max_new_tokens)
        self.target, self.config, self.spec = target, config, spec
        self.prompt_ids = tuple(prompt_ids)
        self.stats = DecodeStats()
        self.limit = len(prompt_ids) + config.max_new_tokens
        self.grid = Grid.of(spec, len(prompt_ids))
        self.num_blocks = self.grid.num_blocks(self.limit)
        self.law = DenoisingLaw(spec, config, self.grid)
        self.memory: Memory = MEMORIES[cache_semantics(spec, config.cache)](target, prompt_ids, self.limit)
        self.block = self.grid.block_of(len(prompt_ids))
        self.finished: list[int] = list(prompt_ids[: self.grid.start(self.block)])
        self.root = self.fresh_state(self.block)
        self.finish_reason: str | None = None

    @property
    def horizon(self) -> int:
        """The block from which on no state can be scored in the next pass."""
        return self.num_blocks if self.memory.looks_ahead else self.block + 1

    @property
    def is_finished(self) -> bool:
        return self.finish_reason is not None

    def fresh_state(self, block: int) -> BlockState:
        """The state a block starts from: masks, and in the first block the prompt's remainder."""
        start, length = self.grid.start(block), self.grid.block_length
        known = self.prompt_ids[start : start + length]
        return BlockState(known + (self.spec.mask_id,) * (length - len(known)), 0)

    def end_of(self, state: BlockState, block: int) -> str | None:
        """`stop` or `length` if decoding may end in this state of this block, else None."""
        if not (self.config.early_stop or self.law.is_final(state)):
            return None
        start = self.grid.start(block)
        for position, token in enumerate(state.tokens, start):
            if token == self.spec.mask_id:
                return None
            if position >= len(self.prompt_ids) and token in self.spec.stop_ids:
                return "stop"
            if position + 1 == self.limit:
                return "length"
        return None

    def move_to(self, state: BlockState, block: int, rows: ScoredRows | None = None, node: int = 0) -> None:
        """Make `state` of `block` the root; a final state finishes its block (`rows` hold it, where it was scored)."""
        assert block == self.block, "blocks finish in order"
        self.finish_reason = self.end_of(state, block)
        self.root = state
        if self.is_finished or not self.law.is_final(state):
            return
        self.memory.finish(state.tokens, rows, node)
        self.finished.extend(state.tokens)
        self.block += 1
        self.root = self.fresh_state(self.block)

    def output(self) -> DecodeOutput:
        """Cut at the first stop id or at the limit."""
        assert self.finish_reason is not None, "the decode has not ended"
        tokens = (*self.finished, *self.root.tokens)[len(self.prompt_ids) : self.limit]
        for position, token in enumerate(tokens):
            if token in self.spec.stop_ids:
                tokens = tokens[: position + 1]
                break
        assert self.spec.mask_id not in tokens, "a mask id is never returned"
        return DecodeOutput(tokens, self.finish_reason, self.stats)


def run_trees(requests: Sequence[Request], trees: Sequence[DraftTree]) -> list[ScoredRows]:
    """One target pass over the states of a tree of each request; its time counts in each."""
    parts = [request.memory.part(tree) for request, tree in zip(requests, trees, strict=True)]
    outputs = run_parts(requests, parts)
    return [request.memory.take(output, tree) for request, tree, output in zip(requests, trees, outputs, strict=True)]


def run_parts(requests: Sequence[Request], parts: Sequence[PassPart]) -> list[PassOutput]:
    """One target pass over shares of several requests of one target."""
    started = time.perf_counter()
    outputs = requests[0].target.forward_parts(parts)
    seconds = time.perf_counter() - started
    for request, part in zip(requests, parts, strict=True):
        request.stats.pass_seconds += seconds
        request.stats.num_rows += part.num_rows
    return outputs


def prefill(request: Request, *, whole: bool) -> None:
    """Passes of their own over the prompt: over what one pass cannot take, or over the whole of it."""
    least = 0 if whole else prefill_rows(request.spec.block_length)
    while (part := request.memory.prompt_part(least)) is not None:
        run_parts([request], [part])
        request.stats.num_prefill_passes += 1


def store_pass(request: Request) -> None:
    """A pass that only stores the rows of the last finished block, if they are still to be kept."""
    part = request.memory.store_part()
    if part is not None:
        (output,) = run_parts([request], [part])
        request.memory.store(output, 0)
        request.stats.num_store_passes += 1


def check_request(target: Target, prompt_ids: list[int], max_new_tokens: int) -> None:
    """Raises ValueError for a prompt that is none, or one that does not fit the context with what is asked for."""
    check_prompt(prompt_ids, target.spec.mask_id, target.spec.vocab_size)
    grid, limit = Grid.of(target.spec, len(prompt_ids)), len(prompt_ids) + max_new_tokens
    target.check_length(limit, grid.start(grid.num_blocks(limit)))


def check_prompt(prompt_ids: list[int], mask_id: int, vocab_size: int) -> None:
    """Raises ValueError for an empty prompt, a mask id in it, or an id outside the vocabulary."""
    if not prompt_ids:
        raise ValueError("the prompt is empty; give at least one token")
    outside = [token for token in prompt_ids if not 0 <= token < vocab_size]
    if outside:
        raise ValueError(f"token id {outside[0]} is outside the vocabulary of {vocab_size}; use this model's tokenizer")
    if mask_id in prompt_ids:
        raise ValueError(f"the prompt holds the mask id {mask_id} at position {prompt_ids.index(mask_id)}; remove it")
