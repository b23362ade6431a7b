"""What a benchmark measures, checked once at the door."""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from dlmspec.bench.prompt_sets import DOMAINS, domain_name
from dlmspec.bench.rows import Label
from dlmspec.config import DecodeConfig
from dlmspec.memory import cache_semantics
from dlmspec.models.target import Target
from dlmspec.noise import NoiseMode
from dlmspec.rules import CommitRule, LowConfidenceStatic
from dlmspec.step import Sampling

NO_DRAFTER = "none"
ORACLES = ("oracle", "oracle-order")


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """What is measured. Checked once; raises ValueError with the value that cannot be."""

    prompts: tuple[str | Path, ...] = DOMAINS
    drafters: tuple[str, ...] = (NO_DRAFTER, "confidence", "confidence-tree")
    budgets: tuple[int, ...] = (4, 8, 16, 32)
    temperatures: tuple[float, ...] = (0.0,)
    rule: CommitRule = field(default_factory=LowConfidenceStatic)
    sampling: Sampling = field(default_factory=Sampling)
    noise: NoiseMode = "step"
    cache: str | None = None  # the family's exact one
    limit: int = 20
    max_new_tokens: int = 64
    seed: int = 0
    passes_only: bool = False  # no times: right on a busy machine, and the folded reference is decoded only once

    def __post_init__(self) -> None:
        for name in ("prompts", "drafters", "budgets", "temperatures"):
            values = getattr(self, name)
            if not values:
                raise ValueError(f"{name} is empty; give at least one")
            if len(set(values)) < len(values):
                raise ValueError(f"{name} holds a value twice: {', '.join(map(str, values))}")
        if len({domain_name(name) for name in self.prompts}) < len(self.prompts):
            raise ValueError(f"prompts of one name cannot be told apart: {', '.join(map(str, self.prompts))}")
        if min(self.budgets) < 1:
            raise ValueError(f"a budget must be at least 1 (the current state), got {min(self.budgets)}")
        for temperature in self.temperatures:
            self.config(temperature)

    def is_timed(self, drafter: str) -> bool:
        """Whether seconds are measured; an oracle's say nothing."""
        return not self.passes_only and drafter not in ORACLES

    def config(self, temperature: float) -> DecodeConfig:
        """The decode of every measured configuration at this temperature; early stop off on both sides."""
        return DecodeConfig(
            max_new_tokens=self.max_new_tokens,
            rule=self.rule,
            sampling=replace(self.sampling, temperature=temperature),
            noise=self.noise,
            seed=self.seed,
            early_stop=False,
            cache=self.cache,
        )

    def configurations(self) -> list[tuple[str, int]]:
        """Drafters with their budgets; `none` needs no budget and runs once, at 1."""
        return [
            (drafter, budget)
            for drafter in self.drafters
            for budget in ((1,) if drafter == NO_DRAFTER else self.budgets)
        ]

    def label(self, target: Target, model_name: str, domain: str, temperature: float) -> Label:
        """The label of a cell; drafter and budget are still to be set."""
        return Label(
            target=model_name,
            dtype=str(target.dtype).removeprefix("torch."),
            block_length=target.spec.block_length,
            domain=domain,
            rule=self.rule.name,
            rule_args=asdict(self.rule),  # pyright: ignore[reportArgumentType]
            temperature=temperature,
            noise=self.noise,
            cache=cache_semantics(target.spec, self.cache),
            seed=self.seed,
            drafter=NO_DRAFTER,
            budget=1,
        )
