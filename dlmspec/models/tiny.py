"""Random tiny models of every family's shape: what decoding can be checked on without a checkpoint."""

from dataclasses import replace
from pathlib import Path

import torch

from dlmspec.models.loader import EMBEDDING_NAME, HEAD_NAME, expected_shapes
from dlmspec.models.spec import NO_MASK, ModelSpec, MoeSpec
from dlmspec.models.target import Target
from dlmspec.models.transformer import BlockDiffusionTransformer

MASK_ID, STOP_ID, VOCAB = 0, 1, 29
_BASE = ModelSpec(
    name="tiny",
    family="sdar",
    hidden_size=16,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=4,
    intermediate_size=24,
    vocab_size=VOCAB,
    rms_norm_eps=1e-6,
    rope_theta=10_000.0,
    max_position_embeddings=96,
    tie_word_embeddings=True,
    block_length=4,
    mask_id=MASK_ID,
    stop_ids=(STOP_ID,),
)
_EXPERTS = MoeSpec(num_experts=5, top_k=2, intermediate_size=12, router="softmax")
_GROUPED = MoeSpec(
    num_experts=6,
    top_k=2,
    intermediate_size=12,
    router="grouped_sigmoid",
    shared_intermediate_size=12,
    num_groups=3,
    topk_group=2,
    scaling=2.5,
    expert_bias=True,
    first_layer=1,
)
TINY_SPECS = {
    "sdar": _BASE,
    "sdar_moe": replace(_BASE, family="sdar_moe", moe=_EXPERTS),
    "llada2": replace(_BASE, family="llada2", moe=_GROUPED, rotary_dim=2),
    "block_llama": replace(_BASE, family="block_llama", qk_norm=False, logit_shift=True),
    "fast_dllm_v2": replace(
        _BASE,
        family="fast_dllm_v2",
        qk_norm=False,
        qkv_bias=True,
        logit_shift=True,
        sub_block_length=3,
        leads_with_first=True,
    ),
    "llada": replace(_BASE, family="llada", qk_norm=False, attention="full", grid="prompt"),
    "dream": replace(
        _BASE, family="dream", qk_norm=False, qkv_bias=True, logit_shift=True, attention="full", grid="prompt"
    ),
    "llama": replace(_BASE, family="llama", qk_norm=False, logit_shift=True, block_length=1, mask_id=NO_MASK),
}


def tiny_target(family: str, block_length: int, dtype: torch.dtype, seed: int = 0) -> Target:
    """A random model of a family's shape, sharp enough to have an order and soft enough to change; on the CPU."""
    spec = TINY_SPECS[family]
    if not spec.is_autoregressive:
        spec = replace(spec, block_length=block_length)
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in expected_shapes(spec).items():
        noise = torch.randn(shape, generator=generator)
        is_norm = "norm" in name
        weights[name] = (1 + 0.2 * noise if is_norm else 0.6 * noise).to(dtype)
    weights[HEAD_NAME] = weights[EMBEDDING_NAME]
    return Target(spec, BlockDiffusionTransformer(spec, weights), Path("tiny"), dtype, torch.device("cpu"))
