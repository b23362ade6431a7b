"""What a checkpoint directory says about its model: shapes, block length, mask id, stop ids.

Reads JSON only; knows nothing of weights, devices or tokenizers.
"""

import re
from pathlib import Path
from typing import Any

from dlmspec.json_object import Settings, is_integer, read_json_object
from dlmspec.models.families import Family, check_forward, checkpoint_name, moe_spec, recognise
from dlmspec.models.spec import NO_MASK, ModelSpec


def spec_from_directory(path: str | Path, *, block_length: int | None = None, mask_id: int | None = None) -> ModelSpec:
    """Read `config.json`, and `generation_config.json` and `tokenizer_config.json` where present.

    Raises ValueError if it is no model directory, of an unsupported type or kind, if a value is of the wrong kind,
    or if the block length or the mask id cannot be resolved.
    """
    directory = Path(path)
    config = read_config(directory)
    family = recognise(config, directory)
    settings = Settings(directory / "config.json", standard(config, family))
    check_forward(settings, family)
    hidden, heads = settings.integer("hidden_size"), settings.integer("num_attention_heads")
    vocab, head_dim = settings.integer("vocab_size"), settings.integer("head_dim", hidden // heads)
    block = _resolve_block_length(config, family, directory, block_length)
    is_autoregressive = family.plain and block == 1
    spec = ModelSpec(
        family=family.name,
        hidden_size=hidden,
        num_layers=settings.integer("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=settings.integer("num_key_value_heads", heads),
        head_dim=head_dim,
        intermediate_size=settings.integer("intermediate_size"),
        vocab_size=vocab,
        rms_norm_eps=settings.positive("rms_norm_eps", family.rms_norm_eps),
        rope_theta=_rope_theta(settings),
        max_position_embeddings=settings.integer("max_position_embeddings"),
        tie_word_embeddings=settings.flag("tie_word_embeddings"),
        block_length=block,
        mask_id=NO_MASK if is_autoregressive else _resolve_mask_id(config, family, directory, mask_id, vocab),
        stop_ids=_stop_ids(config, family, directory),
        name=checkpoint_name(directory),
        qk_norm=family.qk_norm and settings.flag("use_qk_norm", True),
        logit_shift=is_autoregressive or family.logit_shift or settings.flag("logit_shift"),
        qkv_bias=family.qkv_bias,
        rotary_dim=_rotary_dim(settings, head_dim, family.rotary_share),
        moe=moe_spec(settings, family),
        attention=family.attention,
        grid=family.grid,
        sub_block_length=family.sub_block_length,
        leads_with_first=family.leads_with_first,
        bos_id=settings.integer("bos_token_id", least=0) if _needs_bos(settings, family) else None,
    )
    if spec.num_heads % spec.num_kv_heads or (spec.rotary_dim or spec.head_dim) % 2:
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


def standard(config: dict[str, Any], family: Family) -> dict[str, Any]:
    """A config with the standard names beside the family's own."""
    return {**config, **{ours: config[theirs] for ours, theirs in family.settings.items() if theirs in config}}


def _read_optional(path: Path) -> Settings:
    """A file that a checkpoint may lack: then it says nothing."""
    return Settings(path, read_json_object(path) if path.is_file() else {})


def _rope_theta(settings: Settings) -> float:
    nested = Settings(settings.path, settings.object("rope_parameters"))
    source = nested if settings.content.get("rope_theta") is None else settings
    if source.content.get("rope_theta") is None:
        raise ValueError(f"{settings.path}: no rope_theta (nor rope_parameters.rope_theta); add it")
    return source.positive("rope_theta")


def _rotary_dim(settings: Settings, head_dim: int, default: float | None) -> int | None:
    """How much of a head is rotated, if not all of it."""
    nested = Settings(settings.path, settings.object("rope_parameters"))
    source = nested if settings.content.get("partial_rotary_factor") is None else settings
    share = source.positive("partial_rotary_factor", default)
    if share > 1:
        raise settings.refusal("partial_rotary_factor", share, "a number of at most 1")
    return None if share == 1 else int(head_dim * share)


def _needs_bos(settings: Settings, family: Family) -> bool:
    return family.starts_with_bos and settings.content.get("bos_token_id") is not None


def _resolve_block_length(config: dict[str, Any], family: Family, directory: Path, explicit: int | None) -> int:
    """Argument, then config, then the `-b16` suffix of SDAR's names, then the family's own default.

    A plain decoder that nothing gives a block length to is autoregressive: blocks of one token.
    """
    configured = next((config[key] for key in family.block_keys if config.get(key) is not None), None)
    suffix = re.search(r"-b(8|16|32|64)(?!\d)", checkpoint_name(directory)) if family.name.startswith("sdar") else None
    found: Any = explicit
    if found is None:
        found = configured
    if found is None:
        found = int(suffix.group(1)) if suffix else family.block_length
    if found is None and family.plain and config.get("mask_token_id") is None:
        found = 1
    if found is None:
        raise ValueError(
            f"{directory}: the block length of a {config['model_type']} checkpoint is unknown, and it has a mask; "
            "pass block_length=… or set block_size in config.json"
        )
    if not is_integer(found) or found < 1:
        raise ValueError(f"{directory}: block length {found!r} is not a positive integer; pass block_length=…")
    return found


def _resolve_mask_id(config: dict[str, Any], family: Family, directory: Path, explicit: int | None,
                     vocab_size: int) -> int:  # fmt: skip
    """Argument, then config, then the tokenizer's mask token, then the family's own id."""
    found = explicit
    if found is None:
        found = config.get("mask_token_id")
    if found is None:
        found = _tokenizer_mask_id(directory)
    if found is None:
        found = family.mask_id
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
    return None if mask_token is None else _added_token_id(directory, mask_token)


def _added_token_id(directory: Path, text: str) -> int | None:
    """The id of an added token by its exact text; None if the tokenizer's files name none."""
    settings = _read_optional(directory / "tokenizer_config.json")
    for token_id, token in settings.object("added_tokens_decoder").items():
        if isinstance(token, dict) and token.get("content") == text:
            return _token_id(settings.path, text, token_id)
    # transformers 5 keeps the added tokens in tokenizer.json only
    vocabulary = _read_optional(directory / "tokenizer.json")
    for token in vocabulary.array("added_tokens"):
        if isinstance(token, dict) and token.get("content") == text:
            return _token_id(vocabulary.path, text, token.get("id"))
    return None


def _token_id(path: Path, text: str, value: Any) -> int:
    """Added tokens' ids are numbers in one file and text in the other."""
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: the id of token {text!r} is {value!r}; it must be an integer") from error


def _stop_ids(config: dict[str, Any], family: Family, directory: Path) -> tuple[int, ...]:
    """The end ids of generation config and config, and the token that ends a chat answer."""
    generation = _read_optional(directory / "generation_config.json")
    ids: dict[int, None] = {}
    for source in (generation, Settings(directory / "config.json", config)):
        value = source.content.get("eos_token_id")
        listed = value if isinstance(value, list) else [] if value is None else [value]
        if not all(is_integer(token) and token >= 0 for token in listed):
            raise source.refusal("eos_token_id", value, "a token id or a list of them")
        ids.update(dict.fromkeys(listed))
    chat_end = _added_token_id(directory, family.chat_end)
    return tuple(ids) if chat_end is None else tuple(dict.fromkeys((*ids, chat_end)))
