"""A final state that is reached later than it was guessed.

Catches: rows of a finished block that are lost because its final state was forgotten while what was scored behind it
was kept. It takes a rule that commits several positions, a guess of too few steps, and a next block that ends at once.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from dlmspec.scored import Scored, ScoredStates
from dlmspec.state import BlockState

MASK = 0


def remembered(state: BlockState, chain: tuple = ()) -> Scored:
    commits = frozenset((i, token) for i, token in enumerate(state.tokens) if token != MASK)
    return Scored(state, chain, SimpleNamespace(commits=[commits]), [], 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("late", [1, 2, 5])
def test_a_final_state_is_kept_as_long_as_what_was_scored_behind_it(late):
    root, final, behind = BlockState((7, MASK, MASK), 0), BlockState((7, 8, 9), 1), BlockState((MASK,) * 3, 0)
    law = SimpleNamespace(is_final=lambda state: MASK not in state.tokens)
    request = SimpleNamespace(root=root, spec=SimpleNamespace(mask_id=MASK), law=law)
    states = ScoredStates(request)  # type: ignore[arg-type]
    other = BlockState((7, 8, 4), 1)
    for scored in (remembered(final), remembered(other), remembered(behind, (final.tokens,))):
        states.entries[scored.state, scored.chain] = scored
    request.root = replace(root, tokens=(7, MASK, 9), step=1 + late)
    states.prune()
    kept = {(scored.state, scored.chain) for scored in states.entries.values()}
    assert kept == {(final, ()), (behind, (final.tokens,))}, "the root contradicts the other final state"
