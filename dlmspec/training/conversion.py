"""Turns an autoregressive model into a block-diffusion one: a low-rank change of it, trained and written by itself."""

from collections.abc import Mapping

import torch
from torch import Tensor

from dlmspec.models.low_rank import save_delta
from dlmspec.models.spec import ModelSpec
from dlmspec.training.low_rank import adapt, delta_of
from dlmspec.training.network import BlockDiffusionNetwork
from dlmspec.training.target import Trainee, TrainingPlan


def from_pretrained(base: Mapping[str, Tensor], spec: ModelSpec, plan: TrainingPlan, *, rank: int) -> Trainee:
    """A pretrained network with a low-rank change, trained by AdamW; the weights stay as they are.

    Raises ValueError if its head is not the embedding: the network has no other.
    """
    if not spec.tie_word_embeddings:
        raise ValueError(f"{spec.name} has a head of its own; only models with a tied one can be converted")
    torch.manual_seed(0)
    network = BlockDiffusionNetwork(spec)
    network.load_state_dict({name: base[name] for name in network.state_dict()})
    adapt(network, rank)
    parameters = [p for p in network.parameters() if p.requires_grad]
    adam = torch.optim.AdamW(parameters, lr=plan.other_rate, betas=(0.9, 0.95), weight_decay=0.0)
    return Trainee(
        network, ((adam, plan.other_rate),), lambda directory: save_delta(delta_of(network), directory), autocast=False
    )
