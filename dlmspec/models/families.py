"""The families that can be decoded: by model type, what a checkpoint of it means beyond its numbers.

Facts per family with their sources: the authors' published configs and decoders (SDAR, LLaDA, LLaDA2.0, Dream,
Fast-dLLM v2). Recognition reads a config only; a family that would decode wrongly is refused with one line.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dlmspec.json_object import Settings
from dlmspec.models.spec import MoeSpec

# the config's own names of the standard settings
LLADA_SETTINGS = {
    "hidden_size": "d_model",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads",
    "intermediate_size": "mlp_hidden_size",
    "max_position_embeddings": "max_sequence_length",
    "tie_word_embeddings": "weight_tying",
    "attention_bias": "include_qkv_bias",
    "mlp_bias": "include_bias",
    "hidden_act": "activation_type",
}
# parts of Llama's tensor names, and what stands for them in the files
LLADA_TENSORS = (
    ("model.embed_tokens.", "model.transformer.wte."),
    ("model.norm.", "model.transformer.ln_f."),
    ("lm_head.", "model.transformer.ff_out."),
    ("model.layers.", "model.transformer.blocks."),
    (".input_layernorm.", ".attn_norm."),
    (".post_attention_layernorm.", ".ff_norm."),
    (".self_attn.o_proj.", ".attn_out."),
    (".self_attn.", "."),
    (".mlp.gate_proj.", ".ff_proj."),
    (".mlp.up_proj.", ".up_proj."),
    (".mlp.down_proj.", ".ff_out."),
)
LLADA2_TENSORS = (
    ("model.embed_tokens.", "model.word_embeddings."),
    (".self_attn.qkv_proj.", ".attention.query_key_value."),
    (".self_attn.o_proj.", ".attention.dense."),
    (".self_attn.q_norm.", ".attention.query_layernorm."),
    (".self_attn.k_norm.", ".attention.key_layernorm."),
)


@dataclass(frozen=True, slots=True)
class Family:
    """A family's facts. `block_keys` name the block length in its config, `block_length` and `mask_id` are its own
    where nothing else tells; a `plain` one is autoregressive unless a block length is given.

    `chat_end` is the token that ends a chat answer, where the tokenizer has it.
    """

    name: str
    qk_norm: bool = False
    qkv_bias: bool = False
    logit_shift: bool = False
    plain: bool = False
    attention: Literal["block_causal", "full"] = "block_causal"
    grid: Literal["text", "prompt"] = "text"
    block_keys: tuple[str, ...] = ("block_size", "block_length")
    block_length: int | None = None
    mask_id: int | None = None
    sub_block_length: int | None = None
    leads_with_first: bool = False
    starts_with_bos: bool = False
    moe: Literal["softmax", "grouped_sigmoid"] | None = None
    fused_qkv: bool = False
    chat_end: str = "<|im_end|>"
    rms_norm_eps: float | None = 1e-6  # where the config does not tell; None: it has to
    rotary_share: float | None = 1.0  # of a head; likewise
    settings: Mapping[str, str] = field(default_factory=dict)
    tensors: tuple[tuple[str, str], ...] = ()

    def tensor_name(self, name: str) -> str:
        """The name in this family's files of a tensor with Llama's name."""
        for ours, theirs in self.tensors:
            name = name.replace(ours, theirs)
        return name


_SDAR = {"qk_norm": True, "block_length": 4, "mask_id": 151669}
FAMILIES = {
    "sdar": Family("sdar", **_SDAR),
    "sdar_moe": Family("sdar_moe", moe="softmax", **_SDAR),
    "llada": Family(
        "llada",
        rms_norm_eps=None,
        attention="full",
        grid="prompt",
        block_length=32,
        starts_with_bos=True,
        chat_end="<|eot_id|>",
        settings=LLADA_SETTINGS,
        tensors=LLADA_TENSORS,
    ),
    "llada2_moe": Family(
        "llada2",
        rms_norm_eps=None,
        rotary_share=None,
        qk_norm=True,
        moe="grouped_sigmoid",
        fused_qkv=True,
        block_length=32,
        mask_id=156895,
        chat_end="<|role_end|>",
        tensors=LLADA2_TENSORS,
    ),
    "Dream": Family(
        "dream", qkv_bias=True, logit_shift=True, attention="full", grid="prompt", block_length=32, mask_id=151666
    ),
    "Fast_dLLM_Qwen": Family(
        "fast_dllm_v2",
        qkv_bias=True,
        logit_shift=True,
        block_keys=("bd_size", "block_size", "block_length"),
        block_length=32,
        mask_id=151665,
        sub_block_length=8,
        leads_with_first=True,
    ),
    "dlmspec_block_llama": Family("block_llama"),
    "qwen3": Family("qwen3", qk_norm=True, plain=True),
    "qwen3_moe": Family("qwen3_moe", qk_norm=True, plain=True, moe="softmax"),
    "qwen2": Family("qwen2", qkv_bias=True, plain=True),
    "llama": Family("llama", plain=True, chat_end="<|eot_id|>"),
}
BY_NAME = {family.name: family for family in FAMILIES.values()}


def checkpoint_name(directory: Path) -> str:
    """The directory's name; the repository's where it is a revision in the hub's cache."""
    place = directory.resolve()
    repository = place.parent.parent.name
    if place.parent.name == "snapshots" and repository.startswith("models--"):
        return repository.rsplit("--", 1)[1]
    return place.name


