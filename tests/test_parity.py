"""The parity check itself: it must be able to fail, and must say where.

Catches: a check that compares a decoder with itself, a difference at the end or in length only that goes unseen, a
reference with store passes that is not compared, a drafter whose mistakes change the output.
"""

from dataclasses import replace

import pytest

from dlmspec import load
from dlmspec.decode import reference_decode
from dlmspec.drafters import UNTRAINED
from dlmspec.engine import make_config
from dlmspec.parity import ParityCheck, ParityReport, ParityRow, first_difference

PROMPTS = [[3, 4, 5], [6], [7] * 11]


@pytest.fixture(scope="module")
def target(tiny_sdar):
    return load(tiny_sdar(block_length=5)).target


@pytest.mark.parametrize(
    ("left", "right", "place"),
    [((1, 2, 3), (1, 9, 3), 1), ((1, 2), (1, 2, 3), 2), ((), (1,), 0), ((4,), (5,), 0), ((1, 2), (1, 2), 2)],
)
def test_the_first_difference(left, right, place):
    assert first_difference(left, right) == place
    assert first_difference(right, left) == place


@pytest.mark.parametrize("rule", ["sequential", "low_confidence_static", "low_confidence_dynamic"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_drafter_and_budget_gets_a_row(target, rule, temperature):
    counts: list[int] = []
    drafters = [UNTRAINED[name]() for name in ("none", "confidence-tree", "random", "oracle")]
    config = make_config(max_new_tokens=8, rule=rule, temperature=temperature, noise="position", seed=3)
    rows = list(ParityCheck(target, drafters, (1, 4, 16), counts.append).run("ids", PROMPTS, [config]))
    assert [(row.drafter, row.budget) for row in rows[:3]] == [("store-passes", 1), ("none", 1), ("none", 4)]
    assert len(rows) == 1 + 4 * 3
    assert all(row.identical == row.decodes == len(PROMPTS) and row.mismatches == () for row in rows)
    assert {(row.domain, row.rule, row.temperature) for row in rows} == {("ids", rule, temperature)}
    assert {(row.block_length, row.noise, row.cache, row.seed) for row in rows} == {(5, "position", "prefix", 3)}
    expected = sum(len(reference_decode(target, prompt, config).token_ids) for prompt in PROMPTS)
    assert all(row.tokens == expected for row in rows)
    assert sum(counts) == len(rows) * len(PROMPTS)


@pytest.mark.parametrize("spoilt", ["speculation", "store passes"])
def test_a_difference_is_counted_and_placed(target, monkeypatch, spoilt):
    """The first prompt's output is spoilt at its third token, the second's in its reason only."""

    def spoil(original):
        def spoilt_decode(target, prompt, config, **options):
            output = original(target, prompt, config, **options)
            if spoilt == "store passes" and not options.get("store_passes"):
                return output
            if prompt == PROMPTS[0]:
                ids = list(output.token_ids)
                ids[2] += 1
                return replace(output, token_ids=tuple(ids))
            return replace(output, finish_reason="elsewhere") if prompt == PROMPTS[1] else output

        return spoilt_decode

    name = "decode" if spoilt == "speculation" else "reference_decode"
    monkeypatch.setattr(f"dlmspec.parity.{name}", spoil(getattr(__import__("dlmspec.parity").parity, name)))
    config = make_config(max_new_tokens=8, rule="sequential", early_stop=False)
    rows = list(ParityCheck(target, [UNTRAINED["confidence"]()], (4,)).run("ids", PROMPTS, [config]))
    bad, good = (rows[1], rows[0]) if spoilt == "speculation" else (rows[0], rows[1])
    assert good.identical == 3
    assert bad.identical == 1
    assert [index for index, _ in bad.mismatches] == [0, 1]
    assert bad.mismatches[0][1] == 2
    assert ParityReport(tuple(rows)).exact_match == 4 / 6


def test_a_report_pools_decodes_and_an_empty_one_is_not_exact():
    label = (5, "d", "r", {}, 0.0, "step", "prefix", 0, "x", 4, 30)
    rows = tuple(ParityRow(*label, n, k, ()) for n, k in ((1, 0), (9, 9)))
    assert [row.exact_match for row in rows] == [0.0, 1.0]
    assert ParityReport(rows).exact_match == 0.9
    assert ParityReport(()).exact_match == 0.0


def test_a_budget_below_one_is_refused_before_the_work(target):
    with pytest.raises(ValueError, match="budget must be at least 1"):
        ParityCheck(target, [], (4, 0))
