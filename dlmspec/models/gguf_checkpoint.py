"""Reads a Llama-shaped GGUF file: weights in fp32 under their Hugging Face names, config, tokenizer, chat template.

Dequantisation is the `gguf` package's; what is here are names, the order of rotary rows, and the pre-tokenizer.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

INSTALL_HINT = "pip install gguf"
_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL = 3  # gguf's token type of special tokens


@dataclass(frozen=True, slots=True)
class GgufCheckpoint:
    """What the file holds: fp32 `weights`, a Hugging Face `config`, the tokenizer and its chat template."""

    weights: dict[str, Tensor]
    config: dict[str, Any]
    tokenizer: Tokenizer
    chat_template: str | None


def read_gguf(path: Path) -> GgufCheckpoint:
    """Read a Llama-shaped GGUF file with a byte-level BPE of SmolLM's kind.

    Raises ValueError if the `gguf` package is missing, or the file is damaged or of another architecture.
    """
    try:
        from gguf import GGUFReader
        from gguf.quants import dequantize
    except ImportError as error:
        raise ValueError(f"{path}: the gguf package is missing; install it with: {INSTALL_HINT}") from error
    try:
        reader = GGUFReader(path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise ValueError(f"{path}: cannot be read as GGUF ({error}); install its package again") from error
    found = fields.get("general.architecture"), fields.get("tokenizer.ggml.pre")
    if found != ("llama", "smollm"):
        raise ValueError(f"{path}: architecture and tokenizer {found}; only ('llama', 'smollm') can be read")
    config = _config(fields)
    weights = {}
    for tensor in reader.tensors:
        name = _public_name(tensor.name, path)
        values = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
        weights[name] = values if heads is None else halves_of_rotation(values, config[heads])
    config["tie_word_embeddings"] = "lm_head.weight" not in weights
    return GgufCheckpoint(weights, config, _tokenizer(fields), fields.get("tokenizer.chat_template"))


def halves_of_rotation(weight: Tensor, num_heads: int) -> Tensor:
    """Rows of a query or key projection: GGUF keeps rotated pairs side by side, here they lie in two halves."""
    return weight.unflatten(0, (num_heads, -1, 2)).transpose(1, 2).flatten(0, 2).contiguous()


def _public_name(name: str, path: Path) -> str:
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if layer and layer[2] in _LAYER_NAMES:
        return f"model.layers.{layer[1]}.{_LAYER_NAMES[layer[2]]}.weight"
    if name not in _NAMES:
        raise ValueError(f"{path}: the tensor {name} belongs to no Llama-shaped model; only those can be read")
    return _NAMES[name]


def _config(fields: Mapping[str, Any]) -> dict[str, Any]:
    heads, hidden = fields["llama.attention.head_count"], fields["llama.embedding_length"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "attention_bias": False,
        "hidden_size": hidden,
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": hidden // heads,
        "max_position_embeddings": fields["llama.context_length"],
        "rms_norm_eps": round(float(fields["llama.attention.layer_norm_rms_epsilon"]), 9),
        "rope_theta": float(fields["llama.rope.freq_base"]),
        "vocab_size": fields["llama.vocab_size"],
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
    }


def _tokenizer(fields: Mapping[str, Any]) -> Tokenizer:
    """Byte-level BPE over single digits and GPT-2's words; control tokens are found in the text as they stand."""
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = zip(tokens, fields["tokenizer.ggml.token_type"], strict=True)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token, kind in kinds if kind == _CONTROL])
    return tokenizer
