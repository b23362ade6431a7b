"""Commit rules: which masked positions of a block one denoising step commits.

A rule is one pure function of (scores, mask, step). Knows nothing of logits, noise or models.
Sources: SDAR's generate.py (sequential, static, dynamic), JetEngine (entropy_bounded), Fast-dLLM (factor).
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from dlmspec.state import BlockState


@dataclass(frozen=True, slots=True)
class PositionScores:
    """What `score` says of each position; all of one shape (`[M]` as scored, `[N, B]` as rules read it).

    `tokens` int64: the id that would be committed. `confidence` fp32: the number most rules order by.
    `entropy` fp32, nats: of the full unfiltered tempered distribution, or None where no one asked for it.
    Values at positions that are not masked mean nothing.
    """

    tokens: Tensor
    confidence: Tensor
    entropy: Tensor | None = None


class CommitRule(Protocol):
    """What the engine needs of a rule. `memoryless`: keeps `aux == ()`; `needs_entropy`: of `score`."""

    name: ClassVar[str]
    memoryless: ClassVar[bool]
    needs_entropy: ClassVar[bool]

    def select(self, scores: PositionScores, masked: Tensor, steps: Sequence[int]) -> Tensor:
        """Positions to commit, bool `[N, B]`: in rows with masks a non-empty subset of them, else nothing.

        `steps` are the denoising steps already taken in each of the N states.
        """
        ...

    def is_final(self, state: BlockState, mask_id: int) -> bool:
        """Whether the rule has nothing left to do in `state`."""
        ...


def num_transfer(step: int, block_length: int, denoising_steps: int | None) -> int:
    """Positions the schedule commits at `step`: B/S each, 1 more at the first B % S, 1 beyond S; never 0.

    `denoising_steps=None` means S = B, one position per step. Source: SDAR, `generate.py`,
    get_num_transfer_tokens.
    """
    if denoising_steps is None or step >= denoising_steps:
        return 1
    return max(1, block_length // denoising_steps + (step < block_length % denoising_steps))


@functools.cache
def timestep_counts(block_length: int, denoising_steps: int) -> tuple[int, ...]:
    """Positions per step under Dream's schedule: of those left the share 1 − s/t, s and t neighbouring times from 1 to
    0.001, rounded down; all at the last. Steps that would commit nothing, and change nothing, are left out.

    In fp32, as its `diffusion_generate` has it.
    """
    times = torch.linspace(1, 1e-3, denoising_steps + 1)
    counts, left = [], block_length
    for step in range(denoising_steps):
        share = 1 - times[step + 1] / times[step]
        count = left if step + 1 == denoising_steps else int(torch.tensor(float(left)) * share)
        if count:
            counts.append(count)
            left -= count
    return tuple(counts)


class _Memoryless:
    """A rule without history: a state is final once no mask is left."""

    __slots__ = ()
    memoryless: ClassVar[bool] = True
    needs_entropy: ClassVar[bool] = False

    def is_final(self, state: BlockState, mask_id: int) -> bool:
        return mask_id not in state.tokens


@dataclass(frozen=True, slots=True)
class Sequential(_Memoryless):
    """The leftmost n masked positions; n from the denoising-steps schedule."""

    name: ClassVar[str] = "sequential"
    denoising_steps: int | None = None

    def __post_init__(self) -> None:
        _check_denoising_steps(self.denoising_steps)

    def select(self, scores: PositionScores, masked: Tensor, steps: Sequence[int]) -> Tensor:
        counts = _scheduled(masked, steps, self.denoising_steps)
        return masked & (masked.cumsum(-1) <= counts)


@dataclass(frozen=True, slots=True)
class LowConfidenceStatic(_Memoryless):
    """The n masked positions of highest confidence; n from the denoising-steps schedule.

    `schedule` spreads the steps evenly over the block (SDAR, LLaDA) or by `timesteps` (Dream).
    """

    name: ClassVar[str] = "low_confidence_static"
    denoising_steps: int | None = None
    schedule: str = "even"

    def __post_init__(self) -> None:
        _check_denoising_steps(self.denoising_steps)
        if self.schedule not in ("even", "timesteps"):
            raise ValueError(f"unknown schedule {self.schedule!r}; choose even or timesteps")

    def num_commits(self, step: int, block_length: int) -> int:
        """Positions that the step commits, of at least as many masks."""
        if self.schedule == "even":
            return num_transfer(step, block_length, self.denoising_steps)
        counts = timestep_counts(block_length, self.denoising_steps or block_length)
        return counts[step] if step < len(counts) else 1

    def select(self, scores: PositionScores, masked: Tensor, steps: Sequence[int]) -> Tensor:
        order, _ = _descending(scores.confidence, masked)
        counts = [[self.num_commits(step, masked.shape[-1])] for step in steps]
        return _first(order, torch.tensor(counts, device=masked.device), masked)


@dataclass(frozen=True, slots=True)
class LowConfidenceDynamic(_Memoryless):
    """Every masked position of confidence above `threshold`; n of them if those are fewer.

    n from the denoising-steps schedule: the n of highest confidence, or under `fallback="leftmost"` the first n
    (JetEngine). The comparison is in fp32 and strict, unless `inclusive` (LMDeploy, Fast-dLLM). Source: SDAR,
    `generate.py`.
    """

    name: ClassVar[str] = "low_confidence_dynamic"
    threshold: float = 0.9
    denoising_steps: int | None = None
    inclusive: bool = False
    fallback: str = "confidence"

    def __post_init__(self) -> None:
        if self.fallback not in ("confidence", "leftmost"):
            raise ValueError(f"unknown fallback {self.fallback!r}; choose confidence or leftmost")
        # No confidence exceeds 1; negative thresholds serve confidence="entropy".
        if not -math.inf < self.threshold <= 1:
            raise ValueError(f"threshold must be a finite number of at most 1, got {self.threshold}")
        _check_denoising_steps(self.denoising_steps)

    def select(self, scores: PositionScores, masked: Tensor, steps: Sequence[int]) -> Tensor:
        counts = _scheduled(masked, steps, self.denoising_steps)
        is_above = torch.ge if self.inclusive else torch.gt
        above = is_above(scores.confidence, self.threshold) & masked
        if self.fallback == "leftmost":
            best = masked & (masked.cumsum(-1) <= counts)
        else:
            best = _first(_descending(scores.confidence, masked)[0], counts, masked)
        # With fewer masks than n both branches give all masks or the best ones among them: n needs no clamp.
        return torch.where(above.sum(-1, keepdim=True) >= counts, above, best)


@dataclass(frozen=True, slots=True)
class EntropyBounded(_Memoryless):
    """The longest prefix by rising entropy whose entropies sum to at most `gamma` nats; at least one.

    The sum is taken in fp64. Source: JetEngine's entropy_bounded (EB-Sampler, arXiv 2505.24857, with a plain
    sum).
    """

    name: ClassVar[str] = "entropy_bounded"
    needs_entropy: ClassVar[bool] = True
    gamma: float = 0.35

    def __post_init__(self) -> None:
        if not 0 <= self.gamma < math.inf:
            raise ValueError(f"gamma must be a finite number of at least 0 (nats), got {self.gamma}")

    def select(self, scores: PositionScores, masked: Tensor, steps: Sequence[int]) -> Tensor:
        if scores.entropy is None:
            raise ValueError("entropy_bounded needs entropies: call score with with_entropy=True")
        order, values = _descending(-scores.entropy, masked)
        # Unmasked positions sort last as +inf and end every prefix.
        prefix = (-values).double().cumsum(-1) <= self.gamma
        return _first(order, prefix.sum(-1, keepdim=True).clamp_min(1), masked)


@dataclass(frozen=True, slots=True)
class Factor(_Memoryless):
    """The n of highest confidence, for the largest n with (n + 1)(1 - c_n) < `factor`; at least one.

    c_n is the n-th highest confidence; fp64. Source: Fast-dLLM (arXiv 2505.22618), factor-based decoding.
    """

    name: ClassVar[str] = "factor"
    factor: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.factor < math.inf:
            raise ValueError(f"factor must be a finite number above 0, got {self.factor}")

    def select(self, scores: PositionScores, masked: Tensor, steps: Sequence[int]) -> Tensor:
        order, values = _descending(scores.confidence, masked)
        ranks = torch.arange(2, values.shape[-1] + 2, device=values.device, dtype=torch.float64)
        # The left side never falls with n (and is +inf past the masks), so counting finds the largest n.
        fits = ranks * (1.0 - values.double()) < self.factor
        return _first(order, fits.sum(-1, keepdim=True).clamp_min(1), masked)


RULES: Mapping[str, type[CommitRule]] = MappingProxyType(
    {rule.name: rule for rule in (Sequential, LowConfidenceStatic, LowConfidenceDynamic, EntropyBounded, Factor)}
)


def make_rule(name: str, /, **options: Any) -> CommitRule:
    """The rule called `name` with its options; ValueError names what is unknown and what is allowed."""
    allowed = rule_options(name)
    for option in options:
        if option not in allowed:
            raise ValueError(f"rule {name!r} has no option {option!r}; it takes {', '.join(allowed)}")
    return RULES[name](**options)


def rule_options(name: str) -> list[str]:
    """The options that the rule called `name` takes; ValueError if there is no such rule."""
    if name not in RULES:
        raise ValueError(f"unknown rule {name!r}; choose one of {', '.join(RULES)}")
    return [field.name for field in fields(RULES[name])]  # pyright: ignore[reportArgumentType]


def _check_denoising_steps(denoising_steps: int | None) -> None:
    if denoising_steps is not None and denoising_steps < 1:
        raise ValueError(f"denoising_steps must be at least 1 (or None: one per position), got {denoising_steps}")


def _scheduled(masked: Tensor, steps: Sequence[int], denoising_steps: int | None) -> Tensor:
    """The schedule's n of each row, int64 `[N, 1]`."""
    counts = [[num_transfer(step, masked.shape[-1], denoising_steps)] for step in steps]
    return torch.tensor(counts, device=masked.device)


def _descending(values: Tensor, masked: Tensor) -> tuple[Tensor, Tensor]:
    """Positions by falling value, unmasked last, the lowest first among equals; and the sorted values.

    Unmasked positions count as -inf; scores of masked positions are finite.
    """
    ordered, order = torch.sort(values.masked_fill(~masked, -math.inf), dim=-1, descending=True, stable=True)
    return order, ordered


def _first(order: Tensor, counts: Tensor, masked: Tensor) -> Tensor:
    """Bool `[N, B]`: the first `counts` `[N, 1]` positions of `order` that are masked."""
    leading = torch.arange(order.shape[-1], device=order.device) < counts
    return torch.zeros_like(masked).scatter_(-1, order, leading) & masked
