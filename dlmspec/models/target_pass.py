"""One target pass: what goes in per request, where its rows lie, what comes out.

Matrix kernels change with the number of rows, so each product runs on a multiple of 16 of them, and each copy brings
a fixed number of query rows: the bits of a copy's rows do not depend on what else is in the pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dlmspec.cache import BlockCache
from dlmspec.models.attention import ROW_MULTIPLE, CopyGroup, attend_copies, attend_prompt, block_causal
from dlmspec.models.spec import ModelSpec

PREFILL_ROWS = 512


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """One copy of a block in a pass; `block` counts blocks behind the cache's end (0 = the first one).

    `ancestors` index the part's copies of the uncached blocks before it, oldest first, one per block. `read` are the
    positions whose logits may be asked for (None: all; none: a finished block); the last layer computes no others.
    """

    tokens: tuple[int, ...]
    block: int
    ancestors: tuple[int, ...]
    read: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class PassPart:
    """One request's share of a pass: whole blocks of `prompt` that are not cached yet, then copies behind them."""

    cache: BlockCache
    copies: Sequence[BlockCopy]
    prompt: Sequence[int] = ()

    @property
    def num_rows(self) -> int:
        """Tokens of the prompt and of all copies."""
        return len(self.prompt) + sum(len(copy.tokens) for copy in self.copies)


@dataclass(frozen=True, slots=True)
class PassOutput:
    """What a pass leaves of one part.

    `keys` and `values` `[layers, n, G, B, D]` and final normed states `hidden [n, B, d]`, zero in rows that are not
    read, of the copies that were run, in their order: `place` says of each copy where (None: no row of it was needed).
    Under the logit shift `chains` are the copies' ancestors and `last_hidden [d]` the state of the row before them all.
    """

    keys: Tensor
    values: Tensor
    hidden: Tensor
    lm_head: Tensor
    place: tuple[int | None, ...]
    chains: tuple[tuple[int, ...], ...] | None = None
    last_hidden: Tensor | None = None

    def logits(self, copy: int, positions: Sequence[int]) -> Tensor:
        """fp32 logits `[len(positions), V]` of one copy, computed for those rows only."""
        return self.logit_rows([(copy, position) for position in positions])

    def logit_rows(self, rows: Sequence[tuple[int, int]]) -> Tensor:
        """fp32 logits `[len(rows), V]` of (copy, position) pairs in one product; same bits as row by row."""
        return read_logits([(self, rows)])[0]

    def store(self, cache: BlockCache, copy: int) -> None:
        """Commit the rows of `copy`, a copy of the cache's first missing block in its final state."""
        place = self.place[copy]
        assert place is not None, "a final state is run"
        cache.append_rows(self.keys[:, place], self.values[:, place], self.hidden[place, -1])

    def predicting_rows(self, rows: Sequence[tuple[int, int]]) -> Tensor:
        """Final states `[n, d]` that predict these (copy, position) pairs; under the shift those of the rows before."""
        length = self.hidden.shape[1]
        if self.chains is None:
            sources, places = self.hidden.flatten(0, 1), [self._place(copy) * length + i for copy, i in rows]
        else:
            # no row lies before a text's first block; a prompt fills that position
            before = self.hidden.new_zeros(1, self.hidden.shape[2]) if self.last_hidden is None else self.last_hidden
            sources = torch.cat((before.view(1, -1), self.hidden.flatten(0, 1)))
            places = []
            for copy, position in rows:
                chain = self.chains[copy]
                if position:
                    places.append(self._place(copy) * length + position)
                else:
                    places.append((self._place(chain[-1]) + 1) * length if chain else 0)
        return sources.index_select(0, torch.tensor(places, dtype=torch.long, device=sources.device))

    def _place(self, copy: int) -> int:
        place = self.place[copy]
        assert place is not None, "a copy that is read further on is run"
        return place


@torch.inference_mode()
def read_logits(wanted: Sequence[tuple[PassOutput, Sequence[tuple[int, int]]]]) -> list[Tensor]:
    """fp32 logits of (copy, position) pairs of several outputs of one model, in one product: `[n, V]` each."""
    chosen = [output.predicting_rows(rows) for output, rows in wanted]
    sizes = [len(rows) for rows in chosen]
    product = F.linear(pad_rows(torch.cat(chosen)), wanted[0][0].lm_head)
    return list(product[: sum(sizes)].float().split(sizes))


