"""Ceilings: drafters that have seen the reference decode. `oracle` knows order and tokens, `oracle-order` the order.

They run the reference first, so their passes mean something and their seconds do not.
"""

from collections.abc import Hashable

from dlmspec.config import DecodeConfig
from dlmspec.drafters.base import DraftContext, Proposer
from dlmspec.drafters.growth import Step, grow_tree
from dlmspec.evidence import Evidence
from dlmspec.models.target import Target
from dlmspec.state import BlockState
from dlmspec.tree import DraftNode, DraftTree


class Trajectory:
    """The successors of a reference decode, by absolute block and step; a step observer."""

    def __init__(self) -> None:
        self.successors: dict[tuple[int, int], BlockState] = {}

    def __call__(self, block: int, state: BlockState, logits: object, successor: BlockState) -> None:
        self.successors[block, state.step] = successor


class Replaying:
    """What the two ceilings share: trajectories, kept for when a benchmark asks at another budget.

    The oracle itself stands for no request; `begin` gives one that does.
    """

    def __init__(self, trajectory: Trajectory | None = None) -> None:
        self.known: dict[Hashable, Trajectory] = {}
        self.trajectory = trajectory or Trajectory()

    def begin(self, target: Target, prompt_ids: list[int], config: DecodeConfig) -> Proposer:
        from dlmspec.decode import reference_decode  # the decoders take drafters, so this arrow has to be late

        key = (target, tuple(prompt_ids), config)
        if key not in self.known:
            trajectory = Trajectory()
            reference_decode(target, prompt_ids, config, observer=trajectory)
            self.known[key] = trajectory
        return type(self)(self.known[key])  # pyright: ignore[reportReturnType]


class OracleDrafter(Replaying):
    """The true future as a chain: the ceiling of the budget."""

    name = "oracle"

    def propose(self, context: DraftContext, budget: int) -> DraftTree:
        tree = DraftTree.from_root(context.root)
        current = 0
        while len(tree) < budget:
            node = tree.nodes[current]
            block = context.block + node.block
            successor = self.trajectory.successors.get((block, node.state.step))
            if successor is None or context.ends(successor, block):
                break
            is_final = context.rule.is_final(successor, context.mask_id)
            if not is_final:
                current = tree.add(DraftNode(successor, node.block, node.ancestors, 1.0, False))
                continue
            if len(tree) + 2 > budget:
                break
            final = tree.add(DraftNode(successor, node.block, node.ancestors, 1.0, True))
            fresh = context.fresh_state(block + 1)
            current = tree.add(DraftNode(fresh, node.block + 1, (*node.ancestors, final), 1.0, False))
        return tree


class OracleOrderDrafter(Replaying):
    """The true order with stale coupled tokens, as a chain: the ceiling of any order model without alternatives."""

    name = "oracle-order"

    def propose(self, context: DraftContext, budget: int) -> DraftTree:
        return grow_tree(context, budget, self._steps)

    def _steps(self, states: list[BlockState], evidence: Evidence, context: DraftContext) -> list[list[Step]]:
        candidates = evidence.candidates(states[0].step)
        return [[self._step(state, evidence.block, candidates.ids, context)] for state in states]

    def _step(self, state: BlockState, block: int, ids: list[list[int]], context: DraftContext) -> Step:
        masked = state.masked_positions(context.mask_id)
        successor = self.trajectory.successors.get((block, state.step))
        positions = [p for p in masked if successor and successor.tokens[p] != context.mask_id] or masked[:1]
        return 0.999, tuple((position, ids[position][0]) for position in positions)
