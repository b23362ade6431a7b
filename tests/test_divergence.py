"""How often ids differ where nothing is promised.

Catches: differences counted in decodes that are identical, a margin of another position, tokens behind a first
difference counted as compared.
"""

from dataclasses import replace

import pytest
import torch

import dlmspec.divergence
from dlmspec.cli import main
from dlmspec.config import DecodeConfig
from dlmspec.decode import reference_decode
from dlmspec.divergence import measure_divergence
from dlmspec.drafters import UNTRAINED

PROMPTS = [[5, 6, 7], [9], [3, 3, 8, 4, 2, 2]]


def test_nothing_differs_in_fp32(make_target):
    rows = measure_divergence(
        make_target(4, stop=-1), PROMPTS, DecodeConfig(9), [(UNTRAINED["confidence-tree"](), 5)], batch_sizes=(2, 3)
    )
    assert [row.name for row in rows] == [
        "reference, batches of 2",
        "reference, batches of 3",
        "confidence-tree, 5 states",
    ]
    assert all((row.decodes, row.tokens, row.margins, row.per_thousand) == (3, 27, (), 0.0) for row in rows)


@pytest.mark.parametrize("full", [False, True])
def test_a_difference_is_counted_once_with_the_margin_of_its_position(make_target, monkeypatch, full):
    target = make_target(4, stop=-1, full=full)
    seen = {}

    def watch(block, state, logits, successor):
        start = block * 4 + (len(PROMPTS[0]) if full else 0) - len(PROMPTS[0])
        best = logits.log_softmax(-1).topk(2, -1).values
        for row, place in enumerate(state.masked_positions(0)):
            if successor.tokens[place] != state.tokens[place]:
                seen[start + place] = (best[row, 0] - best[row, 1]).item()

    reference = reference_decode(target, PROMPTS[0], DecodeConfig(9), observer=watch)
    wrong = list(reference.token_ids)
    wrong[4] += 1
    wrong[7] += 1
    output = replace(reference, token_ids=tuple(wrong))
    monkeypatch.setattr(dlmspec.divergence, "decode", lambda *arguments, **options: output)
    (row,) = measure_divergence(target, PROMPTS[:1], DecodeConfig(9), [(UNTRAINED["none"](), 1)], batch_sizes=())
    assert (row.decodes, row.tokens, len(row.margins)) == (1, 5, 1)
    assert row.margins[0] == pytest.approx(seen[4], abs=1e-6)
    assert row.per_thousand == pytest.approx(200.0)


def test_the_command_reports_it(capsys):
    code = main(["verify", "pocket", "--prompts", "math", "--limit", "1", "--rules", "low_confidence_static",
                 "--temperature", "0", "--drafters", "confidence", "--budgets", "3", "--max-new-tokens", "8",
                 "--dtype", "bfloat16", "--divergence"])  # fmt: skip
    assert code == 0
    assert "per 1,000 tokens" in capsys.readouterr().out
    assert torch.get_num_threads() >= 1