def recognise(config: Mapping[str, Any], directory: Path) -> Family:
    """The family of a checkpoint. Raises ValueError for one that is unknown, or known but decoded in another way."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise ValueError(f"{directory}: model_type {model_type!r} is not supported; supported: {', '.join(FAMILIES)}")
    architectures = config.get("architectures") or []
    refused = {
        "SDLM decodes by prefixes of a causal window": "SDLMQwen2ForCausalLM" in architectures,
        "LLaDA-MoE is another model under LLaDA's name": model_type == "llada" and "d_model" not in config,
        "LLaDA2.1 and 2.2 edit tokens that they have committed": model_type == "llada2_moe"
        and bool(re.search(r"llada2\.[12]", checkpoint_name(directory).lower()) or "editing_threshold" in config),
    }
    for reason, is_refused in refused.items():
        if is_refused:
            raise ValueError(f"{directory}: not supported: {reason}; use a checkpoint of another family")
    return FAMILIES[model_type]


def check_forward(settings: Settings, family: Family) -> None:
    """Raise ValueError for options whose forward pass is not the one implemented here."""
    scaling = {**settings.object("rope_scaling"), **settings.object("rope_parameters")}
    rope_type = scaling.get("rope_type", scaling.get("type", "default"))
    is_partial = any(kind != "full_attention" for kind in settings.array("layer_types"))
    activation = settings.content.get("hidden_act", "silu")
    refused = {
        f"rope type {rope_type!r} (only 'default')": rope_type != "default",
        "use_sliding_window true (only full attention)": settings.flag("use_sliding_window") or is_partial,
        "attention_bias true (only bias-free projections)": settings.flag("attention_bias") and not family.qkv_bias,
        "mlp_bias true (only bias-free projections)": settings.flag("mlp_bias"),
        "use_bias true (only bias-free projections)": settings.flag("use_bias"),
        "use_qkv_bias true (only bias-free projections)": settings.flag("use_qkv_bias"),
        f"hidden_act {activation!r} (only 'silu')": activation != "silu",
    }
    if family.name == "llada":
        content = settings.content
        refused |= {
            f"block_type {content.get('block_type')!r} (only 'llama')": content.get("block_type", "llama") != "llama",
            f"layer_norm_type {content.get('layer_norm_type')!r} (only 'rms')": content.get("layer_norm_type", "rms")
            != "rms",
            "attention_layer_norm true": settings.flag("attention_layer_norm"),
            "scale_logits true": settings.flag("scale_logits"),
            "input_emb_norm true": settings.flag("input_emb_norm"),
            "rope false or alibi true": not settings.flag("rope", True) or settings.flag("alibi"),
        }
    for reason, is_refused in refused.items():
        if is_refused:
            raise ValueError(f"{settings.path}: unsupported {reason}; use a checkpoint without it")


def moe_spec(settings: Settings, family: Family) -> MoeSpec | None:
    """The experts of a family that has some. Raises ValueError for values of a wrong kind or that do not fit."""
    if family.moe is None:
        return None
    moe = _softmax_experts(settings) if family.moe == "softmax" else _grouped_experts(settings)
    per_group, rest = divmod(moe.num_experts, moe.num_groups)
    if rest or moe.topk_group > moe.num_groups or moe.top_k > per_group * moe.topk_group:
        raise ValueError(
            f"{settings.path}: {moe.top_k} experts of {moe.num_experts} cannot be chosen from {moe.topk_group} of "
            f"{moe.num_groups} groups; fetch the file again"
        )
    return moe


def _softmax_experts(settings: Settings) -> MoeSpec:
    """Qwen3-MoE's."""
    sparse = settings.integer("decoder_sparse_step", 1)
    if sparse != 1 or settings.array("mlp_only_layers"):
        raise ValueError(
            f"{settings.path}: unsupported decoder_sparse_step {sparse} or mlp_only_layers; use a checkpoint "
            "with experts in every layer"
        )
    key = "num_experts" if settings.content.get("num_experts") is not None else "num_local_experts"
    return MoeSpec(
        num_experts=settings.integer(key),  # transformers 5 saves the second name
        top_k=settings.integer("num_experts_per_tok"),
        intermediate_size=settings.integer("moe_intermediate_size"),
        router="softmax",
        normalise=settings.flag("norm_topk_prob"),
    )


def _grouped_experts(settings: Settings) -> MoeSpec:
    """LLaDA2's. Its own code always has the bias and always normalises, unless one expert is chosen."""
    score_function = settings.content.get("score_function") or "sigmoid"
    if score_function != "sigmoid":
        raise ValueError(f"{settings.path}: unsupported score_function {score_function!r}; only 'sigmoid'")
    width, top_k = settings.integer("moe_intermediate_size"), settings.integer("num_experts_per_tok")
    return MoeSpec(
        num_experts=settings.integer("num_experts"),
        top_k=top_k,
        intermediate_size=width,
        router="grouped_sigmoid",
        normalise=settings.flag("norm_topk_prob", True) and top_k > 1,
        shared_intermediate_size=width * settings.integer("num_shared_experts", 0, least=0),
        num_groups=settings.integer("n_group"),
        topk_group=settings.integer("topk_group"),
        scaling=settings.positive("routed_scaling_factor"),
        expert_bias=settings.flag("moe_router_enable_expert_bias", True),
        first_layer=settings.integer("first_k_dense_replace", 0, least=0),
    )
