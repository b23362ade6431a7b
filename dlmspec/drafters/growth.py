"""Grows a draft tree level by level from a scorer's hypothetical steps, and keeps the heaviest closed set.

A candidate's mass is the probability that the target's walk reaches it: the sum over its parents of the parent's
mass times the step's probability. A state that an earlier pass has scored costs nothing and has one child, its true
successor; what follows from other states is scored by the freshest evidence there is. Candidates that are the same
state under the same ancestors are one. A final state comes only together with the next block's fresh state, as one
item of cost 2; a state in which decoding ends never.
"""

import heapq
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from dlmspec.drafters.base import DraftContext
from dlmspec.evidence import Evidence
from dlmspec.state import BlockState
from dlmspec.tree import Chain, DraftNode, DraftTree

MAX_DEPTH = 24
READING_WORTH = 8.0  # mass × budget² below which a candidate is not worth the cost of reading another evidence
# what reading the next block ahead is worth, in steps; without it a block's first pass advances one step only
LOOKAHEAD_WORTH = 3.0
MOST_WORTH = max(1.0, LOOKAHEAD_WORTH / 2)  # per mass and node

# one hypothetical step: its probability and the (position, token) pairs that it commits
Step = tuple[float, tuple[tuple[int, int], ...]]


@dataclass(slots=True, eq=False)
class Candidate:
    """A state that may enter the tree. `block` counts from the root's block."""

    state: BlockState
    block: int
    ancestors: tuple["Candidate", ...]
    is_final: bool
    mass: float
    order: int
    parents: list[tuple["Candidate", float]] = field(default_factory=list)
    children: list["Candidate"] = field(default_factory=list)
    companion: "Candidate | None" = None  # of a final state: the next block's fresh state
    successor: BlockState | None = None  # of a state that an earlier pass has scored

    @property
    def is_known(self) -> bool:
        """Whether an earlier pass has scored it."""
        return self.successor is not None

    @property
    def cost(self) -> int:
        if self.is_known:
            return 0
        return 1 if self.companion is None else 2

    @property
    def worth(self) -> float:
        """Mass per node; that of a final state counts more, as its companion reads the next block ahead."""
        if self.is_known:
            return 1.0 + self.mass
        return self.mass if self.companion is None else LOOKAHEAD_WORTH * self.mass / self.cost

    @property
    def chain(self) -> Chain:
        return tuple(ancestor.state.tokens for ancestor in self.ancestors)


# for parents of one block at one step, read through its evidence: their likeliest steps
Scorer = Callable[[list[BlockState], Evidence, DraftContext], list[list[Step]]]


