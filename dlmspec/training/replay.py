"""Replays recorded decodes for a drafter: how many steps would a pass advance at a budget?

Needs no target pass. Only what lies within a block is replayed (no lookahead, and what was read is one step stale), so
the figures stand below those of a decode; they compare drafters, and expected with realised steps.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from dlmspec.drafters.base import DraftContext, NothingKnown, Proposer
from dlmspec.evidence import Candidates
from dlmspec.order.model import MAX_STALENESS
from dlmspec.rules import LowConfidenceStatic
from dlmspec.state import BlockState, new_commits

MASK, KNOWN = -1, -2  # records name the tokens that are committed later, not those that were before


class RecordedEvidence:
    """What a drafter reads of one recorded step: the part of `Evidence` that the records hold."""

    def __init__(self, records: dict[str, Tensor], row: int, successor: BlockState) -> None:
        _, self.block, step = records["place"][row].tolist()
        masked = records["masked"][row]
        self.state = BlockState(tuple(MASK if open_ else KNOWN for open_ in masked.tolist()), step)
        self.taken = new_commits(self.state, successor)
        self.positions = masked.nonzero().squeeze(-1).tolist()
        self.is_sampled = self.is_redrawn = bool(records["sampled"][row])
        self.top = records["top"][row].float()
        self._ids = records["candidate_ids"][row]
        self._log_probs = records["candidate_log_probs"][row].float()

    def candidates(self, step: int) -> Candidates:
        """Tokens under the noise of `step`, the last recorded one beyond the eighth."""
        depth = min(max(step - self.state.step, 1), MAX_STALENESS) - 1
        ids, log_probs = self._ids[depth].tolist(), self._log_probs[depth].tolist()
        return Candidates(
            [row if token == MASK else [] for token, row in zip(self.state.tokens, ids, strict=True)],
            [row if token == MASK else [] for token, row in zip(self.state.tokens, log_probs, strict=True)],
        )


@dataclass(frozen=True, slots=True)
class Replayed:
    """Per pass, means over the replayed steps at one budget."""

    budget: int
    passes: int
    expected_steps: float
    realised_steps: float


def successors(records: dict[str, Tensor], row: int) -> Iterator[BlockState]:
    """The states that followed the recorded one in its block, in order."""
    place = records["place"][row].tolist()
    tokens = [MASK if open_ else KNOWN for open_ in records["masked"][row].tolist()]
    step = place[2]
    while row < len(records["place"]) and records["place"][row].tolist() == [*place[:2], step]:
        for position, token in enumerate(records["committed"][row].tolist()):
            if token >= 0:
                tokens[position] = token
        step, row = step + 1, row + 1
        yield BlockState(tuple(tokens), step)


def replay(drafter: Proposer, records: dict[str, Tensor], rows: list[int], budget: int) -> Replayed:
    """Propose for the state after each of the recorded steps `rows`, and walk what the target did next."""
    rule, expected, realised, passes = LowConfidenceStatic(), 0.0, 0, 0
    for row in rows:
        root, *future = successors(records, row)
        evidence = RecordedEvidence(records, row, root)
        if rule.is_final(root, MASK):
            continue
        context = DraftContext(
            root=root, block=evidence.block, num_blocks=evidence.block + 1, mask_id=MASK, vocab_size=0, rule=rule,
            evidence={evidence.block: evidence},  # type: ignore[dict-item]
            fresh_state=lambda block: BlockState((), 0),  # never asked: nothing follows a final state
            ends=lambda state, block: rule.is_final(state, MASK),
            known=NothingKnown(),
        )  # fmt: skip
        tree = drafter.propose(context, budget)
        expected += tree.expected_steps
        realised += 1
        for state in future:
            if tree.find(state, (), False) is None:
                break
            realised += 1
        passes += 1
    total = max(passes, 1)
    return Replayed(budget, passes, expected / total, realised / total)


def sample_rows(chosen: Tensor, limit: int, seed: int = 0) -> list[int]:
    """At most `limit` of the rows where `chosen` holds, ascending."""
    rows = chosen.nonzero().squeeze(-1)
    picked = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:limit]]
    return picked.sort().values.tolist()
