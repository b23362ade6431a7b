"""What one request keeps of its passes: by cache semantics, how states become a pass and what stays of it.

`prefix`: of block-causal families, the keys and values of finished blocks (exact). For full-attention families: `none`,
nothing is kept, every state is run within its whole canvas (exact against the families' own loops); `dual`, a block's
first pass runs the whole canvas and freezes what lies outside the block (Fast-dLLM's dual cache, arXiv 2505.22618).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dlmspec.cache import BlockCache
from dlmspec.grid import Grid
from dlmspec.models.spec import ModelSpec
from dlmspec.models.target import Target
from dlmspec.models.target_pass import BlockCopy, PassOutput, PassPart, prefill_rows
from dlmspec.tree import DraftTree


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """Where the nodes of a tree lie in a pass: `copies` by node (None: it was not run), and the place in its copy of
    the first position of a node's block."""

    output: PassOutput
    copies: tuple[int | None, ...]
    starts: tuple[int, ...]

    def rows(self, node: int, positions: Sequence[int]) -> list[tuple[int, int]]:
        """(copy, place) pairs of positions of a node's block."""
        copy = self.copies[node]
        assert copy is not None, "a state that is read is run"
        return [(copy, self.starts[node] + position) for position in positions]


class Memory(Protocol):
    """The cache semantics of one request."""

    looks_ahead: bool  # whether states of later blocks can be scored, under guessed ends of this one

    def prompt_part(self, least: int) -> PassPart | None:
        """A pass over the prompt alone, as long as more than `least` rows of it are to be run."""
        ...

    def store_part(self) -> PassPart | None:
        """A pass over the last finished block alone, if its rows are still to be kept."""
        ...

    def store(self, output: PassOutput, copy: int) -> None:
        """Keep the rows of the last finished block, a copy of a pass."""
        ...

    def part(self, tree: DraftTree) -> PassPart:
        """The request's share of the next pass."""
        ...

    def take(self, output: PassOutput, tree: DraftTree) -> ScoredRows:
        """Keep what the pass tells for good; says where the nodes lie."""
        ...

    def finish(self, tokens: tuple[int, ...], rows: ScoredRows | None, node: int) -> None:
        """The block ended in these tokens; `rows` hold them as `node`, where they have been scored."""
        ...

    def most_nodes(self, budget: int) -> int:
        """How many states the next pass can score, of as many as `budget`."""
        ...


class PrefixMemory:
    """Keys and values of finished blocks; the last one's ride in the next pass unless its final state was scored."""

    looks_ahead = True

    def __init__(self, target: Target, prompt_ids: Sequence[int], limit: int) -> None:
        self.spec = target.spec
        self.cache = target.new_cache(limit)
        whole = len(prompt_ids) // self.spec.block_length * self.spec.block_length
        self.uncached: Sequence[int] = prompt_ids[:whole]  # of the prompt, still to be run
        self.pending: tuple[int, ...] | None = None  # the last finished block, while its rows are not kept

    def prompt_part(self, least: int) -> PassPart | None:
        if len(self.uncached) <= least:
            return None
        rows = prefill_rows(self.spec.block_length)
        now, self.uncached = self.uncached[:rows], self.uncached[rows:]
        return PassPart(self.cache, (), now)

    def store_part(self) -> PassPart | None:
        return None if self.pending is None else PassPart(self.cache, [BlockCopy(self.pending, 0, (), ())])

    def part(self, tree: DraftTree) -> PassPart:
        prompt, self.uncached = self.uncached, ()
        pending = [] if self.pending is None else [BlockCopy(self.pending, 0, (), ())]
        offset = len(pending)
        copies = pending + [
            BlockCopy(
                node.state.tokens,
                node.block + offset,
                (*range(offset), *(ancestor + offset for ancestor in node.ancestors)),
                node.state.masked_positions(self.spec.mask_id),
            )
            for node in tree.nodes
        ]
        return PassPart(self.cache, copies, prompt)

    def take(self, output: PassOutput, tree: DraftTree) -> ScoredRows:
        offset = 0 if self.pending is None else 1
        if offset:
            self.store(output, 0)
        return ScoredRows(output, tuple(range(offset, offset + len(tree))), (0,) * len(tree))

    def store(self, output: PassOutput, copy: int) -> None:
        output.store(self.cache, copy)
        self.pending = None

    def finish(self, tokens: tuple[int, ...], rows: ScoredRows | None, node: int) -> None:
        assert self.pending is None, "a finished block is stored before the next one ends"
        if rows is None:
            self.pending = tokens
            return
        copy = rows.copies[node]
        assert copy is not None, "a final state is run"
        self.store(rows.output, copy)

    def most_nodes(self, budget: int) -> int:
        return budget


