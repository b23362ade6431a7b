"""The draft tree: candidate block states that one target pass scores together.

A node is one block state. Nodes under a final node belong to the next block and see that final node's rows:
their `ancestors` name it. The tree never decides anything; it only says what is worth computing early.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

from dlmspec.state import BlockState

Chain = tuple[tuple[int, ...], ...]  # tokens of the final states of the blocks between the root's and a state's own


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
    """Nodes in parent-before-child order; node 0 is the root, the true current state.

    `known_steps` is the mass of the states on the way that earlier passes have scored: they need no node.
    """

    nodes: list[DraftNode] = field(default_factory=list)
    known_steps: float = 0.0
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
        key = state_key(node.ancestors, node.state, node.is_final)
        found = self.index.get(key)
        if found is not None:
            return found
        assert len(node.ancestors) == node.block, "one ancestor copy per earlier block"
        self.index[key] = len(self.nodes)
        self.nodes.append(node)
        return len(self.nodes) - 1

    def find(self, state: BlockState, ancestors: tuple[int, ...], is_final: bool) -> int | None:
        """Index of the node that holds `state` under the same committed ancestors, if there is one."""
        return self.index.get(state_key(ancestors, state, is_final))

    @property
    def expected_steps(self) -> float:
        """Reference steps that the drafter expects this pass to advance (1 + mass of non-final states)."""
        return 1.0 + self.known_steps + sum(node.mass for node in self.nodes[1:] if not node.is_final)


def state_key(ancestors: Hashable, state: BlockState, is_final: bool) -> Hashable:
    """Identity of a state under its ancestors: a final one without history is the same whatever step reached it."""
    step = None if is_final and not state.aux else state.step
    return (ancestors, state.tokens, step, state.aux)
