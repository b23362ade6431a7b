"""Is one drafter better than another? Over cells, with a paired bootstrap over prompts.

A cell is one domain, temperature and budget. Better means, both at 95 %: fewer passes on the geometric mean over cells
(the interval lies above 1), and no cell worse by more than 1 % (no interval lies below 0.99).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlmspec.bench.rows import BenchRow

WORST_CELL = 0.99
CellKey = tuple[str, float, int]


@dataclass(frozen=True, slots=True)
class CellRatio:
    """Passes of the rival ÷ passes of the drafter in one cell, sums over prompts, with a 95 % interval."""

    domain: str
    temperature: float
    budget: int
    ratio: float
    low: float
    high: float

    @property
    def is_worse(self) -> bool:
        """Whether the drafter is worse by more than 1 %, beyond the luck of the prompts."""
        return self.high < WORST_CELL


@dataclass(frozen=True, slots=True)
class Comparison:
    """Geometric mean over the cells of the ratio of passes, rival ÷ drafter, with its 95 % interval."""

    drafter: str
    rival: str
    ratio: float
    low: float
    high: float
    cells: tuple[CellRatio, ...]

    @property
    def is_better(self) -> bool:
        """The verdict on the drafter."""
        return self.low > 1.0 and not any(cell.is_worse for cell in self.cells)

    @property
    def worst(self) -> CellRatio:
        """The lowest ratio among the cells that spoil the verdict, or among all if none does."""
        return min(self.cells, key=lambda cell: (not cell.is_worse, cell.ratio))


def compare(rows: Sequence[BenchRow], drafter: str, rival: str, *, samples: int = 2000, seed: int = 0) -> Comparison:
    """`drafter` against `rival` over the cells that both have.

    A resampled prompt enters all cells of its domain at once, on both sides. Raises ValueError if they share
    no cell, or if a row failed the parity gate.
    """
    ours, theirs = _by_cell(rows, drafter), _by_cell(rows, rival)
    cells = [cell for cell in ours if cell in theirs]
    if not cells:
        raise ValueError(f"{drafter!r} and {rival!r} share no domain, temperature and budget; measure both")
    counts = _prompts_by_domain(cells, ours, theirs)
    generator = np.random.default_rng(seed)
    draws = {domain: generator.integers(0, count, (samples, count)) for domain, count in counts.items()}
    points, spread = [], []
    for cell in cells:
        ours_here, theirs_here = ours[cell], theirs[cell]
        points.append(theirs_here.sum() / ours_here.sum())
        drawn = draws[cell[0]]
        spread.append(theirs_here[drawn].sum(-1) / ours_here[drawn].sum(-1))
    ratios = tuple(
        CellRatio(*cell, float(point), *_interval(resampled))
        for cell, point, resampled in zip(cells, points, spread, strict=True)
    )
    mean = float(np.exp(np.mean(np.log(points))))
    return Comparison(drafter, rival, mean, *_interval(np.exp(np.log(spread).mean(0))), ratios)


def _by_cell(rows: Sequence[BenchRow], drafter: str) -> dict[CellKey, NDArray[np.int64]]:
    """Passes per prompt of a drafter, by cell."""
    found: dict[CellKey, NDArray[np.int64]] = {}
    for row in rows:
        if row.drafter != drafter:
            continue
        if not row.samples.passes:
            raise ValueError(f"the row of {drafter!r} on {row.domain} is not exact; it cannot be compared")
        cell = (row.domain, row.temperature, row.budget)
        if cell in found:
            raise ValueError(f"{drafter!r} has two rows at {cell}; compare one target and rule at a time")
        found[cell] = np.array(row.samples.passes)
    return found


def _prompts_by_domain(cells: Sequence[CellKey], *sides: dict[CellKey, NDArray[np.int64]]) -> dict[str, int]:
    """Number of prompts of each domain: the same in all its cells, or the pairs would be none."""
    counts: dict[str, int] = {}
    for cell in cells:
        for side in sides:
            count = counts.setdefault(cell[0], len(side[cell]))
            if count != len(side[cell]):
                raise ValueError(f"cells of {cell[0]} have {count} and {len(side[cell])} prompts; use one limit")
    return counts


def _interval(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)
