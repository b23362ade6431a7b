"""The law of one request: the denoising step `F`, its noise and its end, as pure functions of the state.

Reference, verification, drafters' evidence and recording all read the same law.
"""

from torch import Tensor

from dlmspec.config import DecodeConfig
from dlmspec.models.spec import ModelSpec
from dlmspec.noise import GumbelNoise
from dlmspec.state import BlockState
from dlmspec.step import denoise_step


class DenoisingLaw:
    """`F` for one target spec and one config (seed included)."""

    def __init__(self, spec: ModelSpec, config: DecodeConfig) -> None:
        self.spec, self.config = spec, config
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
        """Noise `[M, V]` of these positions of an absolute block at one step; None at temperature 0."""
        if self._noise is None:
            return None
        length = self.spec.block_length
        return self._noise.gumbel(block * length, length, step)[positions]

    def denoise(self, state: BlockState, logits: Tensor, block: int) -> BlockState:
        """`F`: the true successor of `state`, given the logits of its masked rows `[M, V]`."""
        gumbel = self.gumbel(block, state.step, list(state.masked_positions(self.spec.mask_id)))
        config = self.config
        return denoise_step([state], logits, gumbel, config.sampling, config.rule, self.spec.mask_id)[0]

    def is_final(self, state: BlockState) -> bool:
        return self.config.rule.is_final(state, self.spec.mask_id)
