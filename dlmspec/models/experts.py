"""The MLP of a layer with experts (Qwen3-MoE, LLaDA2): a router sends every row to a few small MLPs.

Row invariance rules here too: an expert's products run on a multiple of 16 rows, and what a row's experts say is added
in the row's own order of them, so its bits do not depend on which other rows an expert is given.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dlmspec.models.mlp import ELEMENTS_PER_THREAD, DenseMlp
from dlmspec.models.spec import ModelSpec, MoeSpec
from dlmspec.models.target_pass import pad_rows

TINY = 1e-20  # LLaDA2 adds it to the sum that it divides weights by
VECTOR = 32  # a multiple of the elements that torch's elementwise code takes at a time


@dataclass(frozen=True, slots=True)
class ExpertsMlp:
    """`router [d, E]`, fp32 or wider where the family routes so; `bias [E]` counts in the choice only."""

    moe: MoeSpec
    router: Tensor
    bias: Tensor | None
    experts: tuple[DenseMlp, ...]
    shared: DenseMlp | None

    @classmethod
    def packed(cls, weights: Mapping[str, Tensor], name: str, spec: ModelSpec) -> "ExpertsMlp":
        """From `NAME.gate`, `NAME.experts.{e}` and, where there is one, `NAME.shared_experts`."""
        moe = spec.moe
        assert moe is not None
        router, bias = weights[f"{name}.gate.weight"].t().contiguous(), weights.get(f"{name}.gate.expert_bias")
        if moe.router == "grouped_sigmoid":
            router = widened(router)
        return cls(
            moe,
            router,
            None if bias is None else widened(bias),
            tuple(DenseMlp.packed(weights, f"{name}.experts.{expert}") for expert in range(moe.num_experts)),
            DenseMlp.packed(weights, f"{name}.shared_experts") if moe.shared_intermediate_size else None,
        )

    def __call__(self, x: Tensor) -> Tensor:
        chosen, weights = self.route(x)
        answers = x.new_empty(*chosen.shape, x.shape[-1])  # [rows, k, d]
        for expert in chosen.unique().tolist():
            rows, slots = (chosen == expert).nonzero(as_tuple=True)
            answers[rows, slots] = self.experts[expert](pad_rows(x[rows]))[: len(rows)]
        wide = widened(answers) if self.moe.router == "grouped_sigmoid" else answers
        weights = weights.to(wide.dtype)
        mixed = wide[:, 0] * weights[:, :1]
        for slot in range(1, self.moe.top_k):
            mixed = mixed + wide[:, slot] * weights[:, slot : slot + 1]
        mixed = mixed.to(x.dtype)
        return mixed if self.shared is None else mixed + self.shared(x)

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Experts `[rows, k]`, the best first, and their weights; the lowest expert wins ties."""
        moe = self.moe
        if moe.router == "softmax":
            scores = torch.softmax(widened(x @ self.router), -1)
            chosen = best(scores, moe.top_k)
        else:
            scores = sigmoid(widened(x) @ self.router)
            ranked = scores if self.bias is None else scores + self.bias
            chosen = best(self._within_groups(ranked), moe.top_k)
        weights = scores.gather(-1, chosen)
        if moe.normalise:
            total = weights[:, :1]
            for slot in range(1, moe.top_k):
                total = total + weights[:, slot : slot + 1]
            weights = weights / (total + (TINY if moe.router == "grouped_sigmoid" else 0.0))
        return chosen, weights * moe.scaling

    def _within_groups(self, ranked: Tensor) -> Tensor:
        """Scores `[rows, E]` outside the groups whose two best experts sum highest: -inf."""
        groups = ranked.unflatten(-1, (self.moe.num_groups, -1))
        strength = groups.topk(min(2, groups.shape[-1]), -1).values
        strength = strength[..., 0] + strength[..., -1] if groups.shape[-1] > 1 else strength[..., 0]
        kept = torch.zeros_like(strength, dtype=torch.bool).scatter_(-1, best(strength, self.moe.topk_group), True)
        return groups.masked_fill(~kept[..., None], -torch.inf).flatten(-2)


def best(scores: Tensor, number: int) -> Tensor:
    """Indices of the largest scores of each row, the lowest index first among equals."""
    return torch.sort(scores, dim=-1, descending=True, stable=True).indices[..., :number]


def sigmoid(x: Tensor) -> Tensor:
    """Sigmoid of `x [rows, n]`, the bits of an element independent of the rows and of its place in them.

    torch takes other code at the ragged end of a thread's share: so rows are widened to whole vectors, and chunks are
    used that are too small to be shared.
    """
    if x.device.type != "cpu":
        return torch.sigmoid(x)
    number = x.shape[1]
    whole = F.pad(x, (0, -number % VECTOR))
    chunks = whole.split(max(1, ELEMENTS_PER_THREAD // whole.shape[1]))
    return torch.cat([torch.sigmoid(chunk) for chunk in chunks])[:, :number]


def widened(x: Tensor) -> Tensor:
    """In fp32, or in fp64 where it is."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
