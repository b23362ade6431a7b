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
    changes = {name: tensor for name, tensor in delta.items() if name == MASK_ROW}
    for layer in dict.fromkeys(name.removesuffix(IN).removesuffix(OUT) for name in delta if name != MASK_ROW):
        inner, outer = delta.get(layer + IN), delta.get(layer + OUT)
        if inner is None or outer is None:
            raise ValueError(f"the change of {layer} lacks one of {layer + IN} and {layer + OUT}; fetch its file again")
        if outer.shape[1:] != inner.shape[:1]:
            raise ValueError(f"the two parts of the change of {layer} do not fit; fetch its file again")
        changes[f"{layer}.weight"] = outer @ inner
    for name, change in changes.items():
        whole = weights.get(EMBEDDING_NAME if name == MASK_ROW else name)
        place = whole[mask_id] if whole is not None and name == MASK_ROW else whole
        if place is None or place.shape != change.shape:
            raise ValueError(f"the change of {name} does not fit the base; both must be of one model")
        if name == MASK_ROW:
            place.copy_(change)
        else:
            place.add_(change)
