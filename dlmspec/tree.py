"""The draft tree: candidate block states that one target pass scores together.

A node is one block state. Nodes under a final node belong to the next block and see that final node's rows:
their `ancestors` name it. The tree never decides anything; it only says what is worth computing early.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

from dlmspec.state import BlockState


@dataclass(frozen=True, slots=True)
class DraftNode:
    """One candidate state. `block` counts blocks from the root's block (0 = the same block).

    `ancestors` are the node indices of the final states of the blocks between the root's block and this one,
    oldest first, so `len(ancestors) == block`. `mass` is the drafter's probability that the walk reaches the node.
    """

    state: BlockState
    block: int
    ancestors: tuple[int, ...]
    mass: float
    is_final: bool


@dataclass(slots=True)
class DraftTree:
    """Nodes in parent-before-child order; node 0 is the root, the true current state."""

    nodes: list[DraftNode] = field(default_factory=list)
    index: dict[Hashable, int] = field(default_factory=dict)

    @classmethod
    def from_root(cls, root: BlockState) -> "DraftTree":
        tree = cls()
        tree.add(DraftNode(root, 0, (), 1.0, False))
        return tree

    def __len__(self) -> int:
        return len(self.nodes)

    def add(self, node: DraftNode) -> int:
        """Insert `node` unless an equal one (same block, state and ancestors) is there; return its index."""
        key = node_key(node.state, node.ancestors, node.is_final)
        found = self.index.get(key)
        if found is not None:
            return found
        assert len(node.ancestors) == node.block, "one ancestor copy per earlier block"
        self.index[key] = len(self.nodes)
        self.nodes.append(node)
        return len(self.nodes) - 1

    def find(self, state: BlockState, ancestors: tuple[int, ...], is_final: bool) -> int | None:
        """Index of the node that holds `state` under the same committed ancestors, if there is one."""
        return self.index.get(node_key(state, ancestors, is_final))

    @property
    def expected_steps(self) -> float:
        """Reference steps that the drafter expects this pass to advance (1 + mass of non-final nodes)."""
        return 1.0 + sum(node.mass for node in self.nodes[1:] if not node.is_final)


def node_key(state: BlockState, ancestors: tuple[int, ...], is_final: bool) -> Hashable:
    """Identity of a node: a final state without history is the same whatever step reached it."""
    step = None if is_final and not state.aux else state.step
    return (ancestors, state.tokens, step, state.aux)
