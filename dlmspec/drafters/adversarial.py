"""A drafter that knows nothing: random positions and tokens. The output must not depend on it."""

import random

from dlmspec.drafters.base import DraftContext, Stateless
from dlmspec.state import BlockState
from dlmspec.tree import DraftNode, DraftTree


class RandomDrafter(Stateless):
    """Random nested and overlapping states, completions among them, some under a next block.

    Half of the tokens come from the evidence, so that some nodes are nearly right.
    """

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)

    def propose(self, context: DraftContext, budget: int) -> DraftTree:
        tree = DraftTree.from_root(context.root)
        for _ in range(8 * budget):
            if len(tree) >= budget:
                break
            parent = self.rng.randrange(len(tree))
            node = tree.nodes[parent]
            block = context.block + node.block
            if node.is_final:
                if block + 1 < context.num_blocks:
                    fresh = context.fresh_state(block + 1)
                    tree.add(DraftNode(fresh, node.block + 1, (*node.ancestors, parent), 0.1, False))
                continue
            state = self._guess(node.state, block, context)
            is_final = context.rule.is_final(state, context.mask_id)
            tree.add(DraftNode(state, node.block, node.ancestors, 0.1, is_final))
        return tree

    def _guess(self, state: BlockState, block: int, context: DraftContext) -> BlockState:
        evidence = context.evidence.get(block)
        masked = state.masked_positions(context.mask_id)
        count = self.rng.choice((1, 1, 1, len(masked)))
        tokens = list(state.tokens)
        for position in self.rng.sample(masked, min(count, len(masked))):
            known = evidence.candidates(state.step).ids[position] if evidence else []
            if known and self.rng.random() < 0.7:
                tokens[position] = known[0]
            else:
                tokens[position] = self._token(context)
        return BlockState(tuple(tokens), state.step + 1, state.aux)

    def _token(self, context: DraftContext) -> int:
        token = self.rng.randrange(context.vocab_size - 1)
        return token if token < context.mask_id else token + 1
