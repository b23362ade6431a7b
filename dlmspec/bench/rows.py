"""Rows of results: trials in, one frozen record out.

Ratios of passes are ratios of sums over prompts. Wall ratios are medians over prompts of reference seconds
divided by configuration seconds.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from dlmspec.bench.measure import Trial
from dlmspec.request import DecodeOutput

LOW, HIGH = 20, 80  # percentiles of the wall ratio


@dataclass(frozen=True, slots=True)
class Label:
    """What a row is about. `cache` names the cache semantics, `rule_args` the rule's options."""

    target: str
    dtype: str
    block_length: int
    domain: str
    rule: str
    rule_args: dict[str, Any]
    temperature: float
    noise: str
    cache: str
    seed: int
    drafter: str
    budget: int


@dataclass(frozen=True, slots=True)
class Samples:
    """Figures per prompt, in their order: what a comparison resamples."""

    passes: tuple[int, ...] = ()
    passes_reference: tuple[int, ...] = ()
    passes_reference_store: tuple[int, ...] = ()
    accuracy_reference: float | None = None


@dataclass(frozen=True, slots=True)
class BenchRow(Label):
    """One configuration on one domain and temperature: the JSON row's fields in their order, and `samples`.

    `passes_ratio` and `wall_ratio_store` are against the reference with store passes,
    `passes_ratio_folded`, `wall_ratio`, `wall_ratio_low` and `wall_ratio_high` (20th and 80th percentile)
    against the folded one. `mat` and `expected_steps` are per verification pass. `seconds` are summed over
    prompts, `drafter_share` is the drafter's part. `exact_match` is the share of decodes with the
    reference's ids: below 1 there are no speed fields.
    """

    prompts: int
    tokens: int
    passes: int | None
    passes_reference: int
    passes_reference_store: int
    passes_ratio: float | None
    passes_ratio_folded: float | None
    mat: float | None
    tokens_per_pass: float | None
    accepted_histogram: dict[str, int] | None
    expected_steps: float | None
    seconds: float | None
    wall_ratio: float | None
    wall_ratio_store: float | None
    wall_ratio_low: float | None
    wall_ratio_high: float | None
    drafter_share: float | None
    exact_match: float
    accuracy: float | None
    samples: Samples = field(default_factory=Samples, repr=False, compare=False)

    def as_dict(self) -> dict[str, Any]:
        """The JSON row."""
        samples = {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self.samples).items()}
        return {key: getattr(self, key) for key in ROW_KEYS} | {"samples": samples}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "BenchRow":
        """A row as it was written."""
        kept = content["samples"]
        samples = Samples(
            passes=tuple(kept["passes"]),
            passes_reference=tuple(kept["passes_reference"]),
            passes_reference_store=tuple(kept["passes_reference_store"]),
            accuracy_reference=kept["accuracy_reference"],
        )
        return cls(**{key: content[key] for key in ROW_KEYS}, samples=samples)


ROW_KEYS = tuple(item.name for item in fields(BenchRow) if item.name != "samples")
SPEED_KEYS = (
    "passes",
    "passes_ratio",
    "passes_ratio_folded",
    "mat",
    "tokens_per_pass",
    "accepted_histogram",
    "expected_steps",
    "seconds",
    "wall_ratio",
    "wall_ratio_store",
    "wall_ratio_low",
    "wall_ratio_high",
    "drafter_share",
)


def aggregate(label: Label, trials: Sequence[Trial], *, is_timed: bool) -> BenchRow:
    """The row of one configuration, `accuracy` left open. Without `is_timed` all fields of time are None."""
    outputs = [trial.output for trial in trials]
    passes = [output.stats.num_passes for output in outputs]
    folded = [trial.folded.stats.num_passes for trial in trials]
    store = [trial.store.stats.num_passes for trial in trials]
    tokens = sum(len(output.token_ids) for output in outputs)
    denoising = max(1, sum(output.stats.num_denoising_passes for output in outputs))
    return BenchRow(
        **{item.name: getattr(label, item.name) for item in fields(Label)},
        prompts=len(trials),
        tokens=tokens,
        passes=sum(passes),
        passes_reference=sum(folded),
        passes_reference_store=sum(store),
        passes_ratio=sum(store) / sum(passes),
        passes_ratio_folded=sum(folded) / sum(passes),
        mat=sum(output.stats.num_steps for output in outputs) / denoising,
        tokens_per_pass=tokens / sum(passes),
        accepted_histogram=accepted_histogram(outputs),
        expected_steps=sum(output.stats.expected_steps for output in outputs) / denoising,
        exact_match=sum(trial.is_identical for trial in trials) / len(trials),
        accuracy=None,
        samples=Samples(tuple(passes), tuple(folded), tuple(store)),
        **asdict(wall_figures(trials) if is_timed else WallFigures()),
    )


@dataclass(frozen=True, slots=True)
class WallFigures:
    """The fields of time of a row."""

    seconds: float | None = None
    wall_ratio: float | None = None
    wall_ratio_store: float | None = None
    wall_ratio_low: float | None = None
    wall_ratio_high: float | None = None
    drafter_share: float | None = None


def wall_figures(trials: Sequence[Trial]) -> WallFigures:
    """Seconds and ratios; the pairs of a ratio are the prompts."""
    seconds = [trial.output.stats.seconds for trial in trials]
    ratios = [trial.folded.stats.seconds / trial.output.stats.seconds for trial in trials]
    store = [trial.store.stats.seconds / trial.output.stats.seconds for trial in trials]
    low, middle, high = np.percentile(ratios, [LOW, 50, HIGH])
    return WallFigures(
        seconds=sum(seconds),
        wall_ratio=float(middle),
        wall_ratio_store=float(np.median(store)),
        wall_ratio_low=float(low),
        wall_ratio_high=float(high),
        drafter_share=sum(trial.output.stats.draft_seconds for trial in trials) / sum(seconds),
    )


def accepted_histogram(outputs: Sequence[DecodeOutput]) -> dict[str, int]:
    """Steps advanced by a verification pass → number of such passes, ascending; keys are text, as in JSON."""
    total: Counter[int] = Counter()
    for output in outputs:
        total.update(output.stats.accepted)
    return {str(steps): count for steps, count in sorted(total.items())}
