"""Commit rules within a part of the block: for families whose loops go through a block piece by piece."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dlmspec.rules import CommitRule, PositionScores
from dlmspec.state import BlockState


@dataclass(frozen=True, slots=True)
class WindowedRule:
    """A rule that sees only the first sub-block with a mask; with `leads_with_first`, a block's first position alone
    as long as that is a mask. Source: Fast-dLLM v2's decoder (arXiv 2509.26328)."""

    rule: CommitRule
    sub_block_length: int | None
    leads_with_first: bool

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.rule.name

    @property
    def memoryless(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.rule.memoryless

    @property
    def needs_entropy(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.rule.needs_entropy

    def select(self, scores: PositionScores, masked: Tensor, steps: Sequence[int]) -> Tensor:
        return self.rule.select(scores, masked & self.window(masked), steps)

    def window(self, masked: Tensor) -> Tensor:
        """Bool `[N, B]`: where the next step may commit."""
        window = torch.ones_like(masked)
        positions = torch.arange(masked.shape[-1], device=masked.device)
        if self.sub_block_length is not None:
            parts = positions // self.sub_block_length
            first = torch.where(masked, parts, parts[-1] + 1).amin(-1, keepdim=True)
            window &= parts == first
        if self.leads_with_first:
            window &= ~masked[:, :1] | (positions == 0)
        return window

    def is_final(self, state: BlockState, mask_id: int) -> bool:
        return self.rule.is_final(state, mask_id)


def windowed(rule: CommitRule, sub_block_length: int | None, leads_with_first: bool) -> CommitRule:
    """The rule within a family's windows; itself where there are none."""
    if sub_block_length is None and not leads_with_first:
        return rule
    return WindowedRule(rule, sub_block_length, leads_with_first)  # pyright: ignore[reportReturnType]
