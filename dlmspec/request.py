"""One prompt on its way through a target: the committed blocks, the current state, and how a step moves it.

The reference loop and the speculative loop share this record, so that both mean the same by a block, a step and
an end. Knows nothing of drafters or trees.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from dlmspec.cache import BlockCache
from dlmspec.config import DecodeConfig
from dlmspec.law import DenoisingLaw
from dlmspec.models.target import Target
from dlmspec.models.target_pass import BlockCopy, PassOutput, PassPart, prefill_rows
from dlmspec.state import BlockState
from dlmspec.stats import DecodeStats


@dataclass(frozen=True, slots=True)
class DecodeOutput:
    """Ids after the prompt (the stop id included), why the decode ended (`stop` or `length`), and its cost."""

    token_ids: tuple[int, ...]
    finish_reason: str
    stats: DecodeStats


class StepObserver(Protocol):
    """Called with every true step: absolute block, the state, the logits of its masked rows, its successor."""

    def __call__(self, block: int, state: BlockState, logits: Tensor, successor: BlockState) -> None: ...


class Request:
    """The one mutable record of a decode.

    `block` is the absolute index of the block being denoised, `root` its true current state, `finished` the tokens
    of the blocks before it; `pending` holds the tokens of the last finished block while its KV is not yet cached, and
    `uncached` what the next pass has to take of the prompt.
    """

    def __init__(self, target: Target, prompt_ids: list[int], config: DecodeConfig) -> None:
        spec = target.spec
        check_request(target, prompt_ids, config.max_new_tokens)
        self.target, self.config, self.spec = target, config, spec
        self.prompt_ids = tuple(prompt_ids)
        self.stats = DecodeStats()
        self.limit = len(prompt_ids) + config.max_new_tokens
        self.num_blocks = -(-self.limit // spec.block_length)
        self.cache: BlockCache = target.new_cache(self.limit)
        self.law = DenoisingLaw(spec, config)
        self.block = len(prompt_ids) // spec.block_length
        self.finished: list[int] = list(prompt_ids[: self.block * spec.block_length])
        self.pending: tuple[int, ...] | None = None
        self.root = self.fresh_state(self.block)
        self.finish_reason: str | None = None
        self.uncached: Sequence[int] = self.finished[:]  # whole blocks of the prompt
        while len(self.uncached) > prefill_rows(spec.block_length):
            self.prefill()

    def prefill(self) -> None:
        """A pass of its own over what one pass takes of the prompt."""
        rows = prefill_rows(self.spec.block_length)
        rest, self.uncached = self.uncached[rows:], self.uncached[:rows]
        self.run(())
        self.uncached = rest
        self.stats.num_prefill_passes += 1

    def part(self, copies: Sequence[BlockCopy]) -> PassPart:
        """The request's share of the next pass; what is left of the prompt rides along."""
        prompt, self.uncached = self.uncached, ()
        return PassPart(self.cache, copies, prompt)

    def run(self, copies: Sequence[BlockCopy]) -> PassOutput:
        """One target pass over `copies` and what is left of the prompt."""
        return run_together([self], [copies])[0]

    @property
    def is_finished(self) -> bool:
        return self.finish_reason is not None

    def fresh_state(self, block: int) -> BlockState:
        """The state a block starts from: masks, and in the first block the prompt's remainder."""
        start, length = block * self.spec.block_length, self.spec.block_length
        known = self.prompt_ids[start : start + length]
        return BlockState(known + (self.spec.mask_id,) * (length - len(known)), 0)

    def end_of(self, state: BlockState, block: int) -> str | None:
        """`stop` or `length` if decoding may end in this state of this block, else None."""
        if not (self.config.early_stop or self.law.is_final(state)):
            return None
        start = block * self.spec.block_length
        for position, token in enumerate(state.tokens, start):
            if token == self.spec.mask_id:
                return None
            if position >= len(self.prompt_ids) and token in self.spec.stop_ids:
                return "stop"
            if position + 1 == self.limit:
                return "length"
        return None

    def move_to(self, state: BlockState, block: int) -> None:
        """Make `state` of `block` the root; a final state finishes its block and leaves it pending."""
        assert block == self.block, "blocks finish in order"
        self.finish_reason = self.end_of(state, block)
        self.root = state
        if self.is_finished or not self.law.is_final(state):
            return
        self.finished.extend(state.tokens)
        assert self.pending is None, "a finished block is stored before the next one ends"
        self.pending = state.tokens
        self.block += 1
        self.root = self.fresh_state(self.block)

    def pending_copies(self) -> list[BlockCopy]:
        """The committed copy of the block just finished, if its KV is still to be stored."""
        return [] if self.pending is None else [BlockCopy(self.pending, 0, (), ())]

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


def run_together(requests: Sequence[Request], copies: Sequence[Sequence[BlockCopy]]) -> list[PassOutput]:
    """One target pass over the copies of several requests of one target; its time counts in each."""
    started = time.perf_counter()
    parts = [request.part(own) for request, own in zip(requests, copies, strict=True)]
    outputs = requests[0].target.forward_parts(parts)
    for request in requests:
        request.stats.pass_seconds += time.perf_counter() - started
    return outputs


def check_request(target: Target, prompt_ids: list[int], max_new_tokens: int) -> None:
    """Raises ValueError for a prompt that is none, or one that does not fit the context with what is asked for."""
    check_prompt(prompt_ids, target.spec.mask_id, target.spec.vocab_size)
    target.check_length(len(prompt_ids) + max_new_tokens)


def check_prompt(prompt_ids: list[int], mask_id: int, vocab_size: int) -> None:
    """Raises ValueError for an empty prompt, a mask id in it, or an id outside the vocabulary."""
    if not prompt_ids:
        raise ValueError("the prompt is empty; give at least one token")
    outside = [token for token in prompt_ids if not 0 <= token < vocab_size]
    if outside:
        raise ValueError(f"token id {outside[0]} is outside the vocabulary of {vocab_size}; use this model's tokenizer")
    if mask_id in prompt_ids:
        raise ValueError(f"the prompt holds the mask id {mask_id} at position {prompt_ids.index(mask_id)}; remove it")
