"""Plots of rows as PNG files. Needs matplotlib (extra `bench`); draws without a display."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlmspec.atomic import replacing
from dlmspec.bench.plan import ORACLES
from dlmspec.bench.rows import BenchRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_WIDTH, PANEL_HEIGHT = 4.4, 3.4  # inches


def write_plots(rows: Sequence[BenchRow], directory: Path) -> list[Path]:
    """Per temperature the passes ratio over the budget, and the accepted steps at the largest budget.

    Returns the files written. Raises ValueError if matplotlib is missing or the directory cannot be written.
    """
    paths = []
    for temperature in dict.fromkeys(row.temperature for row in rows):
        chosen = [row for row in rows if row.temperature == temperature and row.passes_ratio is not None]
        if not chosen:
            continue
        name = f"T{temperature:g}.png"
        paths.append(_save(passes_figure(chosen), directory / f"passes-{name}"))
        paths.append(_save(accepted_figure(chosen), directory / f"accepted-{name}"))
    return paths


def passes_figure(rows: Sequence[BenchRow]) -> "Figure":
    """Passes ratio over budget, a line per drafter, a panel per domain."""
    domains = list(dict.fromkeys(row.domain for row in rows))
    figure, panels = _panels(len(domains))
    figure.suptitle(f"{rows[0].target}, {rows[0].rule}, T = {rows[0].temperature:g}")
    for panel, domain in zip(panels, domains, strict=True):
        here = [row for row in rows if row.domain == domain]
        for drafter in dict.fromkeys(row.drafter for row in here):
            points = sorted((row.budget, row.passes_ratio or 0.0) for row in here if row.drafter == drafter)
            style = "--" if drafter in ORACLES else "-"
            budgets, ratios = zip(*points, strict=True)
            panel.plot(budgets, ratios, style, marker="o", markersize=3, label=drafter)
        budgets = sorted({row.budget for row in here})
        panel.set_xscale("log", base=2)
        panel.set_xticks(budgets, [str(budget) for budget in budgets])
        panel.set(title=domain, xlabel="budget (block states per pass)")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("passes: reference with store ÷ drafter")
    panels[-1].legend(fontsize="small")
    return figure


def accepted_figure(rows: Sequence[BenchRow]) -> "Figure":
    """Share of verification passes by the steps that they advanced, at each drafter's largest budget."""
    domains = list(dict.fromkeys(row.domain for row in rows))
    figure, panels = _panels(len(domains))
    figure.suptitle(f"{rows[0].target}, {rows[0].rule}, T = {rows[0].temperature:g}: largest budget")
    for panel, domain in zip(panels, domains, strict=True):
        here = sorted((row for row in rows if row.domain == domain), key=lambda row: row.budget)
        largest = {row.drafter: row for row in here}
        width = 0.8 / len(largest)
        for place, (drafter, row) in enumerate(largest.items()):
            histogram = {int(steps): count for steps, count in (row.accepted_histogram or {}).items()}
            total = max(1, sum(histogram.values()))
            offset = (place - (len(largest) - 1) / 2) * width
            heights = [count / total for count in histogram.values()]
            panel.bar([steps + offset for steps in histogram], heights, width, label=drafter)
        panel.set(title=domain, xlabel="steps advanced by a pass")
        panel.grid(alpha=0.3, axis="y")
    panels[0].set_ylabel("share of passes")
    panels[-1].legend(fontsize="small")
    return figure


def _panels(count: int) -> tuple["Figure", list["Axes"]]:
    """A figure with `count` panels side by side, that needs no display and leaves no global state."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("plots need matplotlib; install it with: pip install 'dlmspec[bench]'") from error
    figure = Figure(figsize=(PANEL_WIDTH * count, PANEL_HEIGHT), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, count, sharey=True, squeeze=False)
    return figure, list(panels[0])


def _save(figure: "Figure", path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as (temporary,):
            figure.savefig(temporary, dpi=150, format="png")
    except OSError as error:
        raise ValueError(f"cannot write the plot {path}: {error}; choose another directory") from error
    return path
