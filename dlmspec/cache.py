"""The KV cache of one request: committed rows, and scratch rows behind them for lookahead.

Knows nothing of tokens or of the model beyond its shapes.
"""

import torch
from torch import Tensor

from dlmspec.models.spec import ModelSpec


def align_length(num_tokens: int, block_length: int) -> int:
    """`num_tokens` rounded up to whole blocks."""
    return -(-num_tokens // block_length) * block_length


class BlockCache:
    """Keys and values `[layers, G, rows, D]`, allocated once.

    With rows inside heads the first L rows of a head are one contiguous `[L, D]` matrix, so a pass multiplies
    with the prefix without copying it. Rows `[0, length)` are committed; what lies behind is scratch that a
    pass may overwrite and nothing may read before it was written in the same pass.
    """

    def __init__(
        self,
        spec: ModelSpec,
        num_tokens: int,
        *,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        block_length: int | None = None,
    ) -> None:
        self.block_length = block_length or spec.block_length  # of the copies that a pass puts behind the rows
        self.max_length = align_length(num_tokens, self.block_length)
        shape = (spec.num_layers, spec.num_kv_heads, self.max_length, spec.head_dim)
        self.keys = torch.empty(shape, dtype=dtype, device=device)
        self.values = torch.empty(shape, dtype=dtype, device=device)
        self.length = 0
        self.next_position: int | None = None  # of the row behind the last one, where it is not its number
        self.last_hidden: Tensor | None = None  # `[d]`, of the last committed row where it predicts the next token

    def append_rows(self, keys: Tensor, values: Tensor, last_hidden: Tensor | None = None) -> None:
        """Commit whole blocks, `[layers, G, n * block_length, D]`, behind the rows there are."""
        num_rows = keys.shape[2]
        end = self.length + num_rows
        assert num_rows % self.block_length == 0, f"{num_rows} rows are no whole blocks of {self.block_length}"
        assert end <= self.max_length, f"{end} rows exceed the {self.max_length} that the cache was allocated for"
        self.keys[:, :, self.length : end].copy_(keys)
        self.values[:, :, self.length : end].copy_(values)
        self.length = end
        self.last_hidden = last_hidden
