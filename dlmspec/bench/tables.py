"""Rich tables of rows: one per domain and temperature, one of verdicts, and one for the staleness report."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, permutations

from rich.table import Table
from rich.text import Text

from dlmspec.bench.compare import Comparison, compare
from dlmspec.bench.plan import NO_DRAFTER, ORACLES
from dlmspec.bench.rows import BenchRow
from dlmspec.bench.stale import StaleRow

CAPTION = "passes: reference with store passes ÷ drafter; wall: folded reference ÷ drafter; * best of its budget"
VERDICT = "mean: geometric, over domains and budgets; better: mean above 1, no cell below 0.99, both at 95 %"
BEST_MARK = "*"
MISSING = "-"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of figures. In columns with a contest the best of each budget is marked."""

    title: str
    value: Callable[[BenchRow], float | None]
    form: Callable[[BenchRow], str]
    is_contest: bool = True


def _ratio(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2f}x"


def _plain(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return MISSING if value is None else f"{100 * value:.0f} %"


def _wall(row: BenchRow) -> str:
    if row.wall_ratio_low is None:
        return MISSING
    return f"{_ratio(row.wall_ratio)} [{_plain(row.wall_ratio_low)}-{_plain(row.wall_ratio_high)}]"


COLUMNS = (
    Column("passes ratio", lambda row: row.passes_ratio, lambda row: _ratio(row.passes_ratio)),
    Column("to folded", lambda row: row.passes_ratio_folded, lambda row: _ratio(row.passes_ratio_folded)),
    Column("MAT", lambda row: row.mat, lambda row: _plain(row.mat)),
    Column("expected", lambda row: row.expected_steps, lambda row: _plain(row.expected_steps), False),
    Column("wall ratio [20-80 %]", lambda row: row.wall_ratio, _wall),
    Column("drafting", lambda row: row.drafter_share, lambda row: _percent(row.drafter_share), False),
)


def bench_tables(rows: Sequence[BenchRow]) -> list[Table]:
    """A table per domain and temperature, in the order of the rows."""
    cells = groupby(rows, key=lambda row: (row.domain, row.temperature))
    return [cell_table(list(group)) for _, group in cells]


def verdict_table(rows: Sequence[BenchRow]) -> Table | None:
    """Whether a drafter is better than another, each temperature by itself; None if there are no two to compare.

    Oracles are left out. A drafter with a row that failed the parity gate gets no verdict at that temperature.
    """
    names = [name for name in dict.fromkeys(row.drafter for row in rows) if name not in (*ORACLES, NO_DRAFTER)]
    if len(names) < 2:
        return None
    table = Table(title="Passes of the other ÷ passes of the drafter", caption=VERDICT)
    for title in ("T", "drafter", "against", "mean [95 %]", "worst cell [95 %]", "better"):
        table.add_column(title, justify="right")
    for temperature in dict.fromkeys(row.temperature for row in rows):
        table.add_section()
        here = [row for row in rows if row.temperature == temperature]
        red = {row.drafter for row in here if row.exact_match != 1.0}
        for pair in permutations(names, 2):
            verdict = (MISSING, MISSING, "not exact") if red.intersection(pair) else _verdict(compare(here, *pair))
            table.add_row(f"{temperature:g}", *pair, *verdict)
    return table


def _verdict(pair: Comparison) -> tuple[str, str, str]:
    worst = pair.worst
    return (
        f"{pair.ratio:.3f} [{pair.low:.3f}-{pair.high:.3f}]",
        f"{worst.domain}/{worst.budget}: {worst.ratio:.3f} [{worst.low:.3f}-{worst.high:.3f}]",
        "yes" if pair.is_better else "no",
    )


def cell_table(rows: Sequence[BenchRow]) -> Table:
    """Drafters by budget. The best of a column at a budget is bold with a star; oracles do not compete.

    A row that failed the parity gate says so instead of figures.
    """
    first = rows[0]
    title = f"{first.domain}, T = {first.temperature:g}, {first.prompts} prompts"
    show_accuracy = any(row.accuracy is not None for row in rows)
    table = Table(title=title, caption=CAPTION)
    table.add_column("budget", justify="right")
    table.add_column("drafter")
    for column in COLUMNS:
        table.add_column(column.title, justify="right")
    table.add_column("exact", justify="right")
    if show_accuracy:
        table.add_column("accuracy", justify="right")
    for budget in sorted({row.budget for row in rows}):
        table.add_section()
        section = [row for row in rows if row.budget == budget]
        winners = [_winners(section, column) for column in COLUMNS]
        for row in section:
            cells = [_cell(row, column, best) for column, best in zip(COLUMNS, winners, strict=True)]
            style = "red" if row.exact_match != 1.0 else "dim" if row.drafter in ORACLES else None
            accuracy = [_percent(row.accuracy)] if show_accuracy else []
            table.add_row(str(budget), row.drafter, *cells, _exact(row), *accuracy, style=style)
    return table


def _winners(rows: Sequence[BenchRow], column: Column) -> list[str]:
    """Drafters with the best figure, if there are at least two to choose from."""
    rivals = {row.drafter: column.value(row) for row in rows if row.drafter not in ORACLES}
    values = [value for value in rivals.values() if value is not None]
    if not column.is_contest or len(values) < 2:
        return []
    return [drafter for drafter, value in rivals.items() if value == max(values)]


def _cell(row: BenchRow, column: Column, winners: Sequence[str]) -> Text:
    text = column.form(row)
    return Text(text + BEST_MARK, style="bold") if row.drafter in winners else Text(text)


def _exact(row: BenchRow) -> str:
    return "yes" if row.exact_match == 1.0 else f"NO ({_percent(row.exact_match)})"


def stale_table(rows: Sequence[StaleRow]) -> Table:
    """What stale distributions still tell, per domain, temperature and staleness."""
    table = Table(title="Stale distributions: the share that still holds")
    for title in ("domain", "T", "staleness", "commits", "token", "confidence order", "order model"):
        table.add_column(title, justify="left" if title == "domain" else "right")
    previous = None
    for row in rows:
        cell = (row.domain, row.temperature)
        if cell != previous:
            table.add_section()
        previous = cell
        shares = (row.token_share, row.confidence_accuracy, row.order_accuracy)
        figures = (MISSING if share is None else f"{100 * share:.1f} %" for share in shares)
        table.add_row(row.domain, f"{row.temperature:g}", str(row.staleness), str(row.commits), *figures)
    return table
