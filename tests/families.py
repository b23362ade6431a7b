"""Tiny random checkpoints of every family under its public names, and what their logits have to be."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

HIDDEN, LAYERS, VOCAB = 40, 2, 61
QWEN = {
    "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": 6, "num_key_value_heads": 2,
    "intermediate_size": 52, "vocab_size": VOCAB, "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
    "hidden_act": "silu", "eos_token_id": 3, "bos_token_id": 2, "tie_word_embeddings": False,
}  # fmt: skip
EXPERTS = {
    "moe_intermediate_size": 20, "num_experts": 6, "num_experts_per_tok": 3, "norm_topk_prob": True,
    "decoder_sparse_step": 1, "mlp_only_layers": [],
}  # fmt: skip
LLADA = {
    "d_model": HIDDEN, "n_layers": LAYERS, "n_heads": 4, "n_kv_heads": 4, "mlp_hidden_size": 52, "vocab_size": VOCAB,
    "max_sequence_length": 256, "rope_theta": 5e5, "rms_norm_eps": 1e-5, "weight_tying": False, "include_bias": False,
    "include_qkv_bias": False, "activation_type": "silu", "block_type": "llama", "layer_norm_type": "rms",
    "mask_token_id": 60, "eos_token_id": 3, "bos_token_id": 2, "architectures": ["LLaDAModelLM"],
    "model_type": "llada", "torch_dtype": "float32",
}  # fmt: skip
LLADA2 = {
    **QWEN, "model_type": "llada2_moe", "architectures": ["LLaDA2MoeModelLM"], "head_dim": 12, "num_experts": 8,
    "num_experts_per_tok": 3, "moe_intermediate_size": 20, "first_k_dense_replace": 1, "num_shared_experts": 1,
    "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5, "score_function": "sigmoid",
    "moe_router_enable_expert_bias": True, "norm_topk_prob": True, "use_qk_norm": True, "use_bias": False,
    "use_qkv_bias": False, "partial_rotary_factor": 0.5, "rope_theta": 6e5, "sliding_window": 4096,
    "use_sliding_window": False, "mask_token_id": 60, "torch_dtype": "float32", "block_length": 8,
}  # fmt: skip


def randomised(model: torch.nn.Module, seed: int) -> None:
    """Weights that make distributions neither flat nor certain; norms and biases that matter."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name:
            noise = 1 + 0.2 * noise
        elif "bias" in name:
            noise = 0.5 * noise
        elif parameter.dim() > 1:
            noise = noise * (0.6 if "embed" in name or "head" in name else 1.4 / parameter.shape[-1] ** 0.5)
        parameter.data.copy_(noise)


