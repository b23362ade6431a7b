"""The trainable form of a low-rank change: terms on every linear layer of a frozen network, and the mask's row."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dlmspec.models.low_rank import MASK_ROW
from dlmspec.training.network import BlockDiffusionNetwork

TRAINED_ROW = "model.embed_tokens.mask_row"


class LowRankLinear(nn.Module):
    """A frozen matrix `[out, in]` plus `delta_out [out, r] @ delta_in [r, in]`, which starts at zero."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach(), requires_grad=False)
        self.delta_in = nn.Parameter(torch.randn(rank, weight.shape[1]) * weight.shape[1] ** -0.5)
        self.delta_out = nn.Parameter(torch.zeros(weight.shape[0], rank))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight) + F.linear(F.linear(x, self.delta_in), self.delta_out)


class MaskRowEmbedding(nn.Module):
    """A frozen embedding whose row of the mask is trained."""

    def __init__(self, weight: Tensor, mask_id: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach(), requires_grad=False)
        self.mask_id = mask_id
        self.mask_row = nn.Parameter(weight.detach().mean(0))

    def forward(self, token_ids: Tensor) -> Tensor:
        rows = F.embedding(token_ids, self.weight)
        return torch.where((token_ids == self.mask_id)[..., None], self.mask_row, rows)


def adapt(network: BlockDiffusionNetwork, rank: int) -> None:
    """Freeze a network and give it a low-rank change, zero at first; the mask starts as the mean embedding."""
    network.requires_grad_(False)
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, LowRankLinear(child.weight, rank))
    body = network.model
    body.embed_tokens = MaskRowEmbedding(body.embed_tokens.weight, network.spec.mask_id)  # type: ignore[assignment]


def delta_of(network: BlockDiffusionNetwork) -> dict[str, Tensor]:
    """The trained tensors by name: `LAYER.delta_in`, `LAYER.delta_out` and the mask's embedding."""
    trained = {name: p.detach() for name, p in network.named_parameters() if p.requires_grad}
    trained[MASK_ROW] = trained.pop(TRAINED_ROW)
    return trained


def take_delta(network: BlockDiffusionNetwork, delta: Mapping[str, Tensor]) -> None:
    """Put a saved change into an adapted network of the same rank."""
    named = {name: tensor for name, tensor in delta.items() if name != MASK_ROW}
    named[TRAINED_ROW] = delta[MASK_ROW]
    missing, unexpected = network.load_state_dict(named, strict=False)
    trained = {name for name, p in network.named_parameters() if p.requires_grad}
    assert not unexpected, unexpected
    assert not trained.intersection(missing), "a change holds every trained tensor"
