"""The dense MLP of a layer. Knows nothing of attention; rows never mix."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

# below this many elements torch runs an elementwise op on one thread (at::internal::GRAIN_SIZE)
ELEMENTS_PER_THREAD = 32768


class Mlp(Protocol):
    """What stands between a layer's second norm and its residual."""

    def __call__(self, x: Tensor) -> Tensor:
        """`[rows, d]` → `[rows, d]`, a row's bits independent of the others; the rows are a multiple of 16."""
        ...


@dataclass(frozen=True, slots=True)
class DenseMlp:
    """Gate and up side by side, matrices as [in, out]: `gate_up [d, 2 f]`, `down [f, d]`."""

    gate_up: Tensor
    down: Tensor

    @classmethod
    def packed(cls, weights: Mapping[str, Tensor], name: str) -> "DenseMlp":
        """From the three matrices `NAME.{gate,up,down}_proj.weight`."""
        gate, up, down = (weights[f"{name}.{part}_proj.weight"] for part in ("gate", "up", "down"))
        return cls(torch.cat((gate, up)).t().contiguous(), down.t().contiguous())

    def __call__(self, x: Tensor) -> Tensor:
        return gated_silu(x @ self.gate_up) @ self.down


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
