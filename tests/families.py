"""Tiny random checkpoints of every family under its public names, and what their final states have to be."""

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers as hf
from safetensors.torch import load_file, save_file
from torch import Tensor

from dlmspec.models.target import Target
from dlmspec.models.target_pass import BlockCopy

LAYERS, VOCAB, THETA = 2, 61, 7e3
IDS = tuple((7 * i * i + 3 * i + 4) % (VOCAB - 1) for i in range(40))
DIMENSIONS = {
    "num_hidden_layers": LAYERS, "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 53,
    "vocab_size": VOCAB, "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "hidden_act": "silu",
    "eos_token_id": 3, "bos_token_id": 2, "tie_word_embeddings": False,
}  # fmt: skip
EXPERTS = {
    "moe_intermediate_size": 21, "num_experts": 7, "num_experts_per_tok": 3, "norm_topk_prob": True,
    "decoder_sparse_step": 1, "mlp_only_layers": [],
}  # fmt: skip
_QWEN3 = (hf.Qwen3Config, hf.Qwen3ForCausalLM, {"hidden_size": 41, "head_dim": 12})
_QWEN3_MOE = (hf.Qwen3MoeConfig, hf.Qwen3MoeForCausalLM, {"hidden_size": 41, "head_dim": 12, **EXPERTS})
_QWEN2 = (hf.Qwen2Config, hf.Qwen2ForCausalLM, {"hidden_size": 48})
_LLAMA = (hf.LlamaConfig, hf.LlamaForCausalLM, {"hidden_size": 42, "head_dim": 10})
# by model type: transformers' model of that shape
SHAPES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "sdar": _QWEN3, "qwen3": _QWEN3, "sdar_moe": _QWEN3_MOE, "qwen3_moe": _QWEN3_MOE, "Dream": _QWEN2,
    "Fast_dLLM_Qwen": _QWEN2, "qwen2": _QWEN2, "llama": _LLAMA, "dlmspec_block_llama": _LLAMA,
    "llada": (hf.LlamaConfig, hf.LlamaForCausalLM, {"hidden_size": 60}),
}  # fmt: skip
PLAIN = ("qwen3", "qwen3_moe", "qwen2", "llama")
LLADA_CONFIG = {
    "model_type": "llada", "architectures": ["LLaDAModelLM"], "d_model": 60, "n_layers": LAYERS, "n_heads": 6,
    "n_kv_heads": 6, "mlp_hidden_size": 53, "vocab_size": VOCAB, "max_sequence_length": 256, "rope": True,
    "rope_theta": THETA, "rms_norm_eps": 1e-5, "weight_tying": False, "include_bias": False, "include_qkv_bias": False,
    "activation_type": "silu", "block_type": "llama", "layer_norm_type": "rms", "attention_layer_norm": False,
    "scale_logits": False, "input_emb_norm": False, "mask_token_id": VOCAB - 1, "eos_token_id": 3, "bos_token_id": 2,
    "torch_dtype": "float32",
}  # fmt: skip
LLADA_NAMES = {
    "model.embed_tokens": "wte", "model.norm": "ln_f", "lm_head": "ff_out", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ff_norm", "self_attn.q_proj": "q_proj", "self_attn.k_proj": "k_proj",
    "self_attn.v_proj": "v_proj", "self_attn.o_proj": "attn_out", "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj", "mlp.down_proj": "ff_out",
}  # fmt: skip
LLADA2_CONFIG = {
    **DIMENSIONS, "model_type": "llada2_moe", "architectures": ["LLaDA2MoeModelLM"], "hidden_size": 41, "head_dim": 12,
    "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 21, "first_k_dense_replace": 1,
    "num_shared_experts": 1, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5, "score_function": "sigmoid",
    "moe_router_enable_expert_bias": True, "norm_topk_prob": True, "use_qk_norm": True, "use_bias": False,
    "use_qkv_bias": False, "partial_rotary_factor": 0.5, "rope_theta": 6e5, "sliding_window": 4096,
    "use_sliding_window": False, "mask_token_id": VOCAB - 1, "torch_dtype": "float32", "block_length": 8,
}  # fmt: skip


def randomised(model: torch.nn.Module) -> None:
    """Weights that make distributions neither flat nor certain; norms and biases that matter."""
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name:
            noise = 1 + 0.2 * noise
        elif "bias" in name:
            noise = 0.5 * noise
        else:
            noise = noise * (0.4 if "embed" in name or "head" in name else 1.4 / parameter.shape[-1] ** 0.5)
        parameter.data.copy_(noise)


