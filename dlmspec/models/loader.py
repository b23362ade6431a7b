"""Checkpoint files: read them into a checked state dict, write them atomically.

Knows what tensors a model needs; knows nothing of the forward pass.
"""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dlmspec.atomic import replacing
from dlmspec.json_object import read_json_object
from dlmspec.models.families import BY_NAME
from dlmspec.models.read_spec import read_config
from dlmspec.models.spec import ModelSpec
from dlmspec.models.stored_tensors import names_of, stored_tensors

WEIGHTS_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
HEAD_NAME = "lm_head.weight"
EMBEDDING_NAME = "model.embed_tokens.weight"
NUM_NAMES_SHOWN = 4


def expected_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Llama's name and the shape of every tensor that the model needs; `lm_head.weight` only if it is not tied."""
    hidden = spec.hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        EMBEDDING_NAME: (spec.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    for layer in range(spec.num_layers):
        shapes.update({f"model.layers.{layer}.{name}": shape for name, shape in _layer_shapes(spec, layer).items()})
    if not spec.tie_word_embeddings:
        shapes[HEAD_NAME] = (spec.vocab_size, hidden)
    return shapes


def _layer_shapes(spec: ModelSpec, layer: int) -> dict[str, tuple[int, ...]]:
    hidden, dim = spec.hidden_size, spec.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "self_attn.o_proj.weight": (hidden, spec.num_heads * dim),
    }
    for name, heads in (("q", spec.num_heads), ("k", spec.num_kv_heads), ("v", spec.num_kv_heads)):
        shapes[f"self_attn.{name}_proj.weight"] = (heads * dim, hidden)
        if spec.qkv_bias:
            shapes[f"self_attn.{name}_proj.bias"] = (heads * dim,)
        if spec.qk_norm and name != "v":
            shapes[f"self_attn.{name}_norm.weight"] = (dim,)
    if not spec.has_experts(layer):
        return shapes | mlp_shapes("mlp", hidden, spec.intermediate_size)
    return shapes | expert_shapes(spec)


def mlp_shapes(name: str, hidden: int, width: int) -> dict[str, tuple[int, ...]]:
    """The three matrices of a gated MLP."""
    return {
        f"{name}.gate_proj.weight": (width, hidden),
        f"{name}.up_proj.weight": (width, hidden),
        f"{name}.down_proj.weight": (hidden, width),
    }


