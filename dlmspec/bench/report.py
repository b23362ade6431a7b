"""The JSON report of a benchmark: written after every row, so that one that is stopped loses none and can go on."""

import json
from pathlib import Path
from typing import Any

from dlmspec.atomic import write_text
from dlmspec.bench.rows import BenchRow

SAME = ("versions", "device", "threads", "commit", "argv")  # of `meta`: what makes two runs one measurement


class BenchReport:
    """Rows of one run, in a file if it has a `path`. `rows` holds at first what an unfinished run left there.

    A report of another command, commit or machine is measured anew, and so is a finished one. `differs` names what
    makes an unfinished report that is there another measurement.
    """

    def __init__(self, path: Path | None, meta: dict[str, Any]) -> None:
        self.path, self.meta = path, meta
        self.rows: list[BenchRow] = []
        self.differs: tuple[str, ...] = ()
        found = unfinished(path)
        if found is None:
            return
        self.differs = tuple(name for name in SAME if found["meta"].get(name) != meta[name])
        if not self.differs:
            try:
                self.rows = [BenchRow.from_dict(row) for row in found["rows"]]
            except (KeyError, TypeError):  # a changed checkout has the same commit whatever the change
                self.differs = ("fields of rows",)

    def add(self, row: BenchRow) -> None:
        """One row more, on disk before the next one is measured."""
        self.rows.append(row)
        self.write(complete=False)

    def write(self, *, complete: bool) -> None:
        """The file as of now."""
        if self.path is not None:
            write_text(self.path, json.dumps(self.content(complete=complete), indent=1) + "\n")

    def content(self, *, complete: bool) -> dict[str, Any]:
        """What the file holds."""
        meta = {**self.meta, "complete": complete}
        return {"schema": 1, "meta": meta, "rows": [row.as_dict() for row in self.rows]}


def unfinished(path: Path | None) -> dict[str, Any] | None:
    """The report that a stopped run left at `path`; None if there is none, or it is finished, or no report."""
    if path is None or not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return content if content["schema"] == 1 and not content["meta"]["complete"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # whatever it is, the report takes its place
