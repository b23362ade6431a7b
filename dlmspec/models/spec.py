"""What a checkpoint directory says about its model: shapes, block length, mask id, stop ids.

Reads JSON only; knows nothing of weights, devices or tokenizers.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlmspec.json_object import Settings, is_integer, read_json_object

NO_MASK = -1  # the mask id of an autoregressive model, which has none


@dataclass(frozen=True, slots=True)
class Family:
    """What a model type says beyond its numbers. An autoregressive one decodes blocks of one token, shifted."""

    name: str
    qk_norm: bool
    autoregressive: bool = False


FAMILIES = {
    "sdar": Family("sdar", qk_norm=True),
    "qwen3": Family("sdar", qk_norm=True),
    "dlmspec_block_llama": Family("block_llama", qk_norm=False),
    "llama": Family("llama", qk_norm=False, autoregressive=True),
}
SDAR_BLOCK_LENGTH = 4  # releases without a suffix; their configs carry no block_size
SDAR_MASK_ID = 151669


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Shapes and ids of one target. `stop_ids` is the union of generation_config's and config's end ids.

    `logit_shift`: position i reads the logits of row i−1, a block's first position those of the row before it.
    """

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
    qk_norm: bool = True
    logit_shift: bool = False

    @property
    def is_autoregressive(self) -> bool:
        """A block is one token, predicted by the one before it: no mask is ever run."""
        return self.block_length == 1 and self.logit_shift


