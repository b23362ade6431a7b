"""Runs a benchmark: every drafter and budget on every domain and temperature, behind the parity gate."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dlmspec.bench.accuracy import MAX_NEW_TOKENS, Examiner, has_answers, with_accuracy
from dlmspec.bench.busy import check_idle, machine_load
from dlmspec.bench.gate import gated
from dlmspec.bench.measure import Cell, Decoders, Meter
from dlmspec.bench.plan import BenchPlan
from dlmspec.bench.prompt_sets import Prompt, domain_name, encode_prompts, load_prompts
from dlmspec.bench.rows import BenchRow, Label, aggregate
from dlmspec.drafters.base import Drafter
from dlmspec.models.target import Target

Progress = Callable[[int, int, str], None]  # prompts decoded, prompts in all, what is being measured
DecodeText = Callable[[Sequence[int]], str]


class BenchRun:
    """One run: the plan, the loaded drafters, and how far it is."""

    def __init__(self, plan: BenchPlan, target: Target, model_name: str, drafters: Mapping[str, Drafter],
                 decoders: Decoders, progress: Progress | None, kept: Sequence[BenchRow]) -> None:  # fmt: skip
        self.kept = kept
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
             decode_text: DecodeText | None) -> Iterator[BenchRow]:  # fmt: skip
        """The rows that are not `kept`, cell by cell; `decode_text` asks for accuracy where prompts have answers."""
        examiners = {
            domain: self.examiner(prompts, ids[domain], decode_text)
            for domain, prompts in prompt_sets.items()
            if decode_text is not None and has_answers(prompts)
        }
        cells = [(domain, t, self.missing(domain, t)) for domain in prompt_sets for t in self.plan.temperatures]
        cells = [cell for cell in cells if cell[2]]
        self.total = sum(
            len(prompt_sets[domain]) * (1 + (domain in examiners)) * (1 + len(missing)) for domain, _, missing in cells
        )
        for domain, temperature, missing in cells:
            cell = Cell(ids[domain], self.plan.config(temperature))
            label = self.plan.label(self.target, self.model_name, domain, temperature)
            yield from self.cell_rows(cell, label, missing, examiners.get(domain))

    def missing(self, domain: str, temperature: float) -> list[tuple[str, int]]:
        """The configurations of a cell that an earlier run has not measured."""
        kept = {
            (row.drafter, row.budget) for row in self.kept if (row.domain, row.temperature) == (domain, temperature)
        }
        return [configuration for configuration in self.plan.configurations() if configuration not in kept]

    def examiner(self, prompts: Sequence[Prompt], ids: tuple[list[int], ...],
                 decode_text: DecodeText) -> Examiner:  # fmt: skip
        """Marks the answers to these prompts."""
        answers = tuple(prompt.answer for prompt in prompts if prompt.answer is not None)
        return Examiner(self.meter, ids, answers, decode_text)

    def cell_rows(self, cell: Cell, label: Label, missing: Sequence[tuple[str, int]],
                  examiner: Examiner | None) -> Iterator[BenchRow]:  # fmt: skip
        """The rows of one domain and temperature."""
        self.now = f"{label.domain} T={label.temperature:g} reference"
        references = self.meter.references(cell)
        answers = examiner.reference(cell.config) if examiner else None
        for name, budget in missing:
            self.now = f"{label.domain} T={label.temperature:g} {name}/{budget}"
            drafter = self.drafters[name]
            is_timed = self.plan.is_timed(name)
            trials = self.meter.trials(cell, (drafter, budget), references, is_timed=is_timed)
            named = replace(label, drafter=name, budget=budget)
            row = aggregate(named, trials, is_timed=is_timed)
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
    decode_text: DecodeText | None = None,
    allow_busy: bool = False,
    progress: Progress | None = None,
    decoders: Decoders | None = None,
    kept: Sequence[BenchRow] = (),
    on_row: Callable[[BenchRow], None] | None = None,
    **plan: Any,
) -> list[BenchRow]:
    """Measure; the rows that `gate.exit_status` judges and `row.as_dict()` writes.

    Rows `kept` of an earlier run of the same plan are not measured again; `on_row` gets each new one at once.

    `plan` are the fields of `BenchPlan`: prompts (domains or `.jsonl` files), drafters, budgets,
    temperatures, rule, sampling, noise, cache, limit, max_new_tokens, seed, passes_only. `make_drafter` loads a drafter
    by its name; `accuracy` also decodes word problems to their end and needs `decode_text`. Raises
    ValueError for a plan that cannot be, and on a busy machine unless `allow_busy` or `passes_only`.
    """
    options: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in plan.items()}
    checked = BenchPlan(**options)
    if accuracy and decode_text is None:
        raise ValueError("accuracy needs decode_text, which turns token ids into text")
    prompt_sets = {domain_name(name): load_prompts(name, checked.limit) for name in checked.prompts}
    ids = {
        domain: tuple(encode_prompts(prompts, encode, target, longest(checked, prompts, accuracy)))
        for domain, prompts in prompt_sets.items()
    }
    drafters = {name: make_drafter(name) for name in checked.drafters}
    check_idle(machine_load(), allow_busy=allow_busy or checked.passes_only)
    run = BenchRun(checked, target, model_name or target.spec.name, drafters, decoders or Decoders(), progress, kept)
    rows = [*kept]
    for row in run.rows(prompt_sets, ids, decode_text if accuracy else None):
        rows.append(row)
        if on_row is not None:
            on_row(row)
    return rows


def longest(plan: BenchPlan, prompts: Sequence[Prompt], accuracy: bool) -> int:
    """The most tokens that one of these prompts will be asked for."""
    return max(plan.max_new_tokens, MAX_NEW_TOKENS if accuracy and has_answers(prompts) else 0)
