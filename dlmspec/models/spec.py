"""What a checkpoint directory says about its model: shapes, block length, mask id, stop ids.

Reads JSON only; knows nothing of weights, devices or tokenizers.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SUPPORTED_MODEL_TYPES = ("sdar", "qwen3")
SDAR_BLOCK_LENGTH = 4  # releases without a suffix; their configs carry no block_size
SDAR_MASK_ID = 151669


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Shapes and ids of one target. `stop_ids` is the union of generation_config's and config's end ids."""

    family: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    tie_word_embeddings: bool
    block_length: int
    mask_id: int
    stop_ids: tuple[int, ...]
    name: str


def spec_from_directory(path: str | Path, *, block_length: int | None = None, mask_id: int | None = None) -> ModelSpec:
    """Read `config.json`, and `generation_config.json` and `tokenizer_config.json` where present.

    Raises ValueError if it is no model directory, of an unsupported type or kind, or if the block length or
    the mask id cannot be resolved.
    """
    directory = Path(path)
    config = read_config(directory)
    check_supported(config, directory)
    hidden, heads = (_required_int(config, key, directory) for key in ("hidden_size", "num_attention_heads"))
    vocab = _required_int(config, "vocab_size", directory)
    spec = ModelSpec(
        family="sdar",
        hidden_size=hidden,
        num_layers=_required_int(config, "num_hidden_layers", directory),
        num_heads=heads,
        num_kv_heads=_optional(config, "num_key_value_heads", heads),
        head_dim=_optional(config, "head_dim", hidden // heads),
        intermediate_size=_required_int(config, "intermediate_size", directory),
        vocab_size=vocab,
        rms_norm_eps=float(_optional(config, "rms_norm_eps", 1e-6)),
        rope_theta=_rope_theta(config, directory),
        max_position_embeddings=_required_int(config, "max_position_embeddings", directory),
        tie_word_embeddings=bool(_optional(config, "tie_word_embeddings", False)),
        block_length=_resolve_block_length(config, directory, block_length),
        mask_id=_resolve_mask_id(config, directory, mask_id, vocab),
        stop_ids=_stop_ids(config, directory),
        name=directory.resolve().name,
    )
    if spec.num_heads % spec.num_kv_heads or spec.head_dim % 2:
        raise ValueError(
            f"{directory / 'config.json'}: {spec.num_heads} heads, {spec.num_kv_heads} key/value heads of "
            f"dim {spec.head_dim}; heads must be a multiple of key/value heads and head_dim even"
        )
    return spec


def read_config(directory: Path) -> dict[str, Any]:
    """The parsed `config.json`. Raises ValueError if the directory or the file is missing or not JSON."""
    if not directory.is_dir():
        raise ValueError(
            f"{directory}: no such directory; give a directory that holds config.json and model.safetensors"
        )
    config = _read_json(directory / "config.json")
    if config is None:
        raise ValueError(f"{directory}: not a model directory, it has no config.json")
    return config


def check_supported(config: dict[str, Any], directory: Path) -> None:
    """Raise ValueError for model types and options whose forward pass is not the one implemented here."""
    model_type = config.get("model_type")
    if model_type not in SUPPORTED_MODEL_TYPES:
        raise ValueError(
            f"{directory}: model_type {model_type!r} is not supported; supported: {', '.join(SUPPORTED_MODEL_TYPES)}"
        )
    scaling = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    rope_type = scaling.get("rope_type", scaling.get("type", "default"))
    layer_types = set(config.get("layer_types") or ()) - {"full_attention"}
    refused = {
        f"rope type {rope_type!r} (only 'default')": rope_type != "default",
        "use_sliding_window true (only full attention)": bool(config.get("use_sliding_window")) or bool(layer_types),
        "attention_bias true (only bias-free projections)": bool(config.get("attention_bias")),
        f"hidden_act {config.get('hidden_act')!r} (only 'silu')": config.get("hidden_act", "silu") != "silu",
    }
    for reason, is_refused in refused.items():
        if is_refused:
            raise ValueError(f"{directory / 'config.json'}: unsupported {reason}; use a checkpoint without it")


def _read_json(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: not readable as JSON ({error}); fetch the file again") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a JSON object, found {type(content).__name__}; fetch the file again")
    return content


def _required_int(config: dict[str, Any], key: str, directory: Path) -> int:
    value = config.get(key)
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{directory / 'config.json'}: {key} is {value!r}; it must be a positive integer")
    return value


def _optional(config: dict[str, Any], key: str, default: Any) -> Any:
    value = config.get(key)
    return default if value is None else value


def _rope_theta(config: dict[str, Any], directory: Path) -> float:
    theta = config.get("rope_theta") or (config.get("rope_parameters") or {}).get("rope_theta")
    if theta is None:
        raise ValueError(f"{directory / 'config.json'}: no rope_theta (nor rope_parameters.rope_theta); add it")
    return float(theta)


def _resolve_block_length(config: dict[str, Any], directory: Path, explicit: int | None) -> int:
    """Argument, then config, then the `-b16` suffix of the name, then the family's own default."""
    configured = _optional(config, "block_size", config.get("block_length"))
    is_sdar = config["model_type"].startswith("sdar")
    suffix = re.search(r"-b(8|16|32|64)(?!\d)", directory.resolve().name)
    if explicit is not None:
        found = explicit
    elif configured is not None:
        found = configured
    elif is_sdar:
        found = int(suffix.group(1)) if suffix else SDAR_BLOCK_LENGTH
    else:
        raise ValueError(
            f"{directory}: the block length of a {config['model_type']} checkpoint is unknown; "
            "pass block_length=… or set block_size in config.json"
        )
    if not isinstance(found, int) or found < 1:
        raise ValueError(f"{directory}: block length {found!r} is not a positive integer; pass block_length=…")
    return found


def _resolve_mask_id(config: dict[str, Any], directory: Path, explicit: int | None, vocab_size: int) -> int:
    """Argument, then config, then the tokenizer's mask token, then SDAR's own id."""
    found = explicit
    if found is None:
        found = config.get("mask_token_id")
    if found is None:
        found = _tokenizer_mask_id(directory)
    if found is None and config["model_type"].startswith("sdar"):
        found = SDAR_MASK_ID
    if found is None:
        raise ValueError(f"{directory}: the mask id is unknown; pass mask_id=… or set mask_token_id in config.json")
    if not isinstance(found, int) or not 0 <= found < vocab_size:
        raise ValueError(
            f"{directory}: mask id {found!r} is outside the vocabulary of {vocab_size}; "
            "pass mask_id=… or set mask_token_id in config.json"
        )
    return found


def _tokenizer_mask_id(directory: Path) -> int | None:
    settings = _read_json(directory / "tokenizer_config.json") or {}
    mask_token = settings.get("mask_token")
    if isinstance(mask_token, dict):
        mask_token = mask_token.get("content")
    if mask_token is None:
        return None
    for token_id, token in (settings.get("added_tokens_decoder") or {}).items():
        if token.get("content") == mask_token:
            return int(token_id)
    # transformers 5 keeps the added tokens in tokenizer.json only
    for token in (_read_json(directory / "tokenizer.json") or {}).get("added_tokens") or ():
        if token.get("content") == mask_token:
            return int(token["id"])
    return None


def _stop_ids(config: dict[str, Any], directory: Path) -> tuple[int, ...]:
    generation = _read_json(directory / "generation_config.json") or {}
    ids: dict[int, None] = {}
    for source in (generation, config):
        value = source.get("eos_token_id")
        ids.update(dict.fromkeys(value if isinstance(value, list) else [] if value is None else [value]))
    return tuple(ids)
