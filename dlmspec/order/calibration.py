"""How often a stale token is the one that gets committed, given that its position is committed next.

A small table per temperature regime, token rank, staleness and log-probability bin, fitted on recorded decodes and
kept in a drafter's `calibration.json`.
"""

import bisect
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlmspec.json_object import Settings, read_json_object
from dlmspec.order.model import MAX_STALENESS

# upper edges of −log p: 0 … 1e-4 is a nearly certain token
EDGES = (1e-4, 1e-3, 1e-2, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.5, 4.0, 6.0)


def log_prob_bin(log_prob: float) -> int:
    """Index of the bin of a log-probability, 0 (certain) … len(EDGES)."""
    return bisect.bisect_left(EDGES, -log_prob)


@dataclass(frozen=True, slots=True)
class TokenTable:
    """`greedy` and `sampled`: probability by `[rank][staleness − 1][bin]`."""

    greedy: list[list[list[float]]]
    sampled: list[list[list[float]]]

    def probabilities(self, sampled: bool, staleness: int, bins: list[int]) -> list[float]:
        """By rank, for the `log_prob_bin` of each rank's log-probability."""
        table, depth = self.sampled if sampled else self.greedy, min(max(staleness, 1), MAX_STALENESS) - 1
        return [table[rank][depth][place] if rank < len(table) else 0.0 for rank, place in enumerate(bins)]


def calibration_text(table: TokenTable) -> str:
    """The content of a calibration.json."""
    content = {"edges": EDGES, "token_table": {"greedy": table.greedy, "sampled": table.sampled}}
    return json.dumps(content) + "\n"


def load_calibration(directory: Path) -> TokenTable:
    """Raises ValueError if the file is missing, damaged or of another layout."""
    path = directory / "calibration.json"
    content = read_json_object(path, "train the drafter again")
    if content.get("edges") != list(EDGES):
        raise ValueError(f"{path} was fitted with other bins; train the drafter again")
    regimes = Settings(path, content).object("token_table")
    for name in ("greedy", "sampled"):
        table = regimes.get(name)
        num_ranks = len(table) if isinstance(table, list) else 0
        if not num_ranks or not _is_array(table, (num_ranks, MAX_STALENESS, len(EDGES) + 1)):
            raise ValueError(f"{path}: token_table.{name} is no table of probabilities; train the drafter again")
    return TokenTable(regimes["greedy"], regimes["sampled"])


def _is_array(value: Any, shape: tuple[int, ...]) -> bool:
    """Whether it is nested lists of that shape, of probabilities."""
    if shape:
        is_row = isinstance(value, list) and len(value) == shape[0]
        return is_row and all(_is_array(part, shape[1:]) for part in value)
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
