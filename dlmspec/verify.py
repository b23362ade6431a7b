"""Verification by state equality: which nodes of a scored tree lie on the target's own trajectory.

Walks from the root: the target's successor of a node is computed by the one denoising step of the package, and the
walk goes on only if that very state is a node under the same committed ancestors. So it visits reference states
only, whatever the drafter proposed, and the last successor is a free step.
"""

from dataclasses import dataclass

from torch import Tensor

from dlmspec.models.transformer import ROW_MULTIPLE, PassOutput
from dlmspec.request import Request
from dlmspec.state import BlockState
from dlmspec.tree import DraftTree


@dataclass(frozen=True, slots=True)
class ScoredNode:
    """A visited, non-final node: its logits `[M, V]` (masked rows) and its true successor."""

    node: int
    block: int  # absolute
    state: BlockState
    logits: Tensor
    successor: BlockState


@dataclass(frozen=True, slots=True)
class Verification:
    """The walk of one pass: `visited` scored nodes in order; `stored` final nodes whose KV is now exact."""

    visited: tuple[ScoredNode, ...]
    stored: tuple[int, ...]

    @property
    def accepted_steps(self) -> int:
        return len(self.visited)


class LogitReader:
    """Logits of the nodes that the walk asks for.

    A product with the output embedding runs on a multiple of 16 rows anyway, so what a node leaves free goes to the
    heaviest of the states that may follow it: the walk then mostly finds them read.
    """

    def __init__(self, tree: DraftTree, output: PassOutput, offset: int, mask_id: int) -> None:
        self.tree, self.output, self.offset = tree, output, offset
        self.positions = [node.state.masked_positions(mask_id) for node in tree.nodes]
        self.read: dict[int, Tensor] = {}

    def logits(self, index: int) -> Tensor:
        """Rows `[M, V]` of the masked positions of one node."""
        if index not in self.read:
            chosen = [index, *self._followers(index)]
            rows = [(self.offset + node, position) for node in chosen for position in self.positions[node]]
            parts = self.output.logit_rows(rows).split([len(self.positions[node]) for node in chosen])
            self.read.update(zip(chosen, parts, strict=True))
        return self.read[index]

    def _followers(self, index: int) -> list[int]:
        """The heaviest unread states behind a node, as long as their rows fill up its product."""
        root, open_here = self.tree.nodes[index], set(self.positions[index])
        room = -len(open_here) % ROW_MULTIPLE
        followers = [
            (-node.mass, other)
            for other, node in enumerate(self.tree.nodes)
            if other not in self.read
            and node.ancestors == root.ancestors
            and 0 < len(self.positions[other]) <= room
            and node.state.step > root.state.step
            and follows(node.state, root.state, open_here)
        ]
        chosen: list[int] = []
        for _, other in sorted(followers):
            if len(self.positions[other]) <= room:
                chosen.append(other)
                room -= len(self.positions[other])
        return chosen


def follows(state: BlockState, earlier: BlockState, open_earlier: set[int]) -> bool:
    """Whether `state` keeps every token that `earlier` has; `open_earlier` are the positions that it lacks."""
    pairs = enumerate(zip(state.tokens, earlier.tokens, strict=True))
    return all(token == old or position in open_earlier for position, (token, old) in pairs)


def verify(request: Request, tree: DraftTree, output: PassOutput, offset: int) -> Verification:
    """Walk `tree`, scored by `output` with node `i` as copy `offset + i`; moves `request` along.

    Stores the KV rows of accepted final nodes in the request's cache (commit folding).
    """
    reader = LogitReader(tree, output, offset, request.spec.mask_id)
    visited: list[ScoredNode] = []
    stored: list[int] = []
    current: int | None = 0
    while current is not None and not request.is_finished:
        node = tree.nodes[current]
        block = request.block
        logits = reader.logits(current)
        successor = request.law.denoise(node.state, logits, block)
        visited.append(ScoredNode(current, block, node.state, logits, successor))
        is_final = request.law.is_final(successor)
        found = tree.find(successor, node.ancestors, is_final)
        request.move_to(successor, block)
        if found is not None and is_final and not request.is_finished:
            output.store(request.cache, offset + found)
            request.pending = None
            stored.append(found)
            found = tree.find(request.root, (*node.ancestors, found), False)
        current = found
    return Verification(tuple(visited), tuple(stored))