def saved(directory: Path, family: str, *, sharded: bool = False, **changes: Any) -> torch.nn.Module:
    """Write a checkpoint of a family that transformers has the shape of; its model, for an oracle.

    A sharded one has the config of transformers 5, a single file the one that the families' authors publish.
    """
    make_config, make_model, own = SHAPES[family]
    settings = make_config(**{**DIMENSIONS, **own, "rope_parameters": {"rope_theta": THETA}, **changes})
    settings._attn_implementation, settings._experts_implementation = "eager", "eager"
    model = make_model(settings).eval()
    randomised(model)
    model.save_pretrained(directory, max_shard_size="20KB" if sharded else "1GB")
    assert (directory / "model.safetensors.index.json").is_file() == sharded
    file = directory / "config.json"
    config = json.loads(file.read_text())
    if not sharded:
        config["rope_theta"], config["torch_dtype"] = config.pop("rope_parameters")["rope_theta"], config.pop("dtype")
        if "num_local_experts" in config:
            config["num_experts"] = config.pop("num_local_experts")
    mask = {} if family in PLAIN else {"mask_token_id": VOCAB - 1}
    file.write_text(json.dumps(config | {"model_type": family} | mask))
    return model


def saved_llada(directory: Path, *, tied: bool = False, kv_heads: int = 6) -> torch.nn.Module:
    """Write a checkpoint under LLaDA's names; a Llama of the same weights."""
    model = saved(directory, "llada", num_key_value_heads=kv_heads, rms_norm_eps=1e-5, tie_word_embeddings=tied)
    renamed = {}
    for name, tensor in load_file(directory / "model.safetensors").items():
        layer = name.split(".")[2] if name.startswith("model.layers.") else None
        part = name.removeprefix(f"model.layers.{layer}.").removesuffix(".weight")
        place = "" if layer is None else f"blocks.{layer}."
        renamed[f"model.transformer.{place}{LLADA_NAMES[part]}.weight"] = tensor
    save_file(renamed, directory / "model.safetensors")
    config = LLADA_CONFIG | {"weight_tying": tied, "n_kv_heads": kv_heads}
    (directory / "config.json").write_text(json.dumps(config))
    return model


def run(target: Target) -> tuple[Tensor, Tensor]:
    """Final states and logits of all positions, block after block over a cache, or of one whole canvas."""
    length, cache, states, logits = target.spec.block_length, target.new_cache(len(IDS)), [], []
    for start in range(0, len(IDS), length):
        output = target.forward(cache, [BlockCopy(IDS[start : start + length], 0, ())])
        states.append(output.hidden[0])
        logits.append(output.logits(0, range(length)))
        output.store(cache, 0)
    return torch.cat(states), torch.cat(logits)


