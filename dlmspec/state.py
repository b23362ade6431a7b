"""The state of one block: what a denoising step maps to its successor.

Knows nothing of rules, models or trees.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlockState:
    """Tokens of one block (`B` ids, the mask id where undecided), the denoising step it is at, and a rule's history.

    `step` counts the denoising steps already taken in the block: a fresh block is at step 0.
    `aux` is `()` for memoryless rules. Equality of states is equality of all three.
    """

    tokens: tuple[int, ...]
    step: int
    aux: tuple = ()

    def num_masked(self, mask_id: int) -> int:
        return self.tokens.count(mask_id)

    def masked_positions(self, mask_id: int) -> tuple[int, ...]:
        """Positions of the block that are still undecided, ascending."""
        return tuple(i for i, token in enumerate(self.tokens) if token == mask_id)


def new_commits(earlier: BlockState, later: BlockState) -> frozenset[int]:
    """The positions whose tokens differ between two states of a block."""
    pairs = enumerate(zip(earlier.tokens, later.tokens, strict=True))
    return frozenset(position for position, (old, new) in pairs if old != new)
