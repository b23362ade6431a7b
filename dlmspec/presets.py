"""Other engines' decoders by name: their rule, confidence and sampling, so that their users get their tokens.

Where an engine's code has a defect (a mask id drawn, a prompt overwritten) the preset is its intended algorithm.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch

from dlmspec.rules import CommitRule, LowConfidenceDynamic, LowConfidenceStatic
from dlmspec.step import Sampling


@dataclass(frozen=True, slots=True)
class Preset:
    """One engine's decoder. `in_model_dtype`: it compares confidences in the dtype that the model runs in."""

    name: str
    rule: CommitRule
    sampling: Sampling
    in_model_dtype: bool = False

    def for_dtype(self, dtype: torch.dtype) -> "Preset":
        """The preset for a model of this dtype: confidences, and a threshold, rounded as the engine rounds them."""
        if not self.in_model_dtype or dtype not in (torch.bfloat16, torch.float16):
            return self
        name = str(dtype).removeprefix("torch.")
        rule = self.rule
        if isinstance(rule, LowConfidenceDynamic):
            rule = replace(rule, threshold=torch.tensor(rule.threshold, dtype=dtype).item())
        return replace(self, rule=rule, sampling=replace(self.sampling, confidence_dtype=name))


_PRESETS = (
    # SDAR's generate.py as it is meant to be: the probability under the filtered distribution
    Preset(
        "sdar-generate",
        LowConfidenceDynamic(threshold=0.85),
        Sampling(temperature=1.0, confidence="filtered_token_prob", mask_in_softmax=True),
        in_model_dtype=True,
    ),
    # SDAR's evaluation: T = 1 with top_k = 1 and an unfiltered confidence, which is T = 0
    Preset(
        "sdar-eval",
        LowConfidenceDynamic(threshold=0.95),
        Sampling(mask_in_softmax=True),
        in_model_dtype=True,
    ),
    # too few above the threshold: the leftmost masks, not the surest
    Preset("jetengine", LowConfidenceDynamic(threshold=0.9, fallback="leftmost"), Sampling(temperature=1.0)),
    # at least as sure as the threshold, and always the surest
    Preset("lmdeploy", LowConfidenceDynamic(threshold=0.85, inclusive=True), Sampling()),
    Preset("sglang", LowConfidenceDynamic(threshold=0.95), Sampling(confidence="raw_token_prob")),
    # untempered probabilities
    Preset("fast-dllm", LowConfidenceDynamic(threshold=0.9, inclusive=True), Sampling(confidence="raw_token_prob")),
    Preset("llada", LowConfidenceStatic(), Sampling(confidence="raw_token_prob"), in_model_dtype=True),
    # Dream's diffusion_generate with alg="entropy" and alg_temp=0; its one block is the whole answer
    Preset("dream", LowConfidenceStatic(schedule="timesteps"), Sampling(confidence="entropy"), in_model_dtype=True),
    # LLaDA2.0's generate
    Preset("llada2", LowConfidenceDynamic(threshold=0.95), Sampling(confidence="filtered_token_prob")),
)
PRESETS: Mapping[str, Preset] = MappingProxyType({preset.name: preset for preset in _PRESETS})


def find_preset(name: str) -> Preset:
    """Raises ValueError naming the presets if there is none of this name."""
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}; choose one of {', '.join(PRESETS)}")
    return PRESETS[name]
