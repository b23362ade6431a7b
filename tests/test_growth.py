"""Tree growth: masses, merging, closed sets, budgets, and the pair of a final state with the next block's start.

Catches: a node without its parent, a budget overrun, masses that are not sums over kept parents, duplicates of one
state, a final node without its fresh companion (or the reverse), expansion beyond the last block, merging across
ancestors.
"""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlmspec.drafters.base import DraftContext, KnownStates, NothingKnown
from dlmspec.drafters.growth import grow_tree
from dlmspec.rules import LowConfidenceStatic
from dlmspec.state import BlockState
from dlmspec.tree import DraftNode, DraftTree

MASK, STOP = 0, 99


class Reading:
    """Evidence that no scorer here looks into."""

    def __init__(self, block: int, step: int = 0) -> None:
        self.block, self.state = block, BlockState((), step)


def context(root: tuple[int, ...], *, block: int = 0, num_blocks: int = 3, evidence: int = 2,
            known: KnownStates | None = None) -> DraftContext:  # fmt: skip
    """A context whose first `evidence` blocks have (empty) evidence."""
    return DraftContext(
        root=BlockState(root, 16 - root.count(MASK)),
        block=block,
        num_blocks=num_blocks,
        mask_id=MASK,
        vocab_size=50,
        rule=LowConfidenceStatic(),
        evidence={block + i: Reading(block + i) for i in range(evidence)},  # type: ignore[arg-type]
        fresh_state=lambda number: BlockState((MASK,) * len(root), 0),
        ends=lambda state, number: STOP in state.tokens or (MASK not in state.tokens and number + 1 == num_blocks),
        known=known or NothingKnown(),
    )


def even_steps(states, evidence, ctx):
    """Every masked position alike; position p gets token 10 + p with probability 0.75 and 30 + p with 0.25."""
    rows = []
    for state in states:
        masked = state.masked_positions(MASK)
        rows.append([(q / len(masked), ((p, base + p),)) for p in masked for q, base in ((0.75, 10), (0.25, 30))])
    return rows


def random_steps(seed: int):
    rng = random.Random(seed)

    def steps(states, evidence, ctx):
        rows = []
        for state in states:
            weights = [(rng.random() ** 3, p) for p in state.masked_positions(MASK)]
            total = sum(w for w, _ in weights)
            rows.append([(w / total, ((p, 10 + p),)) for w, p in weights])
        return rows

    return steps


def check_tree(tree: DraftTree, budget: int) -> None:
    assert 1 <= len(tree) <= budget
    keys = {(node.state.tokens, node.ancestors, node.is_final or node.state.step) for node in tree.nodes}
    assert len(keys) == len(tree), "one node per state"
    for index, node in enumerate(tree.nodes[1:], 1):
        assert len(node.ancestors) == node.block
        assert all(tree.nodes[a].is_final and a < index for a in node.ancestors)
        if node.block and node.state.step == 0:
            continue  # a fresh state: its parent is its last ancestor
        parents = [
            other
            for other in tree.nodes[:index]
            if other.ancestors == node.ancestors
            and not other.is_final
            and other.state.step + 1 == node.state.step
            and all(a in (b, MASK) for a, b in zip(other.state.tokens, node.state.tokens, strict=True))
        ]
        assert parents, "a node is kept only with a parent"


def check_companions(tree: DraftTree) -> None:
    finals = [i for i, node in enumerate(tree.nodes) if node.is_final]
    fresh = [node for node in tree.nodes[1:] if node.block and node.state.step == 0]
    assert sorted(node.ancestors[-1] for node in fresh) == finals
    for node in fresh:
        assert node.mass == pytest.approx(tree.nodes[node.ancestors[-1]].mass)


@given(
    masks=st.integers(1, 7),
    budget=st.integers(1, 40),
    seed=st.integers(0, 2**20),
    num_blocks=st.integers(1, 4),
    evidence=st.integers(0, 3),
)
def test_grown_trees_are_closed_and_within_budget(masks, budget, seed, num_blocks, evidence):
    root = (5,) * (7 - masks) + (MASK,) * masks
    ctx = context(root, num_blocks=num_blocks, evidence=evidence)
    tree = grow_tree(ctx, budget, random_steps(seed))
    check_tree(tree, budget)
    check_companions(tree)
    assert all(node.block < num_blocks for node in tree.nodes)
    if evidence == 0:
        assert len(tree) == 1


def test_merged_mass_is_the_sum_over_parents():
    tree = grow_tree(context((MASK, MASK, 7)), 64, even_steps)
    by_tokens = {node.state.tokens: node for node in tree.nodes if node.block == 0}
    assert by_tokens[10, MASK, 7].mass == pytest.approx(0.5 * 0.75)
    # two orders lead to (10, 11): 2 · ½ · ¾ · ¾
    assert by_tokens[10, 11, 7].mass == pytest.approx(0.75 * 0.75)
    assert by_tokens[10, 11, 7].is_final


def test_masses_are_recomputed_when_a_parent_is_dropped():
    def steps(states, evidence, ctx):
        """From the root p0 .6, p1 .4; from either, the other with certainty: their child has two parents."""
        rows = []
        for state in states:
            masked = state.masked_positions(MASK)
            if len(masked) == 3:
                rows.append([(0.6, ((0, 10),)), (0.3, ((1, 11),)), (0.1, ((2, 12),))])
            else:
                rows.append([(1.0, ((masked[0], 10 + masked[0]),))])
        return rows

    tree = grow_tree(context((MASK, MASK, MASK), num_blocks=1), 3, steps)
    masses = {node.state.tokens: node.mass for node in tree.nodes}
    assert masses == {(MASK,) * 3: 1.0, (10, MASK, MASK): 0.6, (10, 11, MASK): pytest.approx(0.6)}


