"""What passes have scored. Reading logits ahead of the walk: catches rows of another node or position, products larger
than they have to be, and room given to states that cannot follow. Remembered states: catches one that the root
contradicts, a successor of another block or chain, evidence that is older than it could be or says the wrong commits.
"""

from types import SimpleNamespace

import pytest
import torch

from dlmspec.memory import ScoredRows
from dlmspec.models.target_pass import PassOutput
from dlmspec.scored import LogitReader, ScoredStates
from dlmspec.state import BlockState
from dlmspec.step import Sampling, tempered_log_probs
from dlmspec.tree import DraftNode, DraftTree

MASK, LENGTH = 0, 11


class CountedOutput(PassOutput):
    """Random hidden states; keeps the rows of every product."""

    products: list = []  # noqa: RUF012 - a frozen slots class has no other place

    def logit_rows(self, rows):
        self.products.append(list(rows))
        return super().logit_rows(rows)


def state(*committed: int) -> BlockState:
    """A state whose positions `committed` hold 10 + position."""
    return BlockState(tuple(10 + i if i in committed else MASK for i in range(LENGTH)), len(committed))


@pytest.fixture
def reader() -> LogitReader:
    tree = DraftTree.from_root(state(0, 1, 2))  # 8 rows
    for committed, mass in (((0, 1, 2, 3), 0.5), ((0, 1, 2, 4), 0.4), ((0, 1, 2, 3, 5), 0.3), ((0, 1, 2, 4, 3), 0.2)):
        tree.add(DraftNode(state(*committed), 0, (), mass, False))
    other = BlockState((9, *(state(0, 1, 2, 3, 4, 5, 6, 7, 8, 9).tokens[1:])), 10)
    tree.add(DraftNode(other, 0, (), 0.9, False))  # 1 row, but of another first token
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(1 + len(tree), LENGTH, 16, generator=generator)
    empty = torch.empty(0)
    places = tuple(range(1 + len(tree)))
    output = CountedOutput(empty, empty, hidden, torch.randn(30, 16, generator=generator), places)
    output.products.clear()
    return LogitReader(tree, ScoredRows(output, tuple(range(1, 1 + len(tree))), (0,) * len(tree)), MASK)


def test_every_node_gets_its_own_rows(reader):
    for index in (0, 1, 3, 2, 4, 5):
        positions = list(reader.positions[index])
        assert torch.equal(reader.logits(index), reader.scored.output.logits(1 + index, positions))


def test_the_room_of_a_product_goes_to_the_heaviest_follower(reader, monkeypatch):
    monkeypatch.setattr("dlmspec.scored.READ_ROWS", 16)
    reader.logits(0)
    assert isinstance(reader.scored.output, CountedOutput)
    assert [copy for copy, _ in reader.scored.output.products[0]] == [1] * 8 + [2] * 7
    reader.logits(1)
    assert len(reader.scored.output.products) == 1, "read before"
    reader.logits(2)
    assert [copy for copy, _ in reader.scored.output.products[1]] == [3] * 7 + [5] * 6, "node 3 has another token"
    assert all(len(rows) <= 16 for rows in reader.scored.output.products)


class Law:
    """`F` commits the first open position with 50 + position, and says what it was asked for in which block."""

    def __init__(self):
        self.asked = []

    def is_final(self, state):
        return MASK not in state.tokens

    def denoise(self, states, logits, block):
        assert len(logits) == sum(state.tokens.count(MASK) for state in states)
        self.asked.extend((block, state) for state in states)
        return [self.after(state) for state in states]

    def after(self, state):
        place = state.tokens.index(MASK)
        return BlockState((*state.tokens[:place], 50 + place, *state.tokens[place + 1 :]), state.step + 1)


class Request(SimpleNamespace):
    """As much of a request as remembered states need."""


def remembered(root: BlockState, *nodes: DraftNode) -> ScoredStates:
    """The states of one pass over the root and `nodes`, of a request at block 3."""
    law = Law()
    law.spec = SimpleNamespace(mask_id=MASK)
    law.config = SimpleNamespace(sampling=Sampling())
    request = Request(root=root, block=3, law=law, spec=SimpleNamespace(mask_id=MASK))
    tree = DraftTree.from_root(root)
    for node in nodes:
        tree.add(node)
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(len(tree), len(root.tokens), 16, generator=generator)
    places = tuple(range(len(tree)))
    output = PassOutput(torch.empty(0), torch.empty(0), hidden, torch.randn(30, 16, generator=generator), places)
    scored = ScoredStates(request)  # type: ignore[arg-type]
    scored.add(tree, ScoredRows(output, places, (0,) * len(tree)))
    return scored