@torch.inference_mode()
def oracle(model: Any, visible: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The same of transformers' own model, a row seeing `visible [n, n]`."""
    additive = torch.zeros(visible.shape, dtype=dtype).masked_fill_(~visible, torch.finfo(dtype).min)
    model = copy.deepcopy(model).to(dtype)
    states = model.model(input_ids=torch.tensor([IDS]), attention_mask=additive[None, None]).last_hidden_state[0]
    return states, model.lm_head(states)


def saved_llada2(directory: Path, **changes: Any) -> Path:
    """Write a checkpoint under LLaDA2's names, every matrix and norm random."""
    config: dict[str, Any] = {**LLADA2_CONFIG, **changes}
    heads, dim, hidden = config["num_attention_heads"], config["head_dim"], config["hidden_size"]
    groups, width = config["num_key_value_heads"], config["moe_intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {"model.word_embeddings": (VOCAB, hidden), "model.norm": (hidden,)}
    if not config["tie_word_embeddings"]:
        shapes["lm_head"] = (VOCAB, hidden)

    def mlp(name: str, inner: int) -> dict[str, tuple[int, ...]]:
        parts = {"gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner)}
        return {f"{name}.{part}": shape for part, shape in parts.items()}

    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        for norm, size in (("input_layernorm", hidden), ("post_attention_layernorm", hidden),
                           ("attention.query_layernorm", dim), ("attention.key_layernorm", dim)):  # fmt: skip
            shapes[f"{name}.{norm}"] = (size,)
        shapes[f"{name}.attention.query_key_value"] = ((heads + 2 * groups) * dim, hidden)
        shapes[f"{name}.attention.dense"] = (hidden, heads * dim)
        if layer < config["first_k_dense_replace"]:
            shapes |= mlp(f"{name}.mlp", config["intermediate_size"])
            continue
        shapes[f"{name}.mlp.gate"] = (config["num_experts"], hidden)
        for expert in range(config["num_experts"]):
            shapes |= mlp(f"{name}.mlp.experts.{expert}", width)
        if config["num_shared_experts"]:
            shapes |= mlp(f"{name}.mlp.shared_experts", width * config["num_shared_experts"])
    generator = torch.Generator().manual_seed(0)
    weights = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator)
        scale = 0.4 if name in ("model.word_embeddings", "lm_head") else 1.4 / shape[-1] ** 0.5
        weights[f"{name}.weight"] = 1 + 0.2 * noise if len(shape) == 1 else noise * scale
        if name.endswith("mlp.gate"):
            weights[f"{name}.expert_bias"] = 0.3 * torch.randn(shape[0], generator=generator)
    directory.mkdir()
    save_file(weights, directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def plain_route(scores: Sequence[float], bias: Sequence[float], config: dict[str, Any]) -> dict[int, float]:
    """LLaDA2's router for one row: the weights of the chosen experts, the best first."""
    ranked = [score + more for score, more in zip(scores, bias, strict=True)]
    size = len(ranked) // config["n_group"]
    strength = [sum(sorted(ranked[start : start + size])[-2:]) for start in range(0, len(ranked), size)]
    kept = sorted(range(len(strength)), key=lambda group: (-strength[group], group))[: config["topk_group"]]
    allowed = [expert for expert in range(len(ranked)) if expert // size in kept]
    chosen = sorted(allowed, key=lambda expert: (-ranked[expert], expert))[: config["num_experts_per_tok"]]
    total = 1.0
    if config["norm_topk_prob"] and len(chosen) > 1:
        total = sum(scores[expert] for expert in chosen) + 1e-20
    return {expert: scores[expert] / total * config["routed_scaling_factor"] for expert in chosen}


def plain_llada2(directory: Path, visible: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The same of LLaDA2 in `dtype`, head by head, and token by token through the experts.

    The rotation's angles are fp32 in every dtype, as in the authors' code.
    """
    config = json.loads((directory / "config.json").read_text())
    w = {name: tensor.to(dtype) for name, tensor in load_file(directory / "model.safetensors").items()}
    heads, groups, dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    turned = int(dim * config["partial_rotary_factor"])
    inverse = 1.0 / config["rope_theta"] ** (torch.arange(0, turned, 2).float() / turned)
    angles = torch.arange(len(IDS)).float()[:, None] * inverse
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)

    def normed(x: Tensor, name: str) -> Tensor:
        return x * (x.pow(2).mean(-1, keepdim=True) + config["rms_norm_eps"]).rsqrt() * w[f"{name}.weight"]

    def rotate(x: Tensor) -> Tensor:
        a, b, rest = x.split([turned // 2, turned // 2, dim - turned], -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), -1)

    def mlp(x: Tensor, name: str) -> Tensor:
        gate, up, down = (w[f"{name}.{part}_proj.weight"] for part in ("gate", "up", "down"))
        return (F.silu(x @ gate.T) * (x @ up.T)) @ down.T

    def experts(row: Tensor, name: str) -> Tensor:
        scores = torch.sigmoid(w[f"{name}.gate.weight"] @ row).tolist()
        weights = plain_route(scores, w[f"{name}.gate.expert_bias"].tolist(), config)
        answer = sum((weight * mlp(row, f"{name}.experts.{e}") for e, weight in weights.items()), torch.zeros_like(row))
        return answer + mlp(row, f"{name}.shared_experts") if config["num_shared_experts"] else answer

    x = w["model.word_embeddings.weight"][torch.tensor(IDS)]
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        qkv = normed(x, f"{name}.input_layernorm") @ w[f"{name}.attention.query_key_value.weight"].T
        parts = qkv.unflatten(-1, (-1, dim)).unbind(1)
        mixed = []
        for head in range(heads):
            group = heads + head // (heads // groups)
            q = rotate(normed(parts[head], f"{name}.attention.query_layernorm"))
            k = rotate(normed(parts[group], f"{name}.attention.key_layernorm"))
            mixed.append((q @ k.T * dim**-0.5).masked_fill(~visible, -torch.inf).softmax(-1) @ parts[group + groups])
        x = x + torch.cat(mixed, -1) @ w[f"{name}.attention.dense.weight"].T
        inner = normed(x, f"{name}.post_attention_layernorm")
        if layer < config["first_k_dense_replace"]:
            x = x + mlp(inner, f"{name}.mlp")
        else:
            x = x + torch.stack([experts(row, f"{name}.mlp") for row in inner])
    states = normed(x, "model.norm")
    head = "model.word_embeddings.weight" if config["tie_word_embeddings"] else "lm_head.weight"
    return states, states @ w[head].T
