"""Drafters by name."""

from collections.abc import Callable

from dlmspec.drafters.adversarial import RandomDrafter
from dlmspec.drafters.base import DraftContext, Drafter, NoDrafter
from dlmspec.drafters.confidence import ConfidenceDrafter, ConfidenceTreeDrafter
from dlmspec.drafters.oracle import OracleDrafter, OracleOrderDrafter

UNTRAINED: dict[str, Callable[[], Drafter]] = {
    "none": NoDrafter,
    "confidence": ConfidenceDrafter,
    "confidence-tree": ConfidenceTreeDrafter,
    "oracle-order": OracleOrderDrafter,
    "oracle": OracleDrafter,
    "random": RandomDrafter,
}

__all__ = ["UNTRAINED", "DraftContext", "Drafter", "NoDrafter"]