def small(*tokens: int) -> BlockState:
    return BlockState(tokens, sum(token != MASK for token in tokens))


def node(*tokens: int) -> DraftNode:
    return DraftNode(small(*tokens), 0, (), 0.5, MASK not in tokens)


def test_states_that_the_root_contradicts_or_has_passed_are_forgotten():
    kept = [(7, 8, 0, 0), (0, 8, 9, 0), (7, 0, 9, 5), (7, 8, 9, 5)]
    gone = [(6, 8, 0, 0), (0, 3, 9, 0), (0, 0, 9, 0)]
    scored = remembered(small(0, 0, 0, 0), *(node(*tokens) for tokens in kept + gone))
    scored.request.root = small(7, 8, 0, 0)
    scored.prune()
    assert {entry.state.tokens for entry in scored.entries.values()} == set(kept)


def test_a_successor_is_worked_out_once_in_its_own_block():
    final, start = node(1, 2, 3, 4), small(0, 0, 0, 0)
    scored = remembered(start, final, DraftNode(start, 1, (1,), 0.5, False))
    law = scored.request.law
    assert isinstance(law, Law)
    assert scored.successor(start, ((1, 2, 3, 4),)) == small(50, 0, 0, 0)
    assert scored.successor(start, ((1, 2, 3, 4),)) == small(50, 0, 0, 0)
    assert law.asked == [(4, start)]
    assert scored.successor(start, ((1, 2, 3, 9),)) is None
    assert scored.successor(final.state, ()) is None, "nothing follows a final state in its block"
    scored.finish_block((1, 2, 3, 4))
    scored.request.block = 4
    assert scored.find(start) is not None
    assert scored.find(final.state) is None
    assert scored.successor(start, ()) == small(50, 0, 0, 0)
    assert law.asked == [(4, start)]


def test_the_freshest_evidence_is_the_latest_state_on_the_way():
    scored = remembered(small(0, 0, 0, 0, 0), node(0, 8, 0, 0, 0), node(0, 8, 9, 0, 0), node(0, 8, 3, 4, 0))
    scored.request.root = root = small(7, 0, 0, 0, 0)
    scored.prune()
    found = scored.freshest(small(7, 8, 9, 0, 0), (), 0)
    assert found is not None
    assert (found.state, found.block, found.taken) == (small(0, 8, 9, 0, 0), 3, {0})
    assert found.positions == [0, 3, 4]
    entry = scored.find(small(0, 8, 9, 0, 0))
    assert entry is not None
    assert torch.equal(found.log_probs, tempered_log_probs(entry.logits, Sampling(), MASK))
    nearer = scored.freshest(small(7, 8, 0, 0, 6), (), 0)
    assert nearer is not None
    assert nearer.state == small(0, 8, 0, 0, 0)
    assert scored.freshest(small(7, 8, 0, 0, 6), (), 1) is None, "the block's own is as fresh"
    assert scored.freshest(small(7, 0, 5, 0, 0), (), 0) is None, "none is on the way"
    assert scored.freshest(root, (), 0) is None
    scored.request.root = small(7, 8, 0, 0, 0)
    scored.prune()
    later = scored.freshest(small(7, 8, 9, 0, 6), (), 1)
    assert later is not None
    assert (later.state, later.taken) == (small(0, 8, 9, 0, 0), {0})


def test_evidence_of_a_state_ahead_of_the_root_names_what_follows_it():
    scored = remembered(small(0, 0, 0, 0), node(7, 8, 0, 0))
    scored.request.root = small(7, 0, 0, 0)
    scored.prune()
    found = scored.freshest(small(7, 8, 52, 0), (), 0)
    assert found is not None
    assert (found.state, found.taken) == (small(7, 8, 0, 0), {2})
    assert scored.freshest(small(7, 8, 0, 9), (), 0) is None, "the target goes another way from there"


def test_states_that_are_read_in_one_product_are_denoised_together():
    root, likely, other = small(0, 0, 0, 0), node(7, 0, 0, 0), node(7, 8, 0, 0)
    scored = remembered(root, likely, other)
    law, entry = scored.request.law, scored.find(root)
    assert isinstance(law, Law)
    assert entry is not None
    assert scored.denoise(entry) == small(50, 0, 0, 0)
    assert {state for _, state in law.asked} == {root, likely.state, other.state}
    for one in (likely, other):
        assert scored.successor(one.state, ()) == law.after(one.state)
    assert len(law.asked) == 3
