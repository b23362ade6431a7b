"""Reading logits ahead of the walk: catches rows of another node or position, products larger than they have to be,
and room given to states that cannot follow."""

import pytest
import torch

from dlmspec.models.transformer import PassOutput
from dlmspec.state import BlockState
from dlmspec.tree import DraftNode, DraftTree
from dlmspec.verify import LogitReader

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
    output = CountedOutput(empty, empty, hidden, torch.randn(30, 16, generator=generator))
    output.products.clear()
    return LogitReader(tree, output, 1, MASK)


def test_every_node_gets_its_own_rows(reader):
    for index in (0, 1, 3, 2, 4, 5):
        positions = list(reader.positions[index])
        assert torch.equal(reader.logits(index), reader.output.logits(1 + index, positions))


def test_the_room_of_a_product_goes_to_the_heaviest_follower(reader):
    reader.logits(0)
    assert isinstance(reader.output, CountedOutput)
    assert [copy for copy, _ in reader.output.products[0]] == [1] * 8 + [2] * 7
    reader.logits(1)
    assert len(reader.output.products) == 1, "read before"
    reader.logits(2)
    assert [copy for copy, _ in reader.output.products[1]] == [3] * 7 + [5] * 6, "node 3 has another token"
    assert all(len(rows) <= 16 for rows in reader.output.products)
