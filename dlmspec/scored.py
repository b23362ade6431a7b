"""The states that passes have scored: what the walk and the drafters need not ask the target again.

A state's logits depend on its tokens and the committed text before its block, not on the pass that scored it. So a
state that was drafted in one order stays known when the target reaches it later in another: such states are kept as
long as the root can still grow into them.
"""

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from dlmspec.evidence import Evidence
from dlmspec.memory import ScoredRows
from dlmspec.request import Request
from dlmspec.state import BlockState
from dlmspec.tree import Chain, DraftTree, state_key

Commits = frozenset[tuple[int, int]]  # (position, token) pairs of a block
READ_ROWS = 32  # of one product with the output embedding: little dearer than 16, and it mostly holds a whole walk


class LogitReader:
    """Logits of the nodes of one pass, those that are asked for.

    What a node leaves free of a product goes to the heaviest of the states that may follow it: the walk then mostly
    finds them read.
    """

    def __init__(self, tree: DraftTree, scored: ScoredRows, mask_id: int) -> None:
        self.tree, self.scored = tree, scored
        self.positions = [node.state.masked_positions(mask_id) for node in tree.nodes]
        self.commits = [commits_of(node.state.tokens, mask_id) for node in tree.nodes]
        self.read: dict[int, Tensor] = {}

    def logits(self, index: int) -> Tensor:
        """Rows `[M, V]` of the masked positions of one node."""
        self.read_with_followers(index)
        return self.read[index]

    def read_with_followers(self, index: int) -> list[int]:
        """Read a node; the nodes that were read with it, itself first, or none if it was read before."""
        if index in self.read:
            return []
        chosen = [index, *self._followers(index)]
        rows = [row for node in chosen for row in self.scored.rows(node, self.positions[node])]
        parts = self.scored.output.logit_rows(rows).split([len(self.positions[node]) for node in chosen])
        self.read.update(zip(chosen, parts, strict=True))
        return chosen

    def _followers(self, index: int) -> list[int]:
        """The heaviest unread states behind a node, as long as their rows fill up its product."""
        root, room = self.tree.nodes[index], -len(self.positions[index]) % READ_ROWS
        followers = [
            (-node.mass, other)
            for other, node in enumerate(self.tree.nodes)
            if other not in self.read
            and node.ancestors == root.ancestors
            and 0 < len(self.positions[other]) <= room
            and node.state.step > root.state.step
            and self.commits[index] <= self.commits[other]
        ]
        chosen: list[int] = []
        for _, other in sorted(followers):
            if len(self.positions[other]) <= room:
                chosen.append(other)
                room -= len(self.positions[other])
        return chosen


def commits_of(tokens: tuple[int, ...], mask_id: int) -> Commits:
    """What is decided in a block."""
    return frozenset((position, token) for position, token in enumerate(tokens) if token != mask_id)


def agree(commits: Commits, others: Commits) -> bool:
    """Whether no position has another token in one than in the other."""
    both = commits | others
    return len(dict(both)) == len(both)


@dataclass(slots=True, eq=False)
class Scored:
    """One scored state: where its rows lie, and what was worked out of them."""

    state: BlockState
    chain: Chain
    reader: LogitReader
    peers: "list[Scored]"  # of the same pass, by node
    node: int
    successor: BlockState | None = None  # once asked for
    evidence: Evidence | None = None  # likewise

    @property
    def logits(self) -> Tensor:
        """`[M, V]`, of its masked positions."""
        return self.reader.logits(self.node)

    @property
    def commits(self) -> Commits:
        """What is decided in it."""
        return self.reader.commits[self.node]

    def read_along(self) -> "list[Scored]":
        """The states whose logits came with this one's, if it is read only now."""
        return [self.peers[index] for index in self.reader.read_with_followers(self.node)[1:]]