def expert_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Router, experts and the shared expert of a layer that has them."""
    moe, hidden = spec.moe, spec.hidden_size
    assert moe is not None
    shapes: dict[str, tuple[int, ...]] = {"mlp.gate.weight": (moe.num_experts, hidden)}
    if moe.expert_bias:
        shapes["mlp.gate.expert_bias"] = (moe.num_experts,)
    for expert in range(moe.num_experts):
        shapes |= mlp_shapes(f"mlp.experts.{expert}", hidden, moe.intermediate_size)
    if moe.shared_intermediate_size:
        shapes |= mlp_shapes("mlp.shared_experts", hidden, moe.shared_intermediate_size)
    return shapes


def load_weights(
    path: str | Path, spec: ModelSpec, dtype: torch.dtype, device: torch.device | str
) -> dict[str, Tensor]:
    """Read a single or sharded safetensors checkpoint; a tied `lm_head.weight` is the embedding itself.

    Raises ValueError for missing or misshapen tensors and for missing, corrupt or truncated files; warns with
    the names of tensors that the model does not use.
    """
    directory = Path(path)
    shapes = expected_shapes(spec)
    stored = stored_tensors(spec, shapes)
    weights: dict[str, Tensor] = {}
    unexpected: list[str] = []
    for file in _weight_files(directory):
        for name, tensor in _read_file(file).items():
            if name not in stored:
                unexpected.append(name)
                continue
            _check_tensor(file, name, tensor, stored[name].shape)
            rows, parts = tensor.to(device=device, dtype=dtype), stored[name].parts
            if len(parts) == 1:
                weights[parts[0]] = rows
            else:
                split = rows.flatten(0, -2).split([shapes[part][0] for part in parts])
                weights.update(zip(parts, split, strict=True))
    missing = names_of([name for name in shapes if name not in weights], stored)
    if missing:
        raise ValueError(
            f"{directory}: {len(missing)} tensors are missing: {_some(missing)}; "
            "fetch the checkpoint again or check that config.json belongs to it"
        )
    if spec.tie_word_embeddings:
        head = BY_NAME[spec.family].tensor_name(HEAD_NAME)
        unexpected = [name for name in unexpected if name != head]  # a redundant copy of the embedding
        weights[HEAD_NAME] = weights[EMBEDDING_NAME]
    if unexpected:
        warnings.warn(f"{directory}: {len(unexpected)} unused tensors: {_some(unexpected)}", stacklevel=2)
    return weights


def checkpoint_dtype(path: str | Path) -> torch.dtype:
    """The dtype that config.json states (`dtype` or `torch_dtype`); fp32 if it states none."""
    directory = Path(path)
    config = read_config(directory)
    return parse_dtype(config.get("dtype") or config.get("torch_dtype") or "float32")


def parse_dtype(dtype: torch.dtype | str) -> torch.dtype:
    """A floating torch dtype from itself or its name (`"bfloat16"`). Raises ValueError for anything else."""
    found = getattr(torch, dtype.removeprefix("torch."), None) if isinstance(dtype, str) else dtype
    if found not in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"dtype {dtype!r} is not supported; use float32, bfloat16, float16 or float64")
    return found


def save_checkpoint(path: str | Path, state_dict: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
    """Write `model.safetensors` and `config.json` into the directory `path`, by temporary name and rename.

    A head that is tied (`tie_word_embeddings` in `config`) is left out. Raises ValueError if `path` is not
    writable.
    """
    directory = Path(path)
    tensors = {
        name: tensor.detach().cpu().contiguous()
        for name, tensor in state_dict.items()
        if not (config.get("tie_word_embeddings") and name == HEAD_NAME)
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with replacing(directory / "config.json", directory / WEIGHTS_NAME) as (settings, weights):
            settings.write_text(json.dumps(dict(config), indent=2) + "\n", encoding="utf-8")
            save_file(tensors, weights, metadata={"format": "pt"})
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{directory}: cannot write the checkpoint ({error}); choose a writable directory") from error


def _weight_files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        raise ValueError(f"{directory}: no such directory; give a directory that holds config.json and {WEIGHTS_NAME}")
    single, index = directory / WEIGHTS_NAME, directory / INDEX_NAME
    if single.is_file():
        return [single]
    if not index.is_file():
        raise ValueError(f"{directory}: no weights, it has neither {WEIGHTS_NAME} nor {INDEX_NAME}")
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise ValueError(f"{index}: not a safetensors index (weight_map must name files); fetch the file again")
    names = sorted(set(weight_map.values()))
    absent = [name for name in names if not (directory / name).is_file()]
    if absent:
        raise ValueError(f"{directory}: {len(absent)} weight files are missing: {_some(absent)}; fetch them")
    return [directory / name for name in names]


def _read_file(file: Path) -> dict[str, Tensor]:
    try:
        with safe_open(file, framework="pt", device="cpu") as handle:
            return {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118 (a handle is no dict)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file}: corrupt or truncated ({error}); fetch the file again") from error


def _check_tensor(file: Path, name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(
            f"{file}: {name} has shape {tuple(tensor.shape)}, expected {shape}; "
            "check that config.json belongs to this checkpoint"
        )
    if not tensor.is_floating_point() or tensor.element_size() < 2:
        raise ValueError(f"{file}: {name} is {tensor.dtype}; quantised checkpoints are not supported")


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:NUM_NAMES_SHOWN])
    return shown + (", …" if len(names) > NUM_NAMES_SHOWN else "")
