"""What the order model reads of a block state: sorted stale log-probabilities, never token ids.

So one model serves any vocabulary, and any block length up to `MAX_POSITIONS`.
"""

from functools import lru_cache

import torch
from torch import Tensor

TOP_K = 32
POSITION_CODE = 16
NUM_FEATURES = TOP_K + 5 + POSITION_CODE + 1
FLOOR, SCALE, MAX_DEPTH = -12.0, 4.0, 8
CERTAIN = 1e-7  # −log p of a token as sure as fp32 can tell
MAX_POSITIONS = 64


@lru_cache(maxsize=16)
def position_code(block_length: int) -> Tensor:
    """A fixed code of the index in the block, `[B, 17]`: sines, cosines and index / B."""
    index = torch.arange(block_length, dtype=torch.float32)[:, None]
    rates = 2.0 ** -torch.arange(POSITION_CODE // 2, dtype=torch.float32)
    return torch.cat([(index * rates).sin(), (index * rates).cos(), index / block_length], -1)


def order_features(top: Tensor, coupled: Tensor, masked: Tensor, depth: Tensor, code: Tensor) -> Tensor:
    """Model input `[N, M, F]` for M positions of a block, those that were undecided when it was read.

    `top` `[N, M, 32]` and `coupled` `[N, M]` are stale log-probabilities, `masked` bool `[N, M]` the undecided
    positions of the hypothetical state, and `depth` `[N, M]` the hypothetical steps taken since the distributions
    were read, on the positions that those steps committed, 0 elsewhere; `code` `[M, 17]` is their position code. It
    depends on the state alone, not on the order that led there, so merged states score alike.
    """
    return torch.cat(
        [
            top.clamp_min(FLOOR) / SCALE,
            coupled.clamp_min(FLOOR)[..., None] / SCALE,
            doubt(top[..., :1]),
            doubt(coupled[..., None]),
            masked.float()[..., None],
            depth.clamp_max(MAX_DEPTH)[..., None] / MAX_DEPTH,
            code.expand(top.shape[0], -1, -1),
        ],
        -1,
    )


def doubt(log_prob: Tensor) -> Tensor:
    """log(−log p), scaled: keeps apart the confidences close to 1 among which a sharp target's order is decided."""
    return (-log_prob).clamp_min(CERTAIN).clamp_max(-FLOOR).log() / SCALE
