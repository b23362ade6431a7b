"""The block-causal target of Qwen3 shape: one pass scores many copies of a block over one shared prefix.

Row invariance rules the layout: the bits of a copy's rows must not depend on what else is in the pass. Matrix
kernels change with the number of rows, so each product here runs on a multiple of 16 of them, and each copy
brings a fixed number of query rows. What a copy is multiplied with depends on its absolute block index alone,
whether the blocks before it lie in the cache or ride in the same pass.

Knows nothing of rules, trees or noise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dlmspec.cache import BlockCache
from dlmspec.models.spec import ModelSpec

ROW_MULTIPLE = 16
PREFILL_ROWS = 512
# below this many elements torch runs an elementwise op on one thread (at::internal::GRAIN_SIZE)
ELEMENTS_PER_THREAD = 32768


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """One copy of a block in a pass; `block` counts blocks behind the cache's end (0 = the first one).

    `ancestors` index the pass's copies of the uncached blocks before it, oldest first, one per block. `read` are the
    positions whose logits may be asked for (None: all); the last layer computes no others.
    """

    tokens: tuple[int, ...]
    block: int
    ancestors: tuple[int, ...]
    read: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer's packed weights, matrices as [in, out]: `qkv [d, (H + 2G) D]`, `gate_up [d, 2 f]`.

    `qk_norm [H + G, D]` repeats the two norms per head. Products with few rows are 15 % faster laid out so.
    """

    input_norm: Tensor
    qkv: Tensor
    qk_norm: Tensor
    output: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class CopyGroup:
    """Copies `start:stop` of the pass's inner order: all see `ancestors` (inner places) behind the cache."""

    start: int
    stop: int
    ancestors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PassOutput:
    """What a pass leaves: keys and values `[layers, N, G, B, D]`, final normed states `hidden [N, B, d]`, zero in rows
    that are not read."""

    keys: Tensor
    values: Tensor
    hidden: Tensor
    lm_head: Tensor

    def logits(self, copy: int, positions: Sequence[int]) -> Tensor:
        """fp32 logits `[len(positions), V]` of one copy, computed for those rows only."""
        return self.logit_rows([(copy, position) for position in positions])

    @torch.inference_mode()
    def logit_rows(self, rows: Sequence[tuple[int, int]]) -> Tensor:
        """fp32 logits `[len(rows), V]` of (copy, position) pairs in one product; same bits as row by row."""
        length = self.hidden.shape[1]
        places = torch.tensor([copy * length + position for copy, position in rows], dtype=torch.long)
        chosen = self.hidden.flatten(0, 1).index_select(0, places.to(self.hidden.device))
        return F.linear(pad_rows(chosen), self.lm_head)[: len(rows)].float()

    def store(self, cache: BlockCache, copy: int) -> None:
        """Commit the rows of `copy`, a copy of the cache's first missing block in its final state."""
        cache.append_rows(self.keys[:, copy], self.values[:, copy])


