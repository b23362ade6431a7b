"""Training-free drafters: the chain in stale-confidence order, and a tree by products of confidence scores.

The chain is FreeDave's exact rule (arXiv 2510.00294) and SSD's draft (arXiv 2510.04147): nested states, each the
step that the rule would take if the stale distributions still held.
"""

import math

from dlmspec.drafters.base import DraftContext, Stateless
from dlmspec.drafters.growth import Step, grow_tree
from dlmspec.drafters.stale import commits_one_by_confidence, confidence_odds, coupled, position_steps, stale_steps
from dlmspec.evidence import Evidence
from dlmspec.state import BlockState
from dlmspec.tree import DraftTree


class ConfidenceDrafter(Stateless):
    """A chain: at every depth the rule applied to the stale scores."""

    name = "confidence"

    def propose(self, context: DraftContext, budget: int) -> DraftTree:
        return grow_tree(context, budget, stale_steps)


class ConfidenceTreeDrafter(Stateless):
    """A tree: positions weighted by a power of their stale odds, tokens by their stale probability.

    Where the rule commits several positions at once it proposes the chain.
    """

    name = "confidence-tree"

    def __init__(self, power: float = 0.75) -> None:
        self.power = power

    def propose(self, context: DraftContext, budget: int) -> DraftTree:
        return grow_tree(context, budget, self._steps)

    def _steps(self, states: list[BlockState], evidence: Evidence, context: DraftContext) -> list[list[Step]]:
        step, length = states[0].step, len(states[0].tokens)
        if not commits_one_by_confidence(context.rule, step, length):
            return stale_steps(states, evidence, context)
        candidates = evidence.candidates(step)
        odds = confidence_odds(coupled(candidates)[1], self.power)
        token_probs = [[math.exp(log_prob) for log_prob in row] for row in candidates.log_probs]
        return position_steps(states, odds, token_probs, candidates, context.mask_id)
