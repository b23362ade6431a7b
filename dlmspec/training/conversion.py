"""Turns an autoregressive model into a block-diffusion one: a low-rank change of it, trained and written by itself."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dlmspec.atomic import replacing
from dlmspec.models.spec import ModelSpec
from dlmspec.training.low_rank import adapt, delta_of, load_delta
from dlmspec.training.network import BlockDiffusionNetwork
from dlmspec.training.target import Trainee, TrainingPlan

DELTA_NAME = "delta.safetensors"


def from_pretrained(base: Mapping[str, Tensor], spec: ModelSpec, plan: TrainingPlan, *, rank: int) -> Trainee:
    """A pretrained network with a low-rank change, trained by AdamW; the weights stay as they are."""
    torch.manual_seed(0)
    network = BlockDiffusionNetwork(spec)
    network.load_state_dict({name: base[name] for name in network.state_dict()})
    adapt(network, rank)
    parameters = [p for p in network.parameters() if p.requires_grad]
    adam = torch.optim.AdamW(parameters, lr=plan.other_rate, betas=(0.9, 0.95), weight_decay=0.0)
    return Trainee(
        network, ((adam, plan.other_rate),), lambda directory: save_delta(network, directory), autocast=False
    )


def save_delta(network: BlockDiffusionNetwork, directory: Path) -> None:
    """Write the trained change in bf16."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in delta_of(network).items()}
    with replacing(directory / DELTA_NAME) as (temporary,):
        save_file(tensors, temporary, metadata={"format": "pt"})


def start_from_delta(network: BlockDiffusionNetwork, directory: Path) -> None:
    """Go on from a saved change of the same rank."""
    load_delta(network, load_file(directory / DELTA_NAME))
