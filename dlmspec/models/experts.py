"""Mixture-of-experts MLP (Qwen3-MoE, LLaDA2)."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from dlmspec.models.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class ExpertsMlp:
    @classmethod
    def packed(cls, weights: Mapping[str, Tensor], name: str, spec: ModelSpec) -> "ExpertsMlp":
        raise NotImplementedError

    def __call__(self, x: Tensor) -> Tensor:
        raise NotImplementedError
