"""Whether this machine's matrix products give a row the same bits in small and large passes."""

import torch
import torch.nn.functional as F
from torch import Tensor

from dlmspec.models.target_pass import pad_rows


@torch.inference_mode()
def row_invariant(dtype: torch.dtype, max_rows: int = 1056, width: int = 256) -> list[int]:
    """Row counts for which this machine's padded products give a row other bits than alone; empty is good.

    Both layouts of a pass (packed layers, lm_head), up to a prompt of 512 rows with 32 states of 16 and one
    block more; whole passes are compared by `dlmspec verify`.
    """
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(max_rows, width, generator=generator).to(dtype)
    weight = torch.randn(3 * width, width, generator=generator).to(dtype)
    packed = weight.t().contiguous()

    def products(some: Tensor) -> Tensor:
        padded = pad_rows(some)
        return torch.cat((F.linear(padded, weight), padded @ packed), 1)[: len(some)]

    alone = torch.cat([products(row[None]) for row in rows])
    counts = [*range(1, 65), *range(72, max_rows + 1, 8)]
    return [n for n in counts if not torch.equal(products(rows[:n]), alone[:n])]
