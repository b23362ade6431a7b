"""The staleness report: catches one that reads another block or a fresh distribution, and shares of the wrong count."""

import io
import json

import pytest
import torch
from rich.console import Console

from dlmspec.bench.stale import MAX_STALENESS, StaleCounter, stale_report
from dlmspec.bench.tables import stale_table
from dlmspec.config import DecodeConfig
from dlmspec.grid import Grid
from dlmspec.law import DenoisingLaw
from dlmspec.models.target import Target
from dlmspec.state import BlockState


@pytest.fixture(scope="module")
def target(tiny_sdar) -> Target:
    torch.set_num_threads(1)
    return Target.from_directory(tiny_sdar(block_length=8))


def sharp_logits(target: Target, tokens: list[int], confidences: list[float]) -> torch.Tensor:
    """Rows whose top-1 is `tokens[i]`, the more probable the larger `confidences[i]`."""
    logits = torch.zeros(len(tokens), target.spec.vocab_size)
    logits[range(len(tokens)), tokens] = torch.tensor(confidences)
    return logits


def test_staleness_is_counted_by_hand(target: Target):
    mask = target.spec.mask_id
    counter = StaleCounter(DenoisingLaw(target.spec, DecodeConfig(), Grid(0, target.spec.block_length)))
    known = (1,) * 5
    # positions 5, 6, 7: read as 11, 12, 13 first; then 6 is read as 22; commits in the order 5, 6, 7
    s0, s1 = BlockState((*known, mask, mask, mask), 0), BlockState((*known, 11, mask, mask), 1)
    s2, s3 = BlockState((*known, 11, 22, mask), 2), BlockState((*known, 11, 22, 13), 3)
    counter(4, s0, sharp_logits(target, [11, 12, 13], [9.0, 5.0, 6.0]), s1)
    counter(4, s1, sharp_logits(target, [22, 13], [9.0, 5.0]), s2)
    counter(4, s2, sharp_logits(target, [13], [9.0]), s3)
    counter(5, BlockState((mask,) * 8, 0), sharp_logits(target, [9] * 8, [8.0] * 8), s1)
    one, two = counter.rows("math")[:2]
    assert (one.steps, one.token_share, one.confidence_accuracy) == (2, 0.5, 0.5)
    assert (two.steps, two.token_share, two.confidence_accuracy) == (1, 1.0, 1.0)
    assert one.order_accuracy is None
    assert counter.rows("math")[2].token_share is None


def test_stale_report_with_an_order_model(target: Target):
    def leftmost(evidence, step: int) -> list[float]:
        return [8.0 - position for position in range(8)]

    rows = stale_report(
        target=target,
        encode=lambda text: [1 + byte % 60 for byte in text.encode()[:21]],  # a ragged length
        prompts=["math"],
        limit=2,
        max_new_tokens=16,
        order=leftmost,
    )
    assert [(made.temperature, made.staleness) for made in rows] == [
        (temperature, staleness) for temperature in (0.0, 1.0) for staleness in range(1, MAX_STALENESS + 1)
    ]
    for made in rows:
        assert made.commits == made.steps > 0
        shares = (made.token_share, made.confidence_accuracy, made.order_accuracy)
        assert all(share is not None and 0 <= share <= 1 for share in shares)
        assert json.dumps(made.as_dict())
    console = Console(file=io.StringIO(), width=120)
    console.print(stale_table(rows))
    assert "order model" in console.file.getvalue()  # type: ignore[attr-defined]