class Growth:
    """The candidates of one proposal."""

    def __init__(self, context: DraftContext, budget: int) -> None:
        self.context, self.budget = context, budget
        self.root = Candidate(context.root, 0, (), False, 1.0, 0)
        self.candidates: dict[Hashable, Candidate] = {}
        self.items: list[Candidate] = []

    def expand(self, frontier: list[Candidate], scorer: Scorer) -> list[Candidate]:
        """Children of the frontier's worthwhile candidates: the next frontier."""
        threshold = self._threshold()
        groups: dict[tuple[Evidence, int], list[Candidate]] = {}
        fresh: list[Candidate] = []
        for candidate in frontier:
            if candidate.mass <= threshold:
                continue
            if candidate.successor is not None:
                self._add_child(candidate, 1.0, candidate.successor, fresh)
                continue
            evidence = self._evidence(candidate)
            if evidence is not None:
                groups.setdefault((evidence, candidate.state.step), []).append(candidate)
        for (evidence, _), parents in groups.items():
            proposals = scorer([parent.state for parent in parents], evidence, self.context)
            for parent, steps in zip(parents, proposals, strict=True):
                for probability, commits in heapq.nlargest(self.budget, steps, key=likelihood):
                    if parent.mass * probability > threshold:
                        self._add_child(parent, probability, successor_of(parent.state, commits), fresh)
        return fresh

    def _evidence(self, candidate: Candidate) -> Evidence | None:
        """The freshest for what follows a candidate: of a scored state on the way to it, else of its block."""
        own = self.context.evidence.get(self.context.block + candidate.block)
        if candidate is self.root or candidate.mass * self.budget**2 < READING_WORTH:
            return own
        step = -1 if own is None or candidate.block else own.state.step
        return self.context.known.freshest(candidate.state, candidate.chain, step) or own

    def _threshold(self) -> float:
        """The mass up to which neither an item nor what follows from it can enter any more."""
        room = self.budget - 1
        costly = [item.worth for item in self.items if not item.is_known]
        if len(costly) < room:
            return 0.0
        return heapq.nlargest(room, costly)[-1] / MOST_WORTH

    def _add_child(self, parent: Candidate, probability: float, state: BlockState, fresh: list[Candidate]) -> None:
        if self.context.ends(state, self.context.block + parent.block):
            return  # nothing follows: scoring it would tell nothing
        is_final = self.context.rule.is_final(state, self.context.mask_id)
        key = (parent.block, parent.ancestors and id(parent.ancestors[-1]), state.tokens)
        if not is_final:
            key = (*key, state.step)
        child = self.candidates.get(key)
        if child is None:
            child = self._new(parent, state, is_final)
            self.candidates[key] = child
            self.items.append(child)
            fresh.append(child.companion or child)
        child.parents.append((parent, probability))
        parent.children.append(child)
        child.mass += parent.mass * probability
        if child.companion is not None:
            child.companion.mass = child.mass

    def _new(self, parent: Candidate, state: BlockState, is_final: bool) -> Candidate:
        child = Candidate(state, parent.block, parent.ancestors, is_final, 0.0, 2 * len(self.items) + 1)
        if is_final:
            block = self.context.block + parent.block + 1
            start = self.context.fresh_state(block)
            companion = Candidate(start, parent.block + 1, (*parent.ancestors, child), False, 0.0, child.order + 1)
            companion.parents.append((child, 1.0))
            child.companion = companion
            return child
        child.successor = self.context.known.successor(state, child.chain)
        return child

    def select(self) -> list[Candidate]:
        """The heaviest closed set within the budget, chosen twice: masses of kept parents only count then."""
        kept = self._heaviest()
        members = {id(self.root), *map(id, kept)}
        for item in self.items:
            item.mass = sum(parent.mass * p for parent, p in item.parents if id(parent) in members)
            if item.companion is not None:
                item.companion.mass = item.mass
        return self._heaviest()

    def _heaviest(self) -> list[Candidate]:
        room = self.budget - 1
        kept: list[Candidate] = []
        queue: list[tuple[float, int, Candidate]] = []
        seen: set[int] = set()

        def offer(parent: Candidate) -> None:
            for child in parent.children:
                if id(child) not in seen and child.mass > 0:
                    seen.add(id(child))
                    heapq.heappush(queue, (-child.worth, child.order, child))

        offer(self.root)
        while queue and room:
            item = heapq.heappop(queue)[2]
            if item.cost > room:
                continue
            room -= item.cost
            kept.append(item)
            if item.companion is not None:
                kept.append(item.companion)
            offer(item.companion or item)
        return sorted(kept, key=lambda item: item.order)


def likelihood(step: Step) -> float:
    """Its probability."""
    return step[0]


def successor_of(state: BlockState, commits: tuple[tuple[int, int], ...]) -> BlockState:
    """The state after these (position, token) commits."""
    tokens = list(state.tokens)
    for position, token in commits:
        tokens[position] = token
    return BlockState(tuple(tokens), state.step + 1, state.aux)


def grow_tree(context: DraftContext, budget: int, scorer: Scorer) -> DraftTree:
    """A tree of at most `budget` nodes, grown from the evidence of the root's block and of the blocks ahead."""
    growth = Growth(context, budget)
    frontier = [growth.root]
    for _ in range(MAX_DEPTH if budget > 1 else 0):
        frontier = growth.expand(frontier, scorer)
        if not frontier:
            break
    tree = DraftTree.from_root(context.root)
    places: dict[int, int] = {id(growth.root): 0}
    for item in growth.select():
        if item.is_known:
            tree.known_steps += item.mass
            continue
        ancestors = tuple(places[id(ancestor)] for ancestor in item.ancestors)
        node = DraftNode(item.state, item.block, ancestors, item.mass, item.is_final)
        places[id(item)] = tree.add(node)
    return tree
