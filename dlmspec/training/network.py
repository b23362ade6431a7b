"""The trainable form of a block-causal transformer: one clean and two noised streams in one forward.

Shares its weights' names and its arithmetic with `models/transformer.py`, which decodes them; a test holds the two
together. A noised block sees itself and the clean tokens of earlier blocks of its piece, so every block of a row is
trained at once (BD3LM's two-stream mask); the two noised copies have complementary masks.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dlmspec.models.spec import ModelSpec
from dlmspec.models.transformer import apply_rope, rms_norm, rope_table
from dlmspec.training.batches import Batch


class Norm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


class Attention(nn.Module):
    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        width, heads, groups = spec.hidden_size, spec.num_heads, spec.num_kv_heads
        self.spec = spec
        self.q_proj = nn.Linear(width, heads * spec.head_dim, bias=False)
        self.k_proj = nn.Linear(width, groups * spec.head_dim, bias=False)
        self.v_proj = nn.Linear(width, groups * spec.head_dim, bias=False)
        self.o_proj = nn.Linear(heads * spec.head_dim, width, bias=False)
        self.q_norm = Norm(spec.head_dim, spec.rms_norm_eps) if spec.qk_norm else nn.Identity()
        self.k_norm = Norm(spec.head_dim, spec.rms_norm_eps) if spec.qk_norm else nn.Identity()

    def queries(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        """`[R, T, d]` → `[R, H, T, D]`."""
        heads = self.q_proj(x).unflatten(-1, (-1, self.spec.head_dim))
        return apply_rope(self.q_norm(heads).transpose(1, 2), *rope)

    def keys_values(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """`[R, T, d]` → two of `[R, G, T, D]`."""
        keys = self.k_norm(self.k_proj(x).unflatten(-1, (-1, self.spec.head_dim))).transpose(1, 2)
        values = self.v_proj(x).unflatten(-1, (-1, self.spec.head_dim)).transpose(1, 2)
        return apply_rope(keys, *rope), values


class Mlp(nn.Module):
    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(spec.hidden_size, spec.intermediate_size, bias=False)
        self.up_proj = nn.Linear(spec.hidden_size, spec.intermediate_size, bias=False)
        self.down_proj = nn.Linear(spec.intermediate_size, spec.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.input_layernorm = Norm(spec.hidden_size, spec.rms_norm_eps)
        self.self_attn = Attention(spec)
        self.post_attention_layernorm = Norm(spec.hidden_size, spec.rms_norm_eps)
        self.mlp = Mlp(spec)

    def forward(self, clean: Tensor, noised: Tensor, streams: "Streams", needs_clean: bool) -> tuple[Tensor, Tensor]:
        """Both streams one layer further, `[R, T, d]` and `[2R, T, d]`; the clean one only if it is needed after."""
        normed = self.input_layernorm(clean)
        clean_kv = self.self_attn.keys_values(normed, streams.rope)
        if needs_clean:
            queries = self.self_attn.queries(normed, streams.rope)
            attended = F.scaled_dot_product_attention(queries, *clean_kv, streams.clean, enable_gqa=True)
            clean = self._finish(clean, attended)
        normed = self.input_layernorm(noised)
        queries = self.self_attn.queries(normed, streams.rope_noised)
        own = self.self_attn.keys_values(normed, streams.rope_noised)
        attended = attend_noised(queries, clean_kv, own, streams.past, streams.block_length)
        return clean, self._finish(noised, attended)

    def _finish(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.self_attn.o_proj(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.post_attention_layernorm(x))


class Streams:
    """Masks and rotations that all layers share: `[R, 1, T, …]`."""

    def __init__(self, batch: Batch, spec: ModelSpec) -> None:
        positions, segments = batch.positions, batch.segments
        blocks = positions // spec.block_length
        same = segments[:, :, None] == segments[:, None, :]
        earlier = blocks[:, :, None] > blocks[:, None, :]
        current = blocks[:, :, None] == blocks[:, None, :]
        self.clean = (same & (earlier | current))[:, None]
        dtype = torch.bfloat16 if torch.is_autocast_enabled("cpu") else torch.float32
        self.past = torch.where(same & earlier, 0.0, float("-inf")).to(dtype)[:, None, None]
        cos, sin = rope_table(spec.max_position_embeddings, spec.head_dim, spec.rope_theta)
        self.rope = cos[positions][:, None].to(dtype), sin[positions][:, None].to(dtype)
        self.rope_noised = self.rope[0].repeat(2, 1, 1, 1), self.rope[1].repeat(2, 1, 1, 1)
        self.block_length = spec.block_length


def attend_noised(queries: Tensor, clean: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor], past: Tensor,
                  block_length: int) -> Tensor:  # fmt: skip
    """Noised rows over the clean past and their own block, one softmax over both: `[2R, H, T, D]`.

    `clean` is `[R, G, T, D]`, `own` `[2R, G, T, D]`, `past` additive `[R, 1, 1, T, T]`.
    """
    rows, groups, length, size = clean[0].shape
    queries = queries.unflatten(1, (groups, -1)) * size**-0.5  # [2R, G, H/G, T, D]
    share = queries.shape[2]
    stacked = queries.unflatten(0, (2, rows)).permute(1, 2, 0, 3, 4, 5).flatten(2, 4)  # [R, G, 2·H/G·T, D]
    scores_past = (stacked @ clean[0].transpose(-1, -2)).view(rows, groups, 2 * share, length, length) + past
    blocks = queries.unflatten(3, (-1, block_length))  # [2R, G, H/G, T/B, B, D]
    own_keys, own_values = (x.unflatten(2, (-1, block_length))[:, :, None] for x in own)
    scores_own = (blocks @ own_keys.transpose(-1, -2)).flatten(3, 4)  # [2R, G, H/G, T, B]
    scores_own = scores_own.unflatten(0, (2, rows)).permute(1, 2, 0, 3, 4, 5).flatten(2, 3)
    weights = torch.cat([scores_past, scores_own], -1).softmax(-1)  # [R, G, 2·H/G, T, T + B]
    from_past = weights[..., :length].flatten(2, 3) @ clean[1]
    from_past = from_past.view(rows, groups, 2, share, length, size).permute(2, 0, 1, 3, 4, 5)
    own_weights = weights[..., length:].unflatten(2, (2, share)).permute(2, 0, 1, 3, 4, 5).flatten(0, 1)
    from_own = (own_weights.unflatten(3, (-1, block_length)) @ own_values).flatten(3, 4)
    return (from_past.flatten(0, 1) + from_own).flatten(1, 2)


class Body(nn.Module):
    """Embedding, layers and final norm; the name that it is kept under makes the public keys."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(spec.vocab_size, spec.hidden_size)
        self.layers = nn.ModuleList(Layer(spec) for _ in range(spec.num_layers))
        self.norm = Norm(spec.hidden_size, spec.rms_norm_eps)


