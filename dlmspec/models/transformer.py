"""The block-causal target of Qwen3 or Llama shape: one pass scores many copies of a block over one shared prefix.

Knows nothing of rules, trees or noise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dlmspec.cache import BlockCache
from dlmspec.models.experts import ExpertsMlp
from dlmspec.models.mlp import DenseMlp, Mlp
from dlmspec.models.spec import ModelSpec
from dlmspec.models.target_pass import BlockCopy, PartLayout, PassOutput, PassPart, pad_rows, prefill_rows


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer's packed weights, matrices as [in, out]: `qkv [d, (H + 2G) D]`.

    `qkv_bias [(H + 2G) D]` and `qk_norm [H + G, D]`, the two norms repeated per head, where the family has them.
    Products with few rows are 15 % faster laid out so.
    """

    input_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    qk_norm: Tensor | None
    output: Tensor
    mlp_norm: Tensor
    mlp: Mlp


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise the last dimension in fp32 or wider, then scale by `weight` (broadcast against `x`)."""
    return F.rms_norm(x, x.shape[-1:], eps=eps) * weight


def rope_table(num_positions: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """fp32 cosines and sines `[num_positions, head_dim]`, the two halves equal.

    fp32 throughout, as the models were trained: exact angles differ by 1e-5 within a few hundred positions.
    """
    inverse = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angles = torch.outer(torch.arange(num_positions, dtype=torch.float32), inverse)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the two halves of the first dimensions of `x`, as many as `cos` and `sin` have; they broadcast."""
    rotated = x[..., : cos.shape[-1]]
    first, second = rotated.chunk(2, dim=-1)
    rotated = rotated * cos + torch.cat((-second, first), dim=-1) * sin
    if cos.shape[-1] == x.shape[-1]:
        return rotated
    return torch.cat((rotated, x[..., cos.shape[-1] :]), dim=-1)