def saved(directory: Path, family: str, *, sharded: bool = False, seed: int = 0, **changes: Any) -> Path:
    """A checkpoint of a family that transformers can make: Qwen3, Qwen2 or Llama shape, with or without experts."""
    import transformers as hf

    shapes = {
        "sdar": (hf.Qwen3Config, hf.Qwen3ForCausalLM, {"head_dim": 12}),
        "qwen3": (hf.Qwen3Config, hf.Qwen3ForCausalLM, {"head_dim": 12}),
        "sdar_moe": (hf.Qwen3MoeConfig, hf.Qwen3MoeForCausalLM, {"head_dim": 12, **EXPERTS}),
        "qwen3_moe": (hf.Qwen3MoeConfig, hf.Qwen3MoeForCausalLM, {"head_dim": 12, **EXPERTS}),
        "Dream": (hf.Qwen2Config, hf.Qwen2ForCausalLM, {"hidden_size": 48}),
        "Fast_dLLM_Qwen": (hf.Qwen2Config, hf.Qwen2ForCausalLM, {"hidden_size": 48}),
        "qwen2": (hf.Qwen2Config, hf.Qwen2ForCausalLM, {"hidden_size": 48}),
        "llama": (hf.LlamaConfig, hf.LlamaForCausalLM, {"hidden_size": 48}),
    }
    make_config, make_model, own = shapes[family]
    model = make_model(make_config(**{**QWEN, **own, **changes}))
    randomised(model, seed)
    model.save_pretrained(directory, max_shard_size="20KB" if sharded else "1GB")
    config = json.loads((directory / "config.json").read_text())
    mask = {} if family in ("qwen3", "qwen3_moe", "qwen2", "llama") else {"mask_token_id": VOCAB - 1}
    config |= {"model_type": family, **mask}
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def oracle(directory: Path, ids: list[int], mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Logits `[len(ids), V]` of transformers' own model of that shape under an additive mask."""
    import transformers as hf

    config = json.loads((directory / "config.json").read_text())
    kinds = {"sdar": "qwen3", "sdar_moe": "qwen3_moe", "Dream": "qwen2", "Fast_dLLM_Qwen": "qwen2"}
    config["model_type"] = kinds.get(config["model_type"], config["model_type"])
    names = {"qwen3": "Qwen3", "qwen3_moe": "Qwen3Moe", "qwen2": "Qwen2", "llama": "Llama"}
    name = names[config["model_type"]]
    settings = getattr(hf, f"{name}Config").from_dict(config)
    settings._attn_implementation, settings._experts_implementation = "eager", "eager"
    model = getattr(hf, f"{name}ForCausalLM").from_pretrained(directory, config=settings, dtype=dtype).eval()
    additive = torch.zeros(mask.shape, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)
    with torch.inference_mode():
        return model(input_ids=torch.tensor([ids]), attention_mask=additive[None, None]).logits[0]


def as_llada(directory: Path, source: Path) -> Path:
    """A Llama checkpoint under LLaDA's names and config."""
    weights = load_file(source / "model.safetensors")
    names = {
        "model.embed_tokens.weight": "model.transformer.wte.weight",
        "model.norm.weight": "model.transformer.ln_f.weight",
        "lm_head.weight": "model.transformer.ff_out.weight",
    }
    parts = {
        "input_layernorm": "attn_norm", "post_attention_layernorm": "ff_norm", "self_attn.q_proj": "q_proj",
        "self_attn.k_proj": "k_proj", "self_attn.v_proj": "v_proj", "self_attn.o_proj": "attn_out",
        "mlp.gate_proj": "ff_proj", "mlp.up_proj": "up_proj", "mlp.down_proj": "ff_out",
    }  # fmt: skip
    for layer in range(LAYERS):
        for ours, theirs in parts.items():
            names[f"model.layers.{layer}.{ours}.weight"] = f"model.transformer.blocks.{layer}.{theirs}.weight"
    directory.mkdir()
    save_file({names[name]: tensor for name, tensor in weights.items()}, directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps(LLADA))
    return directory


def saved_llada2(directory: Path, seed: int = 0, **changes: Any) -> Path:
    """A LLaDA2 checkpoint under its public names."""
    config = {**LLADA2, **changes}
    heads, groups, dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    generator = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator) * 1.4 / columns**0.5

    def norm(size: int) -> Tensor:
        return 1 + 0.2 * torch.randn(size, generator=generator)

    def mlp(name: str, width: int) -> dict[str, Tensor]:
        return {
            f"{name}.gate_proj.weight": matrix(width, HIDDEN),
            f"{name}.up_proj.weight": matrix(width, HIDDEN),
            f"{name}.down_proj.weight": matrix(HIDDEN, width),
        }

    weights = {
        "model.word_embeddings.weight": 0.6 * torch.randn(VOCAB, HIDDEN, generator=generator),
        "model.norm.weight": norm(HIDDEN),
        "lm_head.weight": 0.6 * torch.randn(VOCAB, HIDDEN, generator=generator),
    }
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        weights |= {
            f"{name}.input_layernorm.weight": norm(HIDDEN),
            f"{name}.post_attention_layernorm.weight": norm(HIDDEN),
            f"{name}.attention.query_key_value.weight": matrix((heads + 2 * groups) * dim, HIDDEN),
            f"{name}.attention.dense.weight": matrix(HIDDEN, heads * dim),
            f"{name}.attention.query_layernorm.weight": norm(dim),
            f"{name}.attention.key_layernorm.weight": norm(dim),
        }
        if layer < config["first_k_dense_replace"]:
            weights |= mlp(f"{name}.mlp", config["intermediate_size"])
            continue
        experts = config["num_experts"]
        weights[f"{name}.mlp.gate.weight"] = matrix(experts, HIDDEN)
        weights[f"{name}.mlp.gate.expert_bias"] = 0.3 * torch.randn(experts, generator=generator)
        for expert in range(experts):
            weights |= mlp(f"{name}.mlp.experts.{expert}", config["moe_intermediate_size"])
        weights |= mlp(f"{name}.mlp.shared_experts", config["moe_intermediate_size"])
    directory.mkdir()
    save_file(weights, directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def plain_llada2(directory: Path, ids: list[int], mask: Tensor, dtype: torch.dtype,
                 rope: Callable[[int, int, float], tuple[Tensor, Tensor]]) -> Tensor:  # fmt: skip
    """LLaDA2's forward, token by token and expert by expert; `rope` makes the tables that are shared with the model."""
    config = json.loads((directory / "config.json").read_text())
    w = {name: tensor.to(dtype) for name, tensor in load_file(directory / "model.safetensors").items()}
    heads, groups, dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    turned = int(dim * config["partial_rotary_factor"])
    cos, sin = (table[: len(ids)].to(dtype) for table in rope(256, turned, config["rope_theta"]))

    def normed(x: Tensor, weight: Tensor) -> Tensor:
        return x * (x.pow(2).mean(-1, keepdim=True) + config["rms_norm_eps"]).rsqrt() * weight

    def rotate(x: Tensor) -> Tensor:  # [T, dim]
        head, tail = x[:, :turned], x[:, turned:]
        a, b = head[:, : turned // 2], head[:, turned // 2 :]
        return torch.cat((head * cos + torch.cat((-b, a), -1) * sin, tail), -1)

    def mlp(x: Tensor, name: str) -> Tensor:
        gate, up, down = (w[f"{name}.{part}_proj.weight"] for part in ("gate", "up", "down"))
        return (F.silu(x @ gate.T) * (x @ up.T)) @ down.T

    def experts(x: Tensor, name: str) -> Tensor:
        rows = []
        per_group = config["num_experts"] // config["n_group"]
        for row in x:
            scores = torch.sigmoid(w[f"{name}.gate.weight"] @ row)
            ranked = scores + w[f"{name}.gate.expert_bias"]
            pairs = [
                sum(sorted(ranked[g * per_group : (g + 1) * per_group].tolist())[-2:]) for g in range(config["n_group"])
            ]
            kept = sorted(range(config["n_group"]), key=lambda g: -pairs[g])[: config["topk_group"]]
            open_ = [e for e in range(config["num_experts"]) if e // per_group in kept]
            chosen = sorted(open_, key=lambda e: -ranked[e].item())[: config["num_experts_per_tok"]]
            total = sum(scores[e] for e in chosen) + 1e-20
            answer = sum(
                scores[e] / total * config["routed_scaling_factor"] * mlp(row, f"{name}.experts.{e}") for e in chosen
            )
            rows.append(answer + mlp(row, f"{name}.shared_experts"))
        return torch.stack(rows)

    x = w["model.word_embeddings.weight"][torch.tensor(ids)]
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        mixed = normed(x, w[f"{name}.input_layernorm.weight"]) @ w[f"{name}.attention.query_key_value.weight"].T
        parts = mixed.unflatten(-1, (-1, dim))
        out = []
        for head in range(heads):
            group = heads + head // (heads // groups)
            q = rotate(normed(parts[:, head], w[f"{name}.attention.query_layernorm.weight"]))
            k = rotate(normed(parts[:, group], w[f"{name}.attention.key_layernorm.weight"]))
            scores = (q @ k.T * dim**-0.5).masked_fill(~mask, -torch.inf)
            out.append(scores.softmax(-1) @ parts[:, group + groups])
        x = x + torch.cat(out, -1) @ w[f"{name}.attention.dense.weight"].T
        inner = normed(x, w[f"{name}.post_attention_layernorm.weight"])
        dense = layer < config["first_k_dense_replace"]
        x = x + (mlp(inner, f"{name}.mlp") if dense else experts(inner, f"{name}.mlp"))
    return normed(x, w["model.norm.weight"])
