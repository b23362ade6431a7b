"""Lossless speculative decoding for masked-diffusion language models."""

__version__ = "0.1.0"

from dlmspec.engine import CommitEvent, Generation, LanguageModel, load
from dlmspec.rules import EntropyBounded, Factor, LowConfidenceDynamic, LowConfidenceStatic, Sequential

__all__ = [
    "CommitEvent",
    "EntropyBounded",
    "Factor",
    "Generation",
    "LanguageModel",
    "LowConfidenceDynamic",
    "LowConfidenceStatic",
    "Sequential",
    "__version__",
    "load",
]