class ScoredStates:
    """Of one request: the scored states that may still tell something, by committed tokens and state.

    Those that the root can grow into are walked again without a pass; of those that only agree with it the
    distributions are read, which are fresher than the root's own for what follows from both.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.entries: dict[Hashable, Scored] = {}
        self._root = self._commits(request.root.tokens)

    def add(self, tree: DraftTree, rows: ScoredRows) -> list[Scored]:
        """Take in the nodes of a pass over `tree`; returns them by node."""
        reader = LogitReader(tree, rows, self.request.spec.mask_id)
        peers: list[Scored] = []
        for index, node in enumerate(tree.nodes):
            chain = tuple(tree.nodes[ancestor].state.tokens for ancestor in node.ancestors)
            peers.append(Scored(node.state, chain, reader, peers, index))
            self.entries[state_key(chain, node.state, node.is_final)] = peers[-1]
        return peers

    def find(self, state: BlockState, chain: Chain = ()) -> Scored | None:
        """The scored state, if it is one; `chain` names the final states before it, from the request's block on."""
        return self.entries.get(state_key(chain, state, self.request.law.is_final(state)))

    def denoise(self, scored: Scored) -> BlockState:
        """`F` of a scored state that is not final."""
        if scored.successor is None:
            together = [scored, *(other for other in scored.read_along() if other.successor is None)]
            block = self.request.block + len(scored.chain)
            logits = torch.cat([other.logits for other in together])
            successors = self.request.law.denoise([other.state for other in together], logits, block)
            for other, successor in zip(together, successors, strict=True):
                other.successor = successor
        assert scored.successor is not None, "just worked out"
        return scored.successor

    def successor(self, state: BlockState, chain: Chain) -> BlockState | None:
        """What follows this state, if it has been scored and is not final."""
        scored = self.find(state, chain)
        return None if scored is None or self.request.law.is_final(state) else self.denoise(scored)

    def freshest(self, state: BlockState, chain: Chain, step: int) -> Evidence | None:
        """What a drafter may read of the latest scored state, past `step`, from which `state` may have come."""
        commits = self._commits(state.tokens)
        earlier = [
            scored
            for scored in self.entries.values()
            if step < scored.state.step < state.step
            and scored.chain == chain
            and scored.commits < commits
            and self._next(scored) <= commits
        ]
        latest = max(earlier, key=lambda scored: scored.state.step, default=None)
        return None if latest is None else self._evidence(latest)

    def _evidence(self, scored: Scored) -> Evidence:
        if scored.evidence is None:
            block = self.request.block + len(scored.chain)
            taken = frozenset(position for position, _ in self._next(scored) - scored.commits)
            scored.evidence = Evidence(block, scored.state, scored.logits, self.request.law, taken)
        return scored.evidence

    def _next(self, scored: Scored) -> Commits:
        """What is committed soon after a scored state: what the root has and it lacks, else what its step commits."""
        root = frozenset() if scored.chain else self._root
        if root <= scored.commits:
            return self._commits(self.denoise(scored).tokens)
        return scored.commits | root

    def _commits(self, tokens: tuple[int, ...]) -> Commits:
        return commits_of(tokens, self.request.spec.mask_id)

    def finish_block(self, tokens: tuple[int, ...]) -> None:
        """The request's block ended in these tokens: states behind another end are out of reach."""
        behind = [scored for scored in self.entries.values() if scored.chain and scored.chain[0] == tokens]
        self.entries = {}
        for scored in behind:
            scored.chain = scored.chain[1:]
            self.entries[state_key(scored.chain, scored.state, self.request.law.is_final(scored.state))] = scored

    def prune(self) -> None:
        """Drop what the request's root has left behind, or contradicts."""
        root, self._root = self.request.root, self._commits(self.request.root.tokens)

        def is_of_use(scored: Scored) -> bool:
            if scored.chain:
                return agree(frozenset(enumerate(scored.chain[0])), self._root)
            # a final state is the same whatever step reached it, and what was scored behind it needs its rows
            is_ahead = scored.state.step >= root.step or self.request.law.is_final(scored.state)
            return is_ahead and agree(scored.commits, self._root)

        self.entries = {key: scored for key, scored in self.entries.items() if is_of_use(scored)}
        for scored in self.entries.values():
            if not scored.chain:
                scored.evidence = None  # the root went on, so more is known to follow it
