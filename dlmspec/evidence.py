"""What the target's last passes revealed: the distributions that drafters read, one state stale.

Evidence never decides anything; it may be stale, or come from a state under a wrong prefix.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from dlmspec.law import DenoisingLaw
from dlmspec.order.calibration import log_prob_bin
from dlmspec.state import BlockState
from dlmspec.step import tempered_log_probs

TOP_K = 32
NEVER = -60.0  # log-probability of a rank that a small or filtered vocabulary does not have
NUM_RANKS = 3


@dataclass(frozen=True)
class Candidates:
    """Likeliest tokens under one step's noise: `ids` and `log_probs` `[B][rank]`; empty where not masked."""

    ids: list[list[int]]
    log_probs: list[list[float]]

    @cached_property
    def bins(self) -> list[list[int]]:
        """The calibration's bin of every log-probability."""
        return [[log_prob_bin(log_prob) for log_prob in row] for row in self.log_probs]


class Evidence:
    """The distributions read at one `state` of one absolute `block`.

    `log_probs` `[M, V]` are tempered and filtered (T = 1 if T = 0) and stand for the masked positions of `state`;
    `top` `[B, 32]` are the largest of each, descending, at least `NEVER`. `taken` are the positions that were committed
    next, as far as that is known.
    """

    def __init__(self, block: int, state: BlockState, logits: Tensor, law: DenoisingLaw,
                 taken: frozenset[int] | None = None) -> None:  # fmt: skip
        self.block, self.state, self.taken = block, state, taken
        self.positions = list(state.masked_positions(law.spec.mask_id))
        self.log_probs = tempered_log_probs(logits, law.config.sampling, law.spec.mask_id)
        values, ids = self.log_probs.topk(min(TOP_K, self.log_probs.shape[-1]), -1)
        self.top_ids = ids
        self.top = torch.full((len(state.tokens), TOP_K), NEVER)
        self.top[self.positions, : values.shape[-1]] = values.float().clamp_min(NEVER)
        self._law = law
        self._candidates: dict[int, Candidates] = {}

    @property
    def is_sampled(self) -> bool:
        """Whether tokens are drawn (T > 0)."""
        return self._law.is_sampled

    @property
    def is_redrawn(self) -> bool:
        """Whether each step couples other tokens."""
        return self._law.is_redrawn

    def candidates(self, step: int) -> Candidates:
        """Tokens that the noise of denoising step `step` would commit, by rank; rank 0 is the coupled token."""
        key = step if self.is_redrawn else 0
        if key not in self._candidates:
            self._candidates[key] = self._rank(step)
        return self._candidates[key]

    def _rank(self, step: int) -> Candidates:
        ids, log_probs = self.ranked(step)
        length = len(self.state.tokens)
        all_ids: list[list[int]] = [[] for _ in range(length)]
        all_log_probs: list[list[float]] = [[] for _ in range(length)]
        for position, row_ids, row in zip(self.positions, ids.tolist(), log_probs.tolist(), strict=True):
            all_ids[position], all_log_probs[position] = row_ids, row
        return Candidates(all_ids, all_log_probs)

    def ranked(self, step: int) -> tuple[Tensor, Tensor]:
        """Ids and log-probabilities `[M, rank]` of the largest noised scores at `step`."""
        gumbel = self._law.gumbel(self.block, step, self.positions)
        ranks = min(NUM_RANKS, self.log_probs.shape[-1])
        ids = self.top_ids[:, :ranks]
        if gumbel is not None:
            ids = (self.log_probs + gumbel).topk(ranks, -1).indices
        return ids, self.log_probs.gather(-1, ids)
