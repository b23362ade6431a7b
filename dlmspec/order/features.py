"""What the order model reads of a block: sorted stale log-probabilities, never token ids.

So one model serves any vocabulary, and any block length up to `MAX_POSITIONS`.
"""

from functools import lru_cache

import torch
from torch import Tensor

TOP_K = 32
POSITION_CODE = 16
NUM_FEATURES = TOP_K + 4 + POSITION_CODE + 1
FLOOR, SCALE = -12.0, 4.0
CERTAIN = 1e-7  # −log p of a token as sure as fp32 can tell
MAX_POSITIONS = 64


@lru_cache(maxsize=16)
def position_code(block_length: int) -> Tensor:
    """A fixed code of the index in the block, `[B, 17]`: sines, cosines and index / B."""
    index = torch.arange(block_length, dtype=torch.float32)[:, None]
    rates = 2.0 ** -torch.arange(POSITION_CODE // 2, dtype=torch.float32)
    return torch.cat([(index * rates).sin(), (index * rates).cos(), index / block_length], -1)


def order_features(top: Tensor, coupled: Tensor, masked: Tensor, code: Tensor) -> Tensor:
    """Model input `[N, M, F]` for M positions of a block, those that were undecided when it was read.

    `top` `[N, M, 32]` and `coupled` `[N, M]` are log-probabilities at the step that was read (coupled: of the token
    that the noise of a later step would commit), `masked` bool `[N, M]` what that step left undecided; `code`
    `[M, 17]` is the positions' code.
    """
    return torch.cat(
        [
            top.clamp_min(FLOOR) / SCALE,
            coupled.clamp_min(FLOOR)[..., None] / SCALE,
            doubt(top[..., :1]),
            doubt(coupled[..., None]),
            masked.float()[..., None],
            code.expand(top.shape[0], -1, -1),
        ],
        -1,
    )


def doubt(log_prob: Tensor) -> Tensor:
    """log(−log p), scaled: keeps apart the confidences close to 1 among which a sharp target's order is decided."""
    return (-log_prob).clamp_min(CERTAIN).clamp_max(-FLOOR).log() / SCALE
