"""The parity gate: a row whose decodes were not all the reference's shows no speed, and the run fails."""

from collections.abc import Sequence
from dataclasses import replace

from dlmspec.bench.rows import SPEED_KEYS, BenchRow, Samples


def gated(row: BenchRow) -> BenchRow:
    """The row itself if every decode was exact, else the row without anything that speaks of speed."""
    if row.exact_match == 1.0:
        return row
    return replace(row, samples=Samples(), **dict.fromkeys(SPEED_KEYS))


def exit_status(rows: Sequence[BenchRow]) -> int:
    """0 if every row is exact, else 1."""
    return int(any(row.exact_match != 1.0 for row in rows))