def test_final_states_of_the_last_block_are_not_scored():
    tree = grow_tree(context((MASK, 7), num_blocks=1), 16, even_steps)
    assert len(tree) == 1


def test_a_final_state_counts_for_the_lookahead_that_it_brings():
    def steps(states, evidence, ctx):
        """Three equal first steps; the two that leave one position open lead to one final state."""
        rows = []
        for state in states:
            if state.tokens == (MASK, MASK):
                rows.append([(0.34, ((0, 10),)), (0.33, ((1, 11),)), (0.33, ((0, 30),))])
            else:
                masked = state.masked_positions(MASK)
                rows.append([(0.95, ((p, 10 + p),)) for p in masked if 30 not in state.tokens])
        return rows

    tree = grow_tree(context((MASK, MASK), num_blocks=3, evidence=1), 4, steps)
    assert [node.state.tokens for node in tree.nodes if node.is_final] == [(10, 11)]
    assert tree.nodes[-1].block == 1, "with the next block's start, instead of a third sibling"


def test_states_in_which_decoding_ends_are_not_scored():
    def stops(states, evidence, ctx):
        return [[(0.5, ((p, token),)) for p in s.masked_positions(MASK) for token in (STOP, 10)] for s in states]

    tree = grow_tree(context((MASK, MASK, 7)), 40, stops)
    assert len(tree) > 4
    assert all(STOP not in node.state.tokens for node in tree.nodes)


def test_next_block_grows_under_each_final_state_apart():
    tree = grow_tree(context((MASK, 7), num_blocks=3), 24, even_steps)
    deeper = [node for node in tree.nodes if node.block == 1 and node.state.step == 1]
    assert {node.ancestors for node in deeper} == {(1,), (3,)}, "one subtree per final state"
    assert len({(node.ancestors, node.state.tokens) for node in deeper}) == len(deeper)


def test_expected_steps_count_neither_root_nor_final_nodes():
    tree = DraftTree.from_root(BlockState((MASK, MASK), 0))
    tree.add(DraftNode(BlockState((4, MASK), 1), 0, (), 0.5, False))
    final = tree.add(DraftNode(BlockState((4, 4), 2), 0, (), 0.25, True))
    tree.add(DraftNode(BlockState((MASK, MASK), 0), 1, (final,), 0.25, False))
    assert tree.expected_steps == pytest.approx(1.75)


def test_a_final_state_is_one_node_whatever_its_step():
    tree = DraftTree.from_root(BlockState((MASK, MASK), 0))
    first = tree.add(DraftNode(BlockState((4, 4), 1), 0, (), 0.5, True))
    assert tree.find(BlockState((4, 4), 2), (), True) == first
    assert tree.find(BlockState((4, MASK), 2), (), False) is None
    tree.add(DraftNode(BlockState((4, MASK), 1), 0, (), 0.5, False))
    assert tree.find(BlockState((4, MASK), 2), (), False) is None, "an unfinished state is another at another step"
    assert tree.find(BlockState((4, 4), 2), (first,), True) is None, "under other ancestors it is another state"


class Known:
    """`successors` of scored states, whatever their chain; `readings` of states that are fresher than the block's."""

    def __init__(self, successors=None, readings=None):
        self.successors, self.readings = successors or {}, readings or {}

    def successor(self, state, chain):
        return self.successors.get(state)

    def freshest(self, state, chain, step):
        return self.readings.get(state)


def test_a_scored_state_costs_nothing_and_leads_where_the_target_went():
    root, budget = (MASK, MASK, MASK, MASK, 5), 6
    scored, after = BlockState((10, MASK, MASK, MASK, 5), 13), BlockState((10, MASK, 77, MASK, 5), 14)
    tree = grow_tree(context(root, known=Known({scored: after})), budget, even_steps)
    assert tree.find(scored, (), False) is None, "no node for it"
    found = tree.find(after, (), False)
    assert found is not None, "the target's own successor, which no scorer proposes"
    probability = 0.75 / 4
    assert tree.nodes[found].mass == pytest.approx(probability)
    assert len(tree) == budget
    assert tree.known_steps == pytest.approx(probability)
    masses = sum(node.mass for node in tree.nodes[1:] if not node.is_final)
    assert tree.expected_steps == pytest.approx(1 + masses + probability)
    assert tree.find(BlockState((10, 11, MASK, MASK, 5), 14), (), False) is None, "its other successors are impossible"


def test_what_follows_a_state_is_scored_by_the_freshest_evidence():
    root, later = (MASK, MASK, MASK, 5), BlockState((10, MASK, MASK, 5), 14)
    fresher = Reading(0, 13)
    asked = []

    def steps(states, evidence, ctx):
        asked.extend((state, evidence) for state in states)
        return even_steps(states, evidence, ctx)

    ctx = context(root, known=Known(readings={later: fresher}))
    grow_tree(ctx, 12, steps)
    readings = dict(asked)
    assert readings.pop(later) is fresher
    assert len(readings) > 2
    assert all(evidence is ctx.evidence[evidence.block] for evidence in readings.values())
