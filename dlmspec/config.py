"""What a decode is asked to do, checked once at the door. Knows nothing of targets or drafters."""

from dataclasses import dataclass, field

from dlmspec.noise import NoiseMode
from dlmspec.rules import CommitRule, LowConfidenceStatic
from dlmspec.step import Sampling


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """One request's options: together with target and prompt they fix the output, whatever the drafter does.

    `noise` keys the Gumbel noise by denoising step (the families' own law) or by position only. `early_stop` ends
    as soon as the rest cannot change the output; without it the block that holds the stop is filled up. `cache` names
    the cache semantics (`memory.py`); None is the family's exact one.
    """

    max_new_tokens: int = 128
    rule: CommitRule = field(default_factory=LowConfidenceStatic)
    sampling: Sampling = field(default_factory=Sampling)
    noise: NoiseMode = "step"
    seed: int = 0
    early_stop: bool = True
    cache: str | None = None

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {self.max_new_tokens}")
        if self.noise not in ("step", "position"):
            raise ValueError(f"unknown noise {self.noise!r}; choose step or position")
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"seed must lie in [0, 2**64), got {self.seed}")