class PartLayout:
    """Where the rows of one part lie in its pass: those of its prompt, then those of its copies, from `first` on.

    Claims the prompt's rows in the cache; they are written layer by layer, before any row reads them.
    """

    def __init__(self, part: PassPart, spec: ModelSpec, first: int, device: torch.device) -> None:
        self.part, self.spec, self.cache = part, spec, part.cache
        self.first, self.num_prompt = first, len(part.prompt)
        self.begin, self.end = self.cache.length, self.cache.length + self.num_prompt
        length = self.cache.block_length
        assert self.num_prompt % length == 0, f"{self.num_prompt} tokens are no whole blocks of {length}"
        assert self.end <= self.cache.max_length, f"{self.end} rows exceed the {self.cache.max_length} of the cache"
        self.cache.length = self.end
        check_copies(self.cache, part.copies, spec)
        self.order, self.groups = group_copies(part.copies, [is_run(copy, spec) for copy in part.copies])
        self.num_rows = self.num_prompt + len(self.order) * length
        self.visible = block_causal(self.num_prompt, self.end, length, device)
        shape = (spec.num_layers, spec.num_kv_heads, len(self.order), length, spec.head_dim)
        self.keys, self.values = self.cache.keys.new_empty(shape), self.cache.values.new_empty(shape)

    @property
    def tokens(self) -> list[int]:
        copies = self.part.copies
        return [*self.part.prompt, *(token for i in self.order for token in copies[i].tokens)]

    @property
    def positions(self) -> list[int]:
        """Absolute positions of the rows."""
        length, copies = self.cache.block_length, self.part.copies
        behind = self.end if self.cache.next_position is None else self.cache.next_position
        starts = [behind + copies[i].block * length for i in self.order]
        return [*range(self.begin, self.end), *(start + i for start in starts for i in range(length))]

    @property
    def read(self) -> list[int]:
        """The rows of the pass whose final states are asked for."""
        length, behind = self.cache.block_length, self.first + self.num_prompt
        rows = [behind - 1] if self.spec.logit_shift and self.num_prompt else []
        for place, copy in enumerate(self.order):
            rows += [behind + place * length + i for i in rows_read(self.part.copies[copy], self.spec.logit_shift)]
        return rows

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
        """Attention of the part's rows in one layer, piece by piece; `q`, `k`, `v` are the pass's.

        Keeps the copies' keys and values, writes the prompt's into the cache.
        """
        q, k, v = (x[self.first : self.first + self.num_rows] for x in (q, k, v))
        cache, num_prompt, attended = self.cache, self.num_prompt, []
        if num_prompt:
            cache.keys[layer, :, self.begin : self.end] = k[:num_prompt].transpose(0, 1)
            cache.values[layer, :, self.begin : self.end] = v[:num_prompt].transpose(0, 1)
            attended.append(attend_prompt(q[:num_prompt], cache, layer, self.visible))
        if self.order:
            for kept, rows in ((self.keys, k), (self.values, v)):
                own = rows[num_prompt:].unflatten(0, (len(self.order), self.cache.block_length))
                kept[layer].copy_(own.permute(2, 0, 1, 3))
            own = self.keys[layer], self.values[layer]
            attended.append(attend_copies(q[num_prompt:], own, cache, layer, self.groups))
        return attended or [q.flatten(1)]  # a part without rows

    def output(self, x: Tensor, lm_head: Tensor) -> PassOutput:
        """What is left of the final normed states `x` of the whole pass."""
        behind = self.first + self.num_prompt
        if self.spec.logit_shift and self.num_prompt:
            self.cache.last_hidden = x[behind - 1]
        hidden = x[behind : self.first + self.num_rows].unflatten(0, (len(self.order), self.cache.block_length))
        keys, values = self.keys.transpose(1, 2), self.values.transpose(1, 2)
        run = sorted(self.order)
        if self.order != run:
            back = torch.tensor(self.order, device=x.device).argsort()
            keys, values, hidden = keys[:, back], values[:, back], hidden[back]
        place = {copy: index for index, copy in enumerate(run)}
        copies = self.part.copies
        return PassOutput(
            keys,
            values,
            hidden,
            lm_head,
            tuple(place.get(index) for index in range(len(copies))),
            tuple(copy.ancestors for copy in copies) if self.spec.logit_shift else None,
            self.cache.last_hidden,
        )


def is_run(copy: BlockCopy, spec: ModelSpec) -> bool:
    """Whether any row of a copy is needed: not if all it asks for is predicted by the row before it."""
    return copy.read != (0,) or not spec.logit_shift


def rows_read(copy: BlockCopy, logit_shift: bool) -> Sequence[int]:
    """The rows of a copy, by position, whose final states are asked for."""
    if copy.read is None:
        return range(len(copy.tokens))
    if not logit_shift:
        return copy.read
    # the last row of a finished block predicts the next block's first token
    return [position - 1 for position in copy.read if position] if copy.read else [len(copy.tokens) - 1]


def check_copies(cache: BlockCache, copies: Sequence[BlockCopy], spec: ModelSpec) -> None:
    """Assert that ancestors form chains and that no copy lies behind the cache or the context."""
    length = cache.block_length
    for copy in copies:
        chain = copy.ancestors
        assert len(copy.tokens) == length, f"a copy has {len(copy.tokens)} tokens, the block length is {length}"
        assert copy.read is None or list(copy.read) == sorted(copy.read), "positions that are read ascend"
        assert len(chain) == copy.block, "one ancestor copy per uncached block before the copy"
        assert all(copies[a].ancestors == chain[:i] for i, a in enumerate(chain)), "ancestors form no chain"
        end = cache.length + copy.block * length
        assert end <= cache.max_length, f"lookahead to row {end} exceeds the cache's {cache.max_length} rows"
        assert end + length <= spec.max_position_embeddings, "a copy lies behind the context"


def group_copies(copies: Sequence[BlockCopy], run: Sequence[bool]) -> tuple[list[int], list[CopyGroup]]:
    """An inner order of the copies that are run, in which those with the same ancestors are neighbours; its groups."""
    chains: dict[tuple[int, ...], list[int]] = {}
    for index, copy in enumerate(copies):
        if run[index]:
            chains.setdefault(copy.ancestors, []).append(index)
    order = [index for members in chains.values() for index in members]
    place = {index: i for i, index in enumerate(order)}
    groups, start = [], 0
    for chain, members in chains.items():
        groups.append(CopyGroup(start, start + len(members), tuple(place[a] for a in chain)))
        start += len(members)
    return order, groups


def prefill_rows(block_length: int) -> int:
    """Rows of a prompt that one pass takes: about `PREFILL_ROWS`, in whole blocks."""
    return max(block_length, PREFILL_ROWS // block_length * block_length)


def pad_rows(x: Tensor) -> Tensor:
    """`x [rows, …]` with zero rows appended up to a multiple of 16, at least 16."""
    missing = -x.shape[0] % ROW_MULTIPLE if x.shape[0] else ROW_MULTIPLE
    return torch.cat((x, x.new_zeros(missing, *x.shape[1:]))) if missing else x
