"""The law of one request: the denoising step `F`, its noise and its end, as pure functions of the state.

Reference, verification, drafters' evidence and recording all read the same law.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from dlmspec.config import DecodeConfig
from dlmspec.grid import Grid
from dlmspec.models.spec import ModelSpec
from dlmspec.noise import GumbelNoise
from dlmspec.state import BlockState
from dlmspec.step import denoise_step
from dlmspec.windows import windowed


class DenoisingLaw:
    """`F` for one target spec, one config (seed included) and one grid.

    `rule` is the config's, within the part of a block in which the family's steps commit.
    """

    def __init__(self, spec: ModelSpec, config: DecodeConfig, grid: Grid) -> None:
        self.spec, self.config, self.grid = spec, config, grid
        self.rule = windowed(config.rule, spec.sub_block_length, spec.leads_with_first)
        self._noise = None
        if config.sampling.temperature > 0:
            self._noise = GumbelNoise(config.seed, spec.vocab_size, config.noise)

    @property
    def is_sampled(self) -> bool:
        return self._noise is not None

    @property
    def is_redrawn(self) -> bool:
        """Whether each step draws new noise."""
        return self._noise is not None and self.config.noise == "step"

    def gumbel(self, block: int, step: int, positions: list[int]) -> Tensor | None:
        """Noise `[M, V]` of these positions of a block at one step; None at temperature 0."""
        if self._noise is None:
            return None
        return self._noise.gumbel(self.grid.start(block), self.grid.block_length, step)[positions]

    def denoise(self, states: Sequence[BlockState], logits: Tensor, block: int) -> list[BlockState]:
        """`F`: the true successors of states of one block; `logits` `[M, V]` of their masked rows, state by state."""
        config, mask_id = self.config, self.spec.mask_id
        gumbel = None
        if self.is_sampled:
            rows = [self.gumbel(block, state.step, list(state.masked_positions(mask_id))) for state in states]
            gumbel = torch.cat([row for row in rows if row is not None])
        return denoise_step(states, logits, gumbel, config.sampling, self.rule, mask_id)

    def is_final(self, state: BlockState) -> bool:
        return self.rule.is_final(state, self.spec.mask_id)
