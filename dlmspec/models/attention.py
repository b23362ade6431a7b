"""Attention of one pass: copies of blocks over one shared prefix, and the prompt that rides along.

Row invariance rules the shapes: what a copy is multiplied with depends on its absolute block index alone, whether the
blocks before it lie in the cache or ride in the same pass. Knows nothing of weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dlmspec.cache import BlockCache

ROW_MULTIPLE = 16


@dataclass(frozen=True, slots=True)
class CopyGroup:
    """Copies `start:stop` of the pass's inner order: all see `ancestors` (inner places) behind the cache."""

    start: int
    stop: int
    ancestors: tuple[int, ...]


def attend_prompt(q: Tensor, cache: BlockCache, layer: int, visible: Tensor) -> Tensor:
    """Attention of the cache's last rows `q [rows, H, D]` over all of it, as far as `visible` → `[rows, H D]`."""
    end = cache.length
    attended = F.scaled_dot_product_attention(
        q[None].transpose(1, 2),
        cache.keys[layer, None, :, :end],
        cache.values[layer, None, :, :end],
        attn_mask=visible,
        enable_gqa=True,
    )
    return attended[0].transpose(0, 1).flatten(1)


def attend_copies(
    q: Tensor, own: tuple[Tensor, Tensor], cache: BlockCache, layer: int, groups: Sequence[CopyGroup]
) -> Tensor:
    """Attention of a pass in one layer: `q [N B, H, D]`, own keys and values `[G, N, B, D]` → `[N B, H D]`.

    Per group the ancestors' rows go into the scratch behind the cache, so that everything before a copy is
    one contiguous prefix. Per copy the key count and all shapes depend on its block index alone.
    """
    keys, values = own
    kv_heads, num_copies, length, dim = keys.shape
    real = q.shape[1] // kv_heads * length  # query rows of a copy per kv head
    rows = real + -real % ROW_MULTIPLE
    new = q.new_empty if rows == real else q.new_zeros
    queries = new(kv_heads, num_copies, rows, dim)
    split = queries[:, :, :real].unflatten(2, (-1, length))  # [G, N, H/G, B, D]
    torch.mul(q.view(num_copies, length, kv_heads, -1, dim).permute(2, 0, 3, 1, 4), dim**-0.5, out=split)
    own_scores = torch.bmm(queries.flatten(0, 1), keys.flatten(0, 1).transpose(1, 2))
    own_scores = own_scores.unflatten(0, (kv_heads, num_copies))
    own_weights = torch.empty_like(own_scores)
    mixed = torch.zeros_like(queries)
    for group in groups:
        _write_ancestors(own, cache, layer, group)
        chosen = slice(group.start, group.stop)
        prefix = cache.length + len(group.ancestors) * length
        scores = q.new_empty(kv_heads, group.stop - group.start, rows, prefix + length)
        scores[..., prefix:] = own_scores[:, chosen]
        if prefix:
            prefix_keys = cache.keys[layer, :, :prefix].transpose(1, 2)
            torch.bmm(queries[:, chosen].flatten(1, 2), prefix_keys, out=scores.flatten(1, 2)[..., :prefix])
        weights = softmax_rows(scores)
        own_weights[:, chosen] = weights[..., prefix:]
        if prefix:
            product = torch.bmm(weights.flatten(1, 2)[..., :prefix], cache.values[layer, :, :prefix])
            mixed[:, chosen] = product.unflatten(1, (-1, rows))
    own_product = torch.bmm(own_weights.flatten(0, 1), values.flatten(0, 1))
    mixed += own_product.view_as(mixed)
    heads = mixed[:, :, :real].unflatten(2, (-1, length))
    return heads.permute(1, 3, 0, 2, 4).reshape(num_copies * length, -1)


def softmax_rows(scores: Tensor) -> Tensor:
    """Softmax of the last dimension, in fp32 for narrower types."""
    if scores.element_size() >= 4:
        return torch.softmax(scores, dim=-1)
    return torch.softmax(scores, dim=-1, dtype=torch.float32).to(scores.dtype)


def _write_ancestors(own: tuple[Tensor, Tensor], cache: BlockCache, layer: int, group: CopyGroup) -> None:
    for depth, place in enumerate(group.ancestors):
        start = cache.length + depth * cache.block_length
        for kept, rows in zip((cache.keys, cache.values), own, strict=True):
            kept[layer, :, start : start + cache.block_length] = rows[:, place]


def block_causal(num_rows: int, end: int, block_length: int, device: torch.device) -> Tensor:
    """Bool `[num_rows, end]`: the last `num_rows` of `end` rows see all blocks up to their own."""
    block = torch.arange(end, device=device) // block_length
    return block[end - num_rows :, None] >= block