def spec_from_directory(path: str | Path, *, block_length: int | None = None, mask_id: int | None = None) -> ModelSpec:
    """Read `config.json`, and `generation_config.json` and `tokenizer_config.json` where present.

    Raises ValueError if it is no model directory, of an unsupported type or kind, if a value is of the wrong kind,
    or if the block length or the mask id cannot be resolved.
    """
    directory = Path(path)
    config = read_config(directory)
    check_supported(config, directory)
    family = FAMILIES[config["model_type"]]
    settings = Settings(directory / "config.json", config)
    hidden, heads = settings.integer("hidden_size"), settings.integer("num_attention_heads")
    vocab = settings.integer("vocab_size")
    spec = ModelSpec(
        family=family.name,
        hidden_size=hidden,
        num_layers=settings.integer("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=settings.integer("num_key_value_heads", heads),
        head_dim=settings.integer("head_dim", hidden // heads),
        intermediate_size=settings.integer("intermediate_size"),
        vocab_size=vocab,
        rms_norm_eps=settings.positive("rms_norm_eps", 1e-6),
        rope_theta=_rope_theta(settings),
        max_position_embeddings=settings.integer("max_position_embeddings"),
        tie_word_embeddings=settings.flag("tie_word_embeddings"),
        block_length=_resolve_block_length(config, directory, block_length),
        mask_id=_resolve_mask_id(config, directory, mask_id, vocab),
        stop_ids=_stop_ids(config, directory),
        name=directory.resolve().name,
        qk_norm=family.qk_norm,
        logit_shift=family.autoregressive or settings.flag("logit_shift"),
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
    if not (directory / "config.json").is_file():
        raise ValueError(f"{directory}: not a model directory, it has no config.json")
    return read_json_object(directory / "config.json")


def check_supported(config: dict[str, Any], directory: Path) -> None:
    """Raise ValueError for model types and options whose forward pass is not the one implemented here."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise ValueError(f"{directory}: model_type {model_type!r} is not supported; supported: {', '.join(FAMILIES)}")
    settings = Settings(directory / "config.json", config)
    scaling = {**settings.object("rope_scaling"), **settings.object("rope_parameters")}
    rope_type = scaling.get("rope_type", scaling.get("type", "default"))
    is_partial = any(kind != "full_attention" for kind in settings.array("layer_types"))
    refused = {
        f"rope type {rope_type!r} (only 'default')": rope_type != "default",
        "use_sliding_window true (only full attention)": settings.flag("use_sliding_window") or is_partial,
        "attention_bias true (only bias-free projections)": settings.flag("attention_bias"),
        "mlp_bias true (only bias-free projections)": settings.flag("mlp_bias"),
        f"hidden_act {config.get('hidden_act')!r} (only 'silu')": config.get("hidden_act", "silu") != "silu",
    }
    for reason, is_refused in refused.items():
        if is_refused:
            raise ValueError(f"{settings.path}: unsupported {reason}; use a checkpoint without it")


def _read_optional(path: Path) -> Settings:
    """A file that a checkpoint may lack: then it says nothing."""
    return Settings(path, read_json_object(path) if path.is_file() else {})


def _rope_theta(settings: Settings) -> float:
    nested = Settings(settings.path, settings.object("rope_parameters"))
    source = nested if settings.content.get("rope_theta") is None else settings
    if source.content.get("rope_theta") is None:
        raise ValueError(f"{settings.path}: no rope_theta (nor rope_parameters.rope_theta); add it")
    return source.positive("rope_theta")


def _resolve_block_length(config: dict[str, Any], directory: Path, explicit: int | None) -> int:
    """Argument, then config, then the `-b16` suffix of the name, then the family's own default.

    An autoregressive model has blocks of one token, whatever its config says.
    """
    if FAMILIES[config["model_type"]].autoregressive:
        if explicit not in (None, 1):
            raise ValueError(
                f"{directory}: a {config['model_type']} checkpoint is autoregressive, its block length is 1, "
                f"not {explicit}; leave block_length out"
            )
        return 1
    configured = config.get("block_length") if config.get("block_size") is None else config["block_size"]
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
    if not is_integer(found) or found < 1:
        raise ValueError(f"{directory}: block length {found!r} is not a positive integer; pass block_length=…")
    return found


def _resolve_mask_id(config: dict[str, Any], directory: Path, explicit: int | None, vocab_size: int) -> int:
    """Argument, then config, then the tokenizer's mask token, then SDAR's own id; none if autoregressive."""
    if FAMILIES[config["model_type"]].autoregressive:
        return NO_MASK
    found = explicit
    if found is None:
        found = config.get("mask_token_id")
    if found is None:
        found = _tokenizer_mask_id(directory)
    if found is None and config["model_type"].startswith("sdar"):
        found = SDAR_MASK_ID
    if found is None:
        raise ValueError(f"{directory}: the mask id is unknown; pass mask_id=… or set mask_token_id in config.json")
    if not is_integer(found) or not 0 <= found < vocab_size:
        raise ValueError(
            f"{directory}: mask id {found!r} is outside the vocabulary of {vocab_size}; "
            "pass mask_id=… or set mask_token_id in config.json"
        )
    return found


def _tokenizer_mask_id(directory: Path) -> int | None:
    settings = _read_optional(directory / "tokenizer_config.json")
    mask_token = settings.content.get("mask_token")
    if isinstance(mask_token, dict):
        mask_token = mask_token.get("content")
    if mask_token is None:
        return None
    for token_id, token in settings.object("added_tokens_decoder").items():
        if isinstance(token, dict) and token.get("content") == mask_token:
            return _token_id(settings.path, token_id)
    # transformers 5 keeps the added tokens in tokenizer.json only
    vocabulary = _read_optional(directory / "tokenizer.json")
    for token in vocabulary.array("added_tokens"):
        if isinstance(token, dict) and token.get("content") == mask_token:
            return _token_id(vocabulary.path, token.get("id"))
    return None


def _token_id(path: Path, value: Any) -> int:
    """Added tokens' ids are numbers in one file and text in the other."""
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: the mask token's id is {value!r}; it must be an integer") from error


def _stop_ids(config: dict[str, Any], directory: Path) -> tuple[int, ...]:
    generation = _read_optional(directory / "generation_config.json")
    ids: dict[int, None] = {}
    for source in (generation, Settings(directory / "config.json", config)):
        value = source.content.get("eos_token_id")
        listed = value if isinstance(value, list) else [] if value is None else [value]
        if not all(is_integer(token) and token >= 0 for token in listed):
            raise source.refusal("eos_token_id", value, "a token id or a list of them")
        ids.update(dict.fromkeys(listed))
    return tuple(ids)