class BlockDiffusionTransformer:
    """Weights packed for inference, and the two ways to run them. Dtype and device are those of `weights`."""

    def __init__(self, spec: ModelSpec, weights: Mapping[str, Tensor]) -> None:
        self.spec = spec
        self.embedding = weights["model.embed_tokens.weight"]
        self.lm_head = weights["lm_head.weight"]
        self.final_norm = weights["model.norm.weight"]
        self.layers = [_pack_layer(spec, weights, index) for index in range(spec.num_layers)]
        cos, sin = rope_table(spec.max_position_embeddings, spec.rotary_dim or spec.head_dim, spec.rope_theta)
        self.cos = cos.to(self.embedding)[:, None]  # [positions, 1, D]
        self.sin = sin.to(self.embedding)[:, None]

    @torch.inference_mode()
    def prefill(self, cache: BlockCache, token_ids: Sequence[int]) -> None:
        """Run whole blocks of committed tokens, block-causal, and commit their rows; yields no logits."""
        step = prefill_rows(self.spec.block_length)
        for start in range(0, len(token_ids), step):
            self.forward(cache, (), token_ids[start : start + step])

    def forward(self, cache: BlockCache, copies: Sequence[BlockCopy], prompt: Sequence[int] = ()) -> PassOutput:
        """One target pass over `copies`: a row sees the prefix, its ancestor copies and its own copy.

        Whole blocks of `prompt` that are not cached yet ride along, block-causal, and are committed: they are prefix
        to every copy.
        """
        return self.forward_parts([PassPart(cache, copies, prompt)])[0]

    @torch.inference_mode()
    def forward_parts(self, parts: Sequence[PassPart]) -> list[PassOutput]:
        """One pass over the copies of several requests, each with its own cache."""
        layouts: list[PartLayout] = []
        num_rows = 0
        for part in parts:
            layouts.append(PartLayout(part, self.spec, num_rows, self.cos.device))
            num_rows += layouts[-1].num_rows
        x = self._embed([token for layout in layouts for token in layout.tokens])
        cos, sin = self._rope_rows([position for layout in layouts for position in layout.positions], x.shape[0])
        read = [row for layout in layouts for row in layout.read]
        for index, layer in enumerate(self.layers):
            q, k, v = self._project(layer, x, cos, sin)
            pieces = [piece for layout in layouts for piece in layout.attend(index, q, k, v)]
            attended = pad_rows(torch.cat(pieces))
            is_last = index + 1 == len(self.layers)
            x = self._last_rows(layer, x, attended, read) if is_last else self._finish_layer(layer, x, attended)
        return [layout.output(x, self.lm_head) for layout in layouts]

    def _last_rows(self, layer: LayerWeights, x: Tensor, attended: Tensor, rows: Sequence[int]) -> Tensor:
        """The final normed states of `rows` out of the last layer, `[all rows, d]`, zeros elsewhere."""
        places = torch.tensor(rows, dtype=torch.long, device=x.device)
        if len(rows) < len(x):
            kept = self._finish_layer(layer, pad_rows(x[places]), pad_rows(attended[places]))
        else:
            kept = self._finish_layer(layer, x, attended)
        kept = rms_norm(kept, self.final_norm, self.spec.rms_norm_eps)
        return torch.zeros_like(x).index_copy_(0, places, kept[: len(rows)])

    def _embed(self, token_ids: Sequence[int]) -> Tensor:
        ids = torch.tensor(token_ids, dtype=torch.long, device=self.embedding.device)
        return pad_rows(F.embedding(ids, self.embedding))

    def _rope_rows(self, positions: Sequence[int], num_rows: int) -> tuple[Tensor, Tensor]:
        """Table rows `[num_rows, 1, D]`; padding rows take position 0."""
        places = torch.tensor([*positions, *[0] * (num_rows - len(positions))], device=self.cos.device)
        return self.cos[places], self.sin[places]

    def _project(self, layer: LayerWeights, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries `[rows, H, D]`, keys and values `[rows, G, D]`; the first two normed and rotated."""
        heads, kv_heads = self.spec.num_heads, self.spec.num_kv_heads
        normed = rms_norm(x, layer.input_norm, self.spec.rms_norm_eps)
        qkv = normed @ layer.qkv
        if layer.qkv_bias is not None:
            qkv = qkv + layer.qkv_bias
        qkv = qkv.unflatten(-1, (-1, self.spec.head_dim))
        qk = qkv[:, : heads + kv_heads]
        if layer.qk_norm is not None:
            qk = rms_norm(qk, layer.qk_norm, self.spec.rms_norm_eps)
        qk = apply_rope(qk, cos, sin)
        return qk[:, :heads], qk[:, heads:], qkv[:, heads + kv_heads :]

    def _finish_layer(self, layer: LayerWeights, x: Tensor, attended: Tensor) -> Tensor:
        """Output projection and MLP, with their residuals. `attended [rows, H D]`."""
        x = x + attended @ layer.output
        normed = rms_norm(x, layer.mlp_norm, self.spec.rms_norm_eps)
        return x + layer.mlp(normed)


def _pack_layer(spec: ModelSpec, weights: Mapping[str, Tensor], index: int) -> LayerWeights:
    def named(kind: str, *names: str) -> list[Tensor]:
        return [weights[f"model.layers.{index}.{name}.{kind}"] for name in names]

    projections = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    qk_norm = None
    if spec.qk_norm:
        q_norm, k_norm = named("weight", "self_attn.q_norm", "self_attn.k_norm")
        qk_norm = torch.cat((q_norm.expand(spec.num_heads, -1), k_norm.expand(spec.num_kv_heads, -1)))
    mlp = f"model.layers.{index}.mlp"
    return LayerWeights(
        input_norm=named("weight", "input_layernorm")[0],
        qkv=torch.cat(named("weight", *projections)).t().contiguous(),
        qkv_bias=torch.cat(named("bias", *projections)) if spec.qkv_bias else None,
        qk_norm=qk_norm,
        output=named("weight", "self_attn.o_proj")[0].t().contiguous(),
        mlp_norm=named("weight", "post_attention_layernorm")[0],
        mlp=ExpertsMlp.packed(weights, mlp, spec) if spec.has_experts(index) else DenseMlp.packed(weights, mlp),
    )
