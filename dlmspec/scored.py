"""The states that passes have scored: what the walk and the drafters need not ask the target again.

A state's logits depend on its tokens and the committed text before its block, not on the pass that scored it. So a
state that was drafted in one order stays known when the target reaches it later in another: such states are kept as
long as the root can still grow into them.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from torch import Tensor

from dlmspec.evidence import Evidence
from dlmspec.models.transformer import ROW_MULTIPLE, PassOutput
from dlmspec.request import Request
from dlmspec.state import BlockState
from dlmspec.tree import Chain, DraftTree, state_key

class LogitReader:
    """Logits of the nodes of one pass, those that are asked for.

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


@dataclass(slots=True, eq=False)
class Scored:
    """One scored state: where its rows lie, and what was worked out of them."""

    state: BlockState
    chain: Chain
    reader: LogitReader
    node: int
    successor: BlockState | None = None  # once asked for
    evidence: Evidence | None = None  # likewise

    @property
    def logits(self) -> Tensor:
        """`[M, V]`, of its masked positions."""
        return self.reader.logits(self.node)

    def store(self, request: Request) -> None:
        """Commit the rows of this final state to the request's cache."""
        self.reader.output.store(request.cache, self.reader.offset + self.node)


class ScoredStates:
    """Of one request: the scored states that it can still reach, by committed tokens and state."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.entries: dict[Hashable, Scored] = {}

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, tree: DraftTree, output: PassOutput, offset: int) -> None:
        """The nodes of a pass over `tree`, node `i` as its copy `offset + i`."""
        reader = LogitReader(tree, output, offset, self.request.spec.mask_id)
        for index, node in enumerate(tree.nodes):
            chain = tuple(tree.nodes[ancestor].state.tokens for ancestor in node.ancestors)
            self.entries[state_key(chain, node.state, node.is_final)] = Scored(node.state, chain, reader, index)

    def find(self, state: BlockState, chain: Chain = ()) -> Scored | None:
        """The scored state, if it is one; `chain` names the final states before it, from the request's block on."""
        return self.entries.get(state_key(chain, state, self.request.law.is_final(state)))

    def successor(self, scored: Scored) -> BlockState:
        """`F` of a scored state that is not final."""
        if scored.successor is None:
            block = self.request.block + len(scored.chain)
            scored.successor = self.request.law.denoise(scored.state, scored.logits, block)
        return scored.successor

    def evidence(self, scored: Scored) -> Evidence:
        """What a drafter reads of a scored state."""
        if scored.evidence is None:
            block = self.request.block + len(scored.chain)
            law, successor = self.request.law, self.successor(scored)
            scored.evidence = Evidence(block, scored.state, scored.logits, law, successor)
        return scored.evidence

    def known(self, state: BlockState, chain: Chain) -> Evidence | None:
        """The evidence of a state that has been scored and is not final."""
        scored = self.find(state, chain)
        return None if scored is None or self.request.law.is_final(state) else self.evidence(scored)

    def finish_block(self, tokens: tuple[int, ...]) -> None:
        """The request's block ended in these tokens: states behind another end are out of reach."""
        behind = [scored for scored in self.entries.values() if scored.chain and scored.chain[0] == tokens]
        self.entries = {}
        for scored in behind:
            scored.chain = scored.chain[1:]
            self.entries[state_key(scored.chain, scored.state, self.request.law.is_final(scored.state))] = scored

    def prune(self) -> None:
        """Drop what the request's root cannot grow into any more."""
        root, mask_id = self.request.root, self.request.spec.mask_id
        open_here = set(root.masked_positions(mask_id))

        def is_ahead(scored: Scored) -> bool:
            if scored.chain:
                return follows(BlockState(scored.chain[0], 0), root, open_here)
            return scored.state.step > root.step and follows(scored.state, root, open_here)

        self.entries = {key: scored for key, scored in self.entries.items() if is_ahead(scored)}
