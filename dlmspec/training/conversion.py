"""Turns an autoregressive model into a block-diffusion one: a low-rank change of it, trained and written by itself."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from dlmspec.models.low_rank import save_delta
from dlmspec.models.spec import ModelSpec
from dlmspec.training.batches import Batch
from dlmspec.training.low_rank import adapt, delta_of
from dlmspec.training.network import BlockDiffusionNetwork
from dlmspec.training.target import Trainee, TrainingPlan

INNER_RATE = 0.25  # of the other rate: the directions that the change starts in are good ones


def from_pretrained(base: Mapping[str, Tensor], spec: ModelSpec, plan: TrainingPlan, *, rank: int,
                    batches: Sequence[Batch] = (), autocast: bool = False) -> Trainee:  # fmt: skip
    """A pretrained network with a low-rank change, trained by AdamW; the weights stay as they are.

    With `autocast` it computes in bf16, in which the frozen weights are then held.
    The change starts in the directions of the loss's gradient on the `batches`. Raises ValueError if the head is not
    the embedding: the network has no other.
    """
    if not spec.tie_word_embeddings:
        raise ValueError(f"{spec.name} has a head of its own; only models with a tied one can be converted")
    torch.manual_seed(0)
    network = BlockDiffusionNetwork(spec)
    network.load_state_dict({name: base[name] for name in network.state_dict()})
    adapt(network, rank, batches, torch.bfloat16 if autocast else torch.float32)
    named = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
    parts = (
        (INNER_RATE * plan.other_rate, [p for name, p in named if name.endswith("delta_in")]),
        (plan.other_rate, [p for name, p in named if not name.endswith("delta_in")]),
    )
    optimizers = tuple(
        (torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.95), weight_decay=0.0), rate)
        for rate, parameters in parts
    )
    return Trainee(network, optimizers, lambda directory: save_delta(delta_of(network), directory), autocast)
