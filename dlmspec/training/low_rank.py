"""The trainable form of a low-rank change: terms on every linear layer of a frozen network, and the mask's row."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dlmspec.models.low_rank import MASK_ROW
from dlmspec.training.batches import Batch
from dlmspec.training.network import BlockDiffusionNetwork

SPARE_DIRECTIONS = 10  # looked at beside those that are kept: the randomised decomposition needs some
TRAINED_ROW = "model.embed_tokens.mask_row"


class LowRankProduct(torch.autograd.Function):
    """`x W' + (x A') B'` of a frozen `W`: one output that the second product is added into, and a backward pass that
    multiplies with `W` in the layout in which products are fast."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.bfloat16)  # under autocast; else as they come
    def forward(ctx: Any, x: Tensor, weight: Tensor, transposed: Tensor, inner: Tensor, outer: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        hidden = rows @ inner.T
        product = F.linear(rows, weight).addmm_(hidden, outer.T)
        ctx.save_for_backward(rows, hidden, transposed, inner, outer)
        return product.view(*x.shape[:-1], -1)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rows, hidden, transposed, inner, outer = ctx.saved_tensors
        shape = gradients[0].shape[:-1]
        gradient = gradients[0].reshape(-1, gradients[0].shape[-1])
        of_hidden = gradient @ outer
        of_rows = F.linear(gradient, transposed).addmm_(of_hidden, inner)
        return of_rows.view(*shape, -1), None, None, of_hidden.T @ rows, gradient.T @ hidden


class LowRankLinear(nn.Module):
    """A frozen matrix `[out, in]` plus `delta_out [out, r] @ delta_in [r, in]`, which starts at zero.

    `delta_in` starts as the `directions` `[r, in]` that are given, else at random. The matrix is held in `dtype`.
    """

    def __init__(self, weight: Tensor, rank: int, directions: Tensor | None = None,
                 dtype: torch.dtype = torch.float32) -> None:  # fmt: skip
        super().__init__()
        frozen = weight.detach().to(dtype)
        self.weight = nn.Parameter(frozen, requires_grad=False)
        self.register_buffer("transposed", frozen.T.contiguous(), persistent=False)
        random = torch.randn(rank, weight.shape[1]) * weight.shape[1] ** -0.5
        self.delta_in = nn.Parameter(random if directions is None else directions)
        self.delta_out = nn.Parameter(torch.zeros(weight.shape[0], rank))

    def forward(self, x: Tensor) -> Tensor:
        return LowRankProduct.apply(x, self.weight, self.transposed, self.delta_in, self.delta_out)  # type: ignore[return-value]


class MaskRowEmbedding(nn.Module):
    """A frozen embedding whose row of the mask is trained."""

    def __init__(self, weight: Tensor, mask_id: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach(), requires_grad=False)
        self.mask_id = mask_id
        self.mask_row = nn.Parameter(weight.detach()[mask_id].clone())

    def forward(self, token_ids: Tensor) -> Tensor:
        rows = F.embedding(token_ids, self.weight)
        return torch.where((token_ids == self.mask_id)[..., None], self.mask_row, rows)


def adapt(network: BlockDiffusionNetwork, rank: int, batches: Sequence[Batch] = (),
          dtype: torch.dtype = torch.float32) -> None:  # fmt: skip
    """Freeze a network and give it a low-rank change, zero at first; the mask starts as the mean embedding.

    The change starts in the directions of the loss's gradient on the `batches` (as LoRA-GA does, arXiv 2407.05000); in
    random ones if there are none. Frozen matrices of the layers are held in `dtype`.
    """
    body = network.model
    with torch.no_grad():
        body.embed_tokens.weight[network.spec.mask_id] = body.embed_tokens.weight.mean(0)
    for batch in batches:
        losses = network(batch)
        ((losses * batch.weights).sum() / batch.weights.sum()).backward()
    network.requires_grad_(False)
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                directions = gradient_directions(child.weight, rank)
                setattr(module, name, LowRankLinear(child.weight, rank, directions, dtype))
    network.zero_grad()
    body.embed_tokens = MaskRowEmbedding(body.embed_tokens.weight, network.spec.mask_id)  # type: ignore[assignment]


def gradient_directions(weight: Tensor, rank: int) -> Tensor | None:
    """The `[rank, in]` input directions in which a matrix's gradient is largest; None if it has no gradient."""
    if weight.grad is None:
        return None
    spare = min(rank + SPARE_DIRECTIONS, *weight.shape)
    return torch.svd_lowrank(weight.grad, q=spare, niter=4)[2][:, :rank].T.contiguous()


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
