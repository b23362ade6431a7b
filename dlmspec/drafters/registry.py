"""Drafters by kind, name or directory, and the one that fits a target and a rule."""

from pathlib import Path

from dlmspec.drafters import UNTRAINED
from dlmspec.drafters.base import Drafter
from dlmspec.drafters.spot import SpotDrafter
from dlmspec.drafters.stale import commits_one_by_confidence
from dlmspec.rules import CommitRule
from dlmspec.shipped import drafter_for, find_model, shipped_names

KINDS = (*UNTRAINED, "spot")


def make_drafter(kind: str | Path, target: str) -> Drafter:
    """`spot` is the drafter shipped for this target; else a kind, a shipped drafter's name, or a directory.

    Raises ValueError naming the kinds if there is no such drafter.
    """
    if kind in UNTRAINED:
        return UNTRAINED[str(kind)]()
    if kind == "spot":
        found = drafter_for(target)
        if found is None:
            raise ValueError(
                f"no drafter is shipped for target {target!r}; train one, or choose {', '.join(UNTRAINED)}"
            )
        return SpotDrafter.from_directory(found)
    if Path(kind).is_dir() or str(kind) in shipped_names(drafters=True):
        return SpotDrafter.from_directory(find_model(kind, drafter=True))
    raise ValueError(f"unknown drafter {str(kind)!r}; choose one of {', '.join(KINDS)}, or a drafter directory")


def fitting_drafter(target: str, rule: CommitRule, block_length: int) -> Drafter:
    """`spot` where it is shipped for the target and the rule commits one position per step, else `confidence`.

    Blocks of one token leave nothing stale to read: `none`.
    """
    if block_length == 1:
        return make_drafter("none", target)
    if commits_one_by_confidence(rule, 0, block_length) and drafter_for(target) is not None:
        return make_drafter("spot", target)
    return make_drafter("confidence", target)
