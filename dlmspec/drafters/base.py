"""The drafter protocol: read evidence, propose a tree; never decide anything."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from dlmspec.config import DecodeConfig
from dlmspec.evidence import Evidence
from dlmspec.models.target import Target
from dlmspec.rules import CommitRule
from dlmspec.state import BlockState
from dlmspec.tree import Chain, DraftTree


class KnownStates(Protocol):
    """What earlier passes have scored. `chain`: tokens of the final states between the root's block and the state's."""

    def successor(self, state: BlockState, chain: Chain) -> BlockState | None:
        """What follows a state that has been scored: it needs no node. None if it has not, or is final."""
        ...

    def freshest(self, state: BlockState, chain: Chain, step: int) -> Evidence | None:
        """The evidence of the latest scored state, past `step`, from which `state` may have come; None if none is."""
        ...


class NothingKnown:
    """No memory of earlier passes."""

    def successor(self, state: BlockState, chain: Chain) -> BlockState | None:
        return None

    def freshest(self, state: BlockState, chain: Chain, step: int) -> Evidence | None:
        return None


@dataclass(frozen=True, slots=True)
class DraftContext:
    """What one proposal may read. `evidence` maps absolute blocks to the freshest distributions of that block.

    `ends(state, block)`: whether decoding ends in this state, so that a node for it would tell nothing. `known` are the
    states that passes have scored already.
    """

    root: BlockState
    block: int
    num_blocks: int
    mask_id: int
    vocab_size: int
    rule: CommitRule
    evidence: Mapping[int, Evidence]
    fresh_state: Callable[[int], BlockState]
    ends: Callable[[BlockState, int], bool]
    known: KnownStates


class Proposer(Protocol):
    """Proposes candidate future states of one request's root. Exactness never depends on it."""

    name: str

    def propose(self, context: DraftContext, budget: int) -> DraftTree:
        """A tree of at most `budget` nodes whose node 0 is the root."""
        ...


class Drafter(Protocol):
    """Where proposers come from: one for each request."""

    name: str

    def begin(self, target: Target, prompt_ids: list[int], config: DecodeConfig) -> Proposer:
        """The proposer of a new request (only oracles, which replay the reference, need to know which)."""
        ...


class Stateless:
    """A drafter that serves all requests alike: what it may know of one comes with each context."""

    name: str

    def begin(self, target: Target, prompt_ids: list[int], config: DecodeConfig) -> Proposer:
        return self

    def propose(self, context: DraftContext, budget: int) -> DraftTree:
        raise NotImplementedError


class NoDrafter(Stateless):
    """Proposes nothing: one state per pass, the folded reference by another road."""

    name = "none"

    def propose(self, context: DraftContext, budget: int) -> DraftTree:
        return DraftTree.from_root(context.root)
