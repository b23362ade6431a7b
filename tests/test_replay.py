"""Replay of recorded decodes: walks must follow what the target did, and count what a pass would advance.

Catches: a walk that goes on behind a missing state, candidates of another step, states of another block or prompt.
"""

import pytest
import torch

from dlmspec.config import DecodeConfig
from dlmspec.drafters.base import NoDrafter
from dlmspec.drafters.confidence import ConfidenceTreeDrafter
from dlmspec.models.target import Target
from dlmspec.step import Sampling
from dlmspec.training.record import RecordJob, read_records
from dlmspec.training.replay import MASK, RecordedEvidence, replay, sample_rows, successors
from dlmspec.tree import DraftNode, DraftTree

CONFIGS = [
    DecodeConfig(max_new_tokens=17, sampling=Sampling(temperature=t), seed=2, early_stop=False) for t in (0.0, 1.0)
]


@pytest.fixture(scope="module")
def records(tiny_sdar, tmp_path_factory):
    directory = tmp_path_factory.mktemp("records")
    target = Target.from_directory(tiny_sdar(block_length=6))
    RecordJob(target, [[3, 7, 9], [4, 8, 2, 5, 11, 6, 9]], CONFIGS, directory).run()
    return read_records(directory)


class Knowing:
    """Proposes the first `depth` states that follow, and one that does not."""

    name = "knowing"

    def __init__(self, records, depth: int) -> None:
        self.records, self.depth, self.row = records, depth, 0

    def begin(self, target, prompt_ids, config):
        return self

    def propose(self, context, budget: int) -> DraftTree:
        tree = DraftTree.from_root(context.root)
        _, *future = successors(self.records, self.row)
        for state in [*future[: self.depth], *future[self.depth + 1 :]]:
            if not context.ends(state, 0) and len(tree) < budget:
                tree.add(DraftNode(state, 0, (), 0.5, False))
        return tree


def test_successors_commit_what_was_recorded(records):
    for row in range(len(records["place"])):
        states = list(successors(records, row))
        open_ = records["masked"][row].sum()
        assert len(states) == open_, "one position per step"
        assert states[-1].num_masked(MASK) == 0
        assert [state.step for state in states] == list(
            range(int(records["place"][row, 2]) + 1, int(records["place"][row, 2]) + 1 + len(states))
        )


def test_a_pass_advances_the_root_and_the_states_found_behind_it(records):
    row = next(r for r in range(len(records["place"])) if records["masked"][r].sum() == 6)
    for depth, budget, expected in ((0, 9, 1), (2, 9, 3), (3, 3, 3), (2, 1, 1)):
        drafter = Knowing(records, depth)
        drafter.row = row
        replayed = replay(drafter, records, [row], budget)
        assert (replayed.passes, replayed.realised_steps) == (1, expected)


def test_plain_passes_advance_one_step_and_trees_more(records):
    for sampled in (False, True):
        rows = sample_rows(records["sampled"] == sampled, 30)
        assert len(rows) == 30
        assert replay(NoDrafter(), records, rows, 8).realised_steps == 1
        small, large = (replay(ConfidenceTreeDrafter(), records, rows, budget) for budget in (2, 16))
        assert 1 < small.realised_steps <= large.realised_steps
        assert small.expected_steps > 1


def test_candidates_are_those_of_the_step(records):
    row = next(r for r in range(len(records["place"])) if records["sampled"][r] and records["masked"][r].sum() == 6)
    evidence = RecordedEvidence(records, row, next(successors(records, row)))
    for depth in (1, 4, 8, 12):
        found = evidence.candidates(evidence.state.step + depth)
        assert found.ids == records["candidate_ids"][row, min(depth, 8) - 1].tolist()
    assert torch.equal(evidence.top, records["top"][row].float())
