"""A low-rank change of a checkpoint: `LAYER.delta_out @ LAYER.delta_in` (`[out, r] @ [r, in]`), and the mask's row.

Low-rank adaptation (Hu et al. 2021, arXiv:2106.09685); added to the weights it leaves a plain checkpoint.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from dlmspec.atomic import replacing
from dlmspec.models.loader import EMBEDDING_NAME

DELTA_NAME = "delta.safetensors"
MASK_ROW = "mask_embedding"
IN, OUT = ".delta_in", ".delta_out"


def save_delta(delta: Mapping[str, Tensor], directory: Path) -> None:
    """Write a change in bf16, whole or not at all."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in delta.items()}
    with replacing(directory / DELTA_NAME) as (temporary,):
        save_file(tensors, temporary, metadata={"format": "pt"})


def load_delta(directory: Path) -> dict[str, Tensor]:
    """The tensors of a change, fp32. Raises ValueError if the file is missing or damaged."""
    path = directory / DELTA_NAME
    try:
        return {name: tensor.float() for name, tensor in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path}: corrupt or missing ({error}); fetch the file again") from error


def merge(weights: dict[str, Tensor], delta: Mapping[str, Tensor], mask_id: int) -> None:
    """Add a change to fp32 `weights` in place.

    Raises ValueError naming the tensor if it belongs to no weight or does not fit one.
    """
    changes = {EMBEDDING_NAME: delta[MASK_ROW]} if MASK_ROW in delta else {}
    for name in (name for name in delta if name.endswith(OUT)):
        layer = name.removesuffix(OUT)
        if layer + IN not in delta:
            raise ValueError(f"the change lacks {layer + IN}; fetch its file again")
        changes[f"{layer}.weight"] = delta[name] @ delta[layer + IN]
    for name, change in changes.items():
        place = weights[name][mask_id] if name == EMBEDDING_NAME else weights.get(name)
        if place is None or place.shape != change.shape:
            raise ValueError(f"the change of {name} does not fit the base; both must be of one model")
        if name == EMBEDDING_NAME:
            place.copy_(change)
        else:
            place.add_(change)