def pad_rows(x: Tensor) -> Tensor:
    """`x [rows, …]` with zero rows appended up to a multiple of 16, at least 16."""
    missing = -x.shape[0] % ROW_MULTIPLE if x.shape[0] else ROW_MULTIPLE
    return torch.cat((x, x.new_zeros(missing, *x.shape[1:]))) if missing else x


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
    """Rotate the two halves of the last dimension of `x`; `cos` and `sin` broadcast against it."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def gated_silu(gate_up: Tensor) -> Tensor:
    """`silu(gate) * up` of `gate_up [rows, 2 f]`.

    silu takes other code at the ragged end of a thread's share, and torch cuts shares in the middle of rows.
    With at most two threads the cut falls between rows (their number is even); with more, chunks are used
    that are too small to be shared.
    """
    gate, up = gate_up.chunk(2, dim=-1)
    if gate.device.type != "cpu" or torch.get_num_threads() <= 2:
        return F.silu(gate).mul_(up)
    chunks = gate.split(max(1, ELEMENTS_PER_THREAD // gate.shape[1]))
    return torch.cat([F.silu(chunk) for chunk in chunks]).mul_(up)


class BlockDiffusionTransformer:
    """Weights packed for inference, and the two ways to run them. Dtype and device are those of `weights`."""

    def __init__(self, spec: ModelSpec, weights: Mapping[str, Tensor]) -> None:
        self.spec = spec
        self.embedding = weights["model.embed_tokens.weight"]
        self.lm_head = weights["lm_head.weight"]
        self.final_norm = weights["model.norm.weight"]
        self.layers = [_pack_layer(spec, weights, index) for index in range(spec.num_layers)]
        cos, sin = rope_table(spec.max_position_embeddings, spec.head_dim, spec.rope_theta)
        self.cos = cos.to(self.embedding)[:, None]  # [positions, 1, D]
        self.sin = sin.to(self.embedding)[:, None]

    @torch.inference_mode()
    def prefill(self, cache: BlockCache, token_ids: Sequence[int]) -> None:
        """Run whole blocks of committed tokens, block-causal, and commit their rows; yields no logits."""
        step = prefill_rows(self.spec.block_length)
        for start in range(0, len(token_ids), step):
            self.forward(cache, (), token_ids[start : start + step])

    @torch.inference_mode()
    def forward(self, cache: BlockCache, copies: Sequence[BlockCopy], prompt: Sequence[int] = ()) -> PassOutput:
        """One target pass over `copies`: a row sees the prefix, its ancestor copies and its own copy.

        Whole blocks of `prompt` that are not cached yet ride along, block-causal, and are committed: they are prefix
        to every copy.
        """
        spec, num_prompt, start = self.spec, len(prompt), cache.length
        assert num_prompt % spec.block_length == 0, f"{num_prompt} tokens are no whole blocks of {spec.block_length}"
        end = start + num_prompt
        assert end <= cache.max_length, f"{end} rows exceed the {cache.max_length} that the cache was allocated for"
        cache.length = end  # its new rows are written layer by layer, before any row reads them
        self._check_copies(cache, copies)
        num_rows = num_prompt + len(copies) * spec.block_length
        order, groups = group_copies(copies)
        first = [end + copies[i].block * spec.block_length for i in order]
        positions = [*range(start, end), *(place + i for place in first for i in range(spec.block_length))]
        visible = block_causal(num_prompt, end, spec.block_length, self.cos.device)
        x = self._embed([*prompt, *(token for i in order for token in copies[i].tokens)])
        cos, sin = self._rope_rows(positions, x.shape[0])
        read = read_rows([copies[i] for i in order], num_prompt)
        shape = (spec.num_layers, spec.num_kv_heads, len(copies), spec.block_length, spec.head_dim)
        keys, values = x.new_empty(shape), x.new_empty(shape)
        for index, layer in enumerate(self.layers):
            q, k, v = self._project(layer, x, cos, sin)
            for kept, rows in ((keys, k), (values, v)):
                own = rows[num_prompt:num_rows].unflatten(0, (len(copies), spec.block_length))
                kept[index].copy_(own.permute(2, 0, 1, 3))
            attended = []
            if num_prompt:
                cache.keys[index, :, start:end] = k[:num_prompt].transpose(0, 1)
                cache.values[index, :, start:end] = v[:num_prompt].transpose(0, 1)
                attended.append(attend_prompt(q[:num_prompt], cache, index, visible))
            if copies:
                own = keys[index], values[index]
                attended.append(attend_copies(q[num_prompt:num_rows], own, cache, index, groups))
            joined = pad_rows(torch.cat(attended))
            is_last = layer is self.layers[-1]
            x = self._last_rows(layer, x, joined, read) if is_last else self._finish_layer(layer, x, joined)
        hidden = x[num_prompt:num_rows].unflatten(0, (len(copies), spec.block_length))
        keys, values = keys.transpose(1, 2), values.transpose(1, 2)
        if order != sorted(order):
            back = torch.tensor(order, device=x.device).argsort()
            keys, values, hidden = keys[:, back], values[:, back], hidden[back]
        return PassOutput(keys, values, hidden, self.lm_head)

    def _last_rows(self, layer: LayerWeights, x: Tensor, attended: Tensor, rows: Sequence[int]) -> Tensor:
        """The final normed states of `rows` out of the last layer, `[all rows, d]`, zeros elsewhere."""
        places = torch.tensor(rows, dtype=torch.long, device=x.device)
        if len(rows) < len(x):
            kept = self._finish_layer(layer, pad_rows(x[places]), pad_rows(attended[places]))
        else:
            kept = self._finish_layer(layer, x, attended)
        kept = rms_norm(kept, self.final_norm, self.spec.rms_norm_eps)
        return torch.zeros_like(x).index_copy_(0, places, kept[: len(rows)])

    def _check_copies(self, cache: BlockCache, copies: Sequence[BlockCopy]) -> None:
        length = self.spec.block_length
        for copy in copies:
            chain = copy.ancestors
            assert len(copy.tokens) == length, f"a copy has {len(copy.tokens)} tokens, the block length is {length}"
            assert len(chain) == copy.block, "one ancestor copy per uncached block before the copy"
            assert all(copies[a].ancestors == chain[:i] for i, a in enumerate(chain)), "ancestors form no chain"
            end = cache.length + copy.block * length
            assert end <= cache.max_length, f"lookahead to row {end} exceeds the cache's {cache.max_length} rows"
            assert end + length <= self.spec.max_position_embeddings, "a copy lies behind the context"

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
        qkv = (normed @ layer.qkv).unflatten(-1, (-1, self.spec.head_dim))
        qk = rms_norm(qkv[:, : heads + kv_heads], layer.qk_norm, self.spec.rms_norm_eps)
        qk = apply_rope(qk, cos, sin)
        return qk[:, :heads], qk[:, heads:], qkv[:, heads + kv_heads :]

    def _finish_layer(self, layer: LayerWeights, x: Tensor, attended: Tensor) -> Tensor:
        """Output projection and MLP, with their residuals. `attended [rows, H D]`."""
        x = x + attended @ layer.output
        normed = rms_norm(x, layer.mlp_norm, self.spec.rms_norm_eps)
        return x + gated_silu(normed @ layer.gate_up) @ layer.down


def read_rows(copies: Sequence[BlockCopy], start: int) -> list[int]:
    """The rows of a pass, its copies' from `start` on, whose final states are asked for."""
    rows = []
    for copy in copies:
        rows += [start + position for position in (range(len(copy.tokens)) if copy.read is None else copy.read)]
        start += len(copy.tokens)
    return rows


