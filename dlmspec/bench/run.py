"""The benchmark: every drafter and budget on every domain and temperature, behind the parity gate."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from dlmspec.bench.accuracy import Examiner, has_answers, with_accuracy
from dlmspec.bench.busy import check_idle, machine_load
from dlmspec.bench.gate import gated
from dlmspec.bench.measure import ORACLES, Cell, Decoders, Meter
from dlmspec.bench.prompt_sets import DOMAINS, Prompt, domain_name, load_prompts
from dlmspec.bench.rows import BenchRow, Label, aggregate
from dlmspec.config import DecodeConfig
from dlmspec.drafters.base import Drafter
from dlmspec.models.target import Target
from dlmspec.rules import CommitRule, LowConfidenceStatic
from dlmspec.step import Sampling

Progress = Callable[[int, int, str], None]  # work done, work in all, what is being measured
NO_DRAFTER = "none"


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """What is measured. Checked once; raises ValueError with the value that cannot be."""

    prompts: tuple[str | Path, ...] = DOMAINS
    drafters: tuple[str, ...] = (NO_DRAFTER, "confidence", "confidence-tree")
    budgets: tuple[int, ...] = (4, 8, 16, 32)
    temperatures: tuple[float, ...] = (0.0,)
    rule: CommitRule = field(default_factory=LowConfidenceStatic)
    sampling: Sampling = field(default_factory=Sampling)
    noise: str = "step"
    cache: str = "prefix"
    limit: int = 20
    max_new_tokens: int = 64
    seed: int = 0

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

    def config(self, temperature: float) -> DecodeConfig:
        """The decode of every measured configuration at this temperature; early stop off on both sides."""
        return DecodeConfig(
            max_new_tokens=self.max_new_tokens,
            rule=self.rule,
            sampling=replace(self.sampling, temperature=temperature),
            noise=self.noise,
            seed=self.seed,
            early_stop=False,
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
            cache=self.cache,
            seed=self.seed,
            drafter=NO_DRAFTER,
            budget=1,
        )


class BenchRun:
    """One run: the plan, the loaded drafters, and how far it is."""

    def __init__(self, plan: BenchPlan, target: Target, model_name: str, drafters: Mapping[str, Drafter],
                 decoders: Decoders, progress: Progress | None) -> None:  # fmt: skip
        self.plan, self.target, self.model_name = plan, target, model_name
        self.drafters, self.decoders, self.progress = drafters, decoders, progress
        self.meter = Meter(target, decoders, self.advance)
        self.done = self.total = 0
        self.now = ""

    def advance(self) -> None:
        """One prompt more."""
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total, self.now)

    def rows(self, prompt_sets: Mapping[str, list[Prompt]], ids: Mapping[str, tuple[list[int], ...]],
             decode_text: Callable[[Sequence[int]], str] | None) -> Iterator[BenchRow]:  # fmt: skip
        """All rows, cell by cell; `decode_text` asks for accuracy where the prompts have answers."""
        configurations = self.plan.configurations()
        per_temperature = sum(map(len, ids.values())) * (1 + len(configurations))
        self.total = per_temperature * len(self.plan.temperatures)
        for domain, prompts in prompt_sets.items():
            examiner = None
            if decode_text is not None and has_answers(prompts):
                answers = tuple(prompt.answer for prompt in prompts if prompt.answer is not None)
                examiner = Examiner(self.target, ids[domain], answers, decode_text, self.decoders)
            for temperature in self.plan.temperatures:
                cell = Cell(ids[domain], self.plan.config(temperature))
                label = self.plan.label(self.target, self.model_name, domain, temperature)
                yield from self.cell_rows(cell, label, examiner)

    def cell_rows(self, cell: Cell, label: Label, examiner: Examiner | None) -> Iterator[BenchRow]:
        """The rows of one domain and temperature."""
        self.now = f"{label.domain} T={label.temperature:g} reference"
        references = self.meter.references(cell)
        answers = examiner.reference(cell.config) if examiner else None
        for name, budget in self.plan.configurations():
            self.now = f"{label.domain} T={label.temperature:g} {name}/{budget}"
            drafter = self.drafters[name]
            trials = self.meter.trials(cell, drafter, budget, references)
            named = replace(label, drafter=name, budget=budget)
            row = aggregate(named, trials, is_timed=drafter.name not in ORACLES)
            if examiner is not None and answers is not None:
                row = with_accuracy(row, examiner.speculative(cell.config, drafter, budget), answers)
            yield gated(row)


def run_bench(
    *,
    target: Target,
    encode: Callable[[str], list[int]],
    make_drafter: Callable[[str], Drafter],
    model_name: str | None = None,
    accuracy: bool = False,
    decode_text: Callable[[Sequence[int]], str] | None = None,
    allow_busy: bool = False,
    progress: Progress | None = None,
    decoders: Decoders | None = None,
    **plan: Any,
) -> list[BenchRow]:
    """Measure; the rows that `gate.exit_status` judges and `row.as_dict()` writes.

    `plan` are the fields of `BenchPlan`: prompts (domains or `.jsonl` files), drafters, budgets,
    temperatures, rule, sampling, noise, cache, limit, max_new_tokens, seed. `make_drafter` loads a drafter
    by its name; `accuracy` also decodes word problems to their end and needs `decode_text`. Raises
    ValueError for a plan that cannot be, and on a busy machine unless `allow_busy`.
    """
    options: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in plan.items()}
    checked = BenchPlan(**options)
    if accuracy and decode_text is None:
        raise ValueError("accuracy needs decode_text, which turns token ids into text")
    prompt_sets = {domain_name(name): load_prompts(name, checked.limit) for name in checked.prompts}
    ids = {domain: tuple(encode(row.prompt) for row in prompts) for domain, prompts in prompt_sets.items()}
    drafters = {name: make_drafter(name) for name in checked.drafters}
    check_idle(machine_load(), allow_busy=allow_busy)
    run = BenchRun(
        checked, target, model_name or target.spec.name, drafters, decoders or Decoders(), progress
    )
    return list(run.rows(prompt_sets, ids, decode_text if accuracy else None))