class BlockDiffusionNetwork(nn.Module):
    """Tied-head block-diffusion LM for training; `state_dict()` has the public key names."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        self.model = Body(spec)
        self._initialise()

    def _initialise(self) -> None:
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(parameter)

    def compile_layers(self) -> None:
        """Compile the layers' code, once for all of them."""
        for layer in self.model.layers:
            layer.compile()

    def hidden(self, batch: Batch) -> Tensor:
        """Final hidden state that predicts every position, from the noised copy in which it is masked, `[R, T, d]`.

        Under the logit shift that is the row before it: of the noised copy within a block, of the clean text where a
        block begins. The first position of a piece then has none; its row means nothing.
        """
        spec, streams = self.spec, Streams(batch, self.spec)
        masks = torch.cat([batch.masked, ~batch.masked])
        tokens = batch.tokens.repeat(2, 1).masked_fill(masks, spec.mask_id)
        clean, noised = self.model.embed_tokens(batch.tokens), self.model.embed_tokens(tokens)
        for number, layer in enumerate(self.model.layers):
            # the last layer's clean rows predict nothing but, under the shift, the first token of the next block
            clean, noised = layer(clean, noised, streams, spec.logit_shift or number + 1 < spec.num_layers)
        first, second = noised.chunk(2)
        if spec.logit_shift:
            first, second, clean = (stream.roll(1, dims=1) for stream in (first, second, clean))
        chosen = torch.where(batch.masked[..., None], first, second)
        if spec.logit_shift:
            chosen = torch.where((batch.positions % spec.block_length == 0)[..., None], clean, chosen)
        return self.model.norm(chosen)

    def logits(self, batch: Batch) -> Tensor:
        """`[R, T, V]` fp32; the mask id can never be predicted."""
        logits = F.linear(self.hidden(batch), self.model.embed_tokens.weight).float()
        logits[..., self.spec.mask_id] = float("-inf")
        return logits

    def forward(self, batch: Batch) -> Tensor:
        """Cross-entropy of every token given its block's noised copy, `[R, T]` fp32 (nats)."""
        logits = self.logits(batch).flatten(0, 1)
        return F.cross_entropy(logits, batch.tokens.flatten(), reduction="none").view_as(batch.tokens)
