"""Verification by state equality: which nodes of a scored tree lie on the target's own trajectory.

Walks from the root: the target's successor of a node is computed by the one denoising step of the package, and the
walk goes on only if that very state is a node under the same committed ancestors. So it visits reference states
only, whatever the drafter proposed, and the last successor is a free step.
"""

from dataclasses import dataclass

from torch import Tensor

from dlmspec.models.transformer import PassOutput
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


def verify(request: Request, tree: DraftTree, output: PassOutput, offset: int) -> Verification:
    """Walk `tree`, scored by `output` with node `i` as copy `offset + i`; moves `request` along.

    Stores the KV rows of accepted final nodes in the request's cache (commit folding).
    """
    visited: list[ScoredNode] = []
    stored: list[int] = []
    mask_id = request.spec.mask_id
    current: int | None = 0
    while current is not None and not request.is_finished:
        node = tree.nodes[current]
        block = request.block
        logits = output.logits(offset + current, node.state.masked_positions(mask_id))
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