class CanvasMemory:
    """Nothing is kept: every state is run in its canvas, the prompt, what is committed, and masks to the end."""

    looks_ahead = True

    def __init__(self, target: Target, prompt_ids: Sequence[int], limit: int) -> None:
        self.spec, self.grid = target.spec, Grid.of(target.spec, len(prompt_ids))
        self.length = self.grid.start(self.grid.num_blocks(limit))
        self.cache = BlockCache(self.spec, 0, block_length=self.length, dtype=target.dtype, device=target.device)
        self.block = self.grid.block_of(len(prompt_ids))
        self.before = tuple(prompt_ids[: self.grid.start(self.block)])

    def prompt_part(self, least: int) -> PassPart | None:
        return None

    def store_part(self) -> PassPart | None:
        return None

    def store(self, output: PassOutput, copy: int) -> None:
        raise AssertionError("no rows are kept")

    def canvas(self, tree: DraftTree, index: int) -> BlockCopy:
        """A node within its canvas; the masked positions of its block are read."""
        node, start = tree.nodes[index], self.start(tree, index)
        chain = [token for ancestor in node.ancestors for token in tree.nodes[ancestor].state.tokens]
        tokens = (*self.before, *chain, *node.state.tokens)
        masks = (self.spec.mask_id,) * (self.length - len(tokens))
        read = tuple(start + position for position in node.state.masked_positions(self.spec.mask_id))
        return BlockCopy(tokens + masks, 0, (), read)

    def start(self, tree: DraftTree, index: int) -> int:
        """Where a node's block begins in the canvas."""
        return len(self.before) + tree.nodes[index].block * self.grid.block_length

    def part(self, tree: DraftTree) -> PassPart:
        return PassPart(self.cache, [self.canvas(tree, index) for index in range(len(tree)) if is_read(tree, index)])

    def take(self, output: PassOutput, tree: DraftTree) -> ScoredRows:
        read = [index for index in range(len(tree)) if is_read(tree, index)]
        copies = {index: copy for copy, index in enumerate(read)}
        indices = range(len(tree))
        return ScoredRows(output, tuple(map(copies.get, indices)), tuple(self.start(tree, i) for i in indices))

    def finish(self, tokens: tuple[int, ...], rows: ScoredRows | None, node: int) -> None:
        self.before += tokens

    def most_nodes(self, budget: int) -> int:
        return budget


def is_read(tree: DraftTree, index: int) -> bool:
    """Whether a node has logits to read: a final state only stands for its tokens."""
    return not tree.nodes[index].is_final


class DualMemory(CanvasMemory):
    """A block's first pass runs the canvas of its first state; later ones its rows over the others' frozen ones."""

    looks_ahead = False

    def __init__(self, target: Target, prompt_ids: Sequence[int], limit: int) -> None:
        super().__init__(target, prompt_ids, limit)
        self.frozen: BlockCache | None = None

    def part(self, tree: DraftTree) -> PassPart:
        if self.frozen is None:
            assert len(tree) == 1, "a block's first pass scores its first state"
            return super().part(tree)
        mask_id = self.spec.mask_id
        copies = [BlockCopy(node.state.tokens, 0, (), node.state.masked_positions(mask_id)) for node in tree.nodes]
        return PassPart(self.frozen, copies)

    def take(self, output: PassOutput, tree: DraftTree) -> ScoredRows:
        if self.frozen is not None:
            return ScoredRows(output, tuple(range(len(tree))), (0,) * len(tree))
        self.frozen = self._freeze(output)
        return super().take(output, tree)

    def _freeze(self, output: PassOutput) -> BlockCache:
        """The rows outside the block, of a pass over its first state's canvas."""
        start, stop = len(self.before), len(self.before) + self.grid.block_length
        frozen = BlockCache(
            self.spec,
            self.length - self.grid.block_length,
            block_length=self.grid.block_length,
            dtype=self.cache.keys.dtype,
            device=self.cache.keys.device,
        )
        frozen.length, frozen.next_position = self.length - self.grid.block_length, start
        for kept, rows in ((frozen.keys, output.keys[:, 0]), (frozen.values, output.values[:, 0])):
            kept[:, :, :start] = rows[:, :, :start]
            kept[:, :, start : frozen.length] = rows[:, :, stop:]
        frozen.last_hidden = output.hidden[0, start - 1]
        return frozen

    def finish(self, tokens: tuple[int, ...], rows: ScoredRows | None, node: int) -> None:
        super().finish(tokens, rows, node)
        self.frozen = None

    def most_nodes(self, budget: int) -> int:
        return 1 if self.frozen is None else budget


MEMORIES: dict[str, Callable[[Target, Sequence[int], int], Memory]] = {
    "prefix": PrefixMemory,
    "none": CanvasMemory,
    "dual": DualMemory,
}


CHOICES = {"block_causal": ("prefix",), "full": ("none", "dual")}  # by attention, the exact one first


def cache_semantics(spec: ModelSpec, asked: str | None) -> str:
    """The semantics of a request: what was asked for, else the family's exact one.

    Raises ValueError if the family has no such semantics.
    """
    choices = CHOICES[spec.attention]
    if asked is not None and asked not in choices:
        raise ValueError(f"cache {asked!r} is not defined for {spec.family}; choose {' or '.join(choices)}")
    return asked or choices[0]