def prefill_rows(block_length: int) -> int:
    """Rows of a prompt that one pass takes: about `PREFILL_ROWS`, in whole blocks."""
    return max(block_length, PREFILL_ROWS // block_length * block_length)


def block_causal(num_rows: int, end: int, block_length: int, device: torch.device) -> Tensor:
    """Bool `[num_rows, end]`: the last `num_rows` of `end` rows see all blocks up to their own."""
    block = torch.arange(end, device=device) // block_length
    return block[end - num_rows :, None] >= block


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


def group_copies(copies: Sequence[BlockCopy]) -> tuple[list[int], list[CopyGroup]]:
    """An inner order in which copies with the same ancestors are neighbours, and the groups in that order."""
    chains: dict[tuple[int, ...], list[int]] = {}
    for index, copy in enumerate(copies):
        chains.setdefault(copy.ancestors, []).append(index)
    order = [index for members in chains.values() for index in members]
    place = {index: i for i, index in enumerate(order)}
    groups, start = [], 0
    for chain, members in chains.items():
        groups.append(CopyGroup(start, start + len(members), tuple(place[a] for a in chain)))
        start += len(members)
    return order, groups


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


def _pack_layer(spec: ModelSpec, weights: Mapping[str, Tensor], index: int) -> LayerWeights:
    def named(*names: str) -> list[Tensor]:
        return [weights[f"model.layers.{index}.{name}.weight"] for name in names]

    def packed(*names: str) -> Tensor:
        return torch.cat(named(*names)).t().contiguous()

    q_norm, k_norm = named("self_attn.q_norm", "self_attn.k_norm")
    return LayerWeights(
        input_norm=named("input_layernorm")[0],
        qkv=packed("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        qk_norm=torch.cat((q_norm.expand(spec.num_heads, -1), k_norm.expand(spec.num_kv_heads, -1))),
        output=packed("self_attn.o_proj"),
        mlp_norm=named("post_attention_layernorm")[0],
        gate_up=packed("mlp.gate_proj", "mlp.up_proj"),
        down=packed("mlp.down_proj"),
    )
