"""Scoring against slow twins in plain Python fp64, and what drafters read.

Catches: suppression after sampling, or the mask id left in the softmax; the filtered probability as the
default confidence; a top-p that drops the crossing token or keeps one more; ties of the k-th token dropped;
ties that go to a higher id (also beyond the vector width); a division by T = 0, overflow at small T, NaN from
-inf logits; a wrong temperature in a confidence; the sampling law (chi-square); results that depend on the other rows
of the call; drafters that read another token than `score` draws.
"""

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dlmspec.noise import GumbelNoise
from dlmspec.step import (
    CONFIDENCES,
    Sampling,
    score,
    tempered_log_probs,
)

INF = math.inf


def skip_unless(condition: bool) -> None:
    if not condition:
        assume(False)


def softmax(values: list[float]) -> list[float]:
    top = max(values)
    weights = [math.exp(value - top) for value in values]
    return [weight / sum(weights) for weight in weights]


def slow_kept(values: list[float], top_k: int, top_p: float) -> set[int]:
    """Ids that top-k, then top-p, keep; skips examples whose boundary lies within rounding."""
    ids = list(range(len(values)))
    if top_k:
        smallest = sorted(values, reverse=True)[min(top_k, len(values)) - 1]
        ids = [i for i in ids if values[i] >= smallest]
    if top_p == 1:
        return set(ids)
    probs = dict(zip(ids, softmax([values[i] for i in ids]), strict=True))
    kept: set[int] = set()
    mass = 0.0
    for i in sorted(ids, key=lambda i: (-values[i], i)):
        skip_unless(abs(mass - top_p) > 1e-5)
        if mass > top_p:
            break
        kept.add(i)
        mass += probs[i]
    return kept


def slow_score(row: list[float], gumbel: list[float], sampling: Sampling, mask_id: int | None):
    """Token, {confidence by name}, entropy, filtered log-probabilities of one row."""
    removed = {*sampling.suppress_tokens, mask_id}
    raw = [-INF if i in removed else value for i, value in enumerate(row)]
    greedy = sampling.temperature == 0
    # in fp32 as the package does it: rounding makes ties, and ties decide what the filters keep
    tempered = raw if greedy else ((torch.tensor(raw) - max(raw)) / sampling.temperature).tolist()
    probs, raw_probs = softmax(tempered), softmax(raw)
    kept = slow_kept(tempered, sampling.top_k, sampling.top_p)
    total = sum(probs[i] for i in kept)
    filtered = [probs[i] / total if i in kept else 0.0 for i in range(len(row))]
    log_probs = [math.log(p) if p > 0 else -INF for p in filtered]
    keys = raw if greedy else [lp + g for lp, g in zip(log_probs, gumbel, strict=True)]
    token = max(range(len(row)), key=lambda i: (keys[i], -i))
    if not greedy:
        skip_unless(sorted(keys)[-1] - sorted([*keys, -INF])[-2] > 1e-4)
    best = sorted([*probs, 0.0], reverse=True)
    entropy = -sum(p * math.log(p) for p in probs if p > 0)
    confidence = {
        "token_prob": probs[token],
        "filtered_token_prob": filtered[token],
        "raw_token_prob": raw_probs[token],
        "max_prob": best[0],
        "margin": best[0] - best[1],
        "entropy": -entropy,
    }
    return token, confidence, entropy, log_probs


@st.composite
def cases(draw):
    """Logits `[M, V]` with ties and -inf, noise, sampling, mask id."""
    count, vocab_size = draw(st.integers(1, 3)), draw(st.sampled_from([4, 5, 7, 13]))
    value = st.one_of(st.integers(-6, 6).map(float), st.sampled_from([-INF, 0.5, 3.25]), st.floats(-20, 20, width=32))
    row = st.lists(value, min_size=vocab_size, max_size=vocab_size)
    logits = draw(st.lists(row, min_size=count, max_size=count))
    mask_id = draw(st.one_of(st.none(), st.integers(0, vocab_size - 1)))
    suppress = tuple(draw(st.sets(st.integers(0, vocab_size - 1), max_size=2)))
    sampling = Sampling(
        temperature=draw(st.sampled_from([0.0, 0.25, 0.7, 1.0, 2.0])),
        top_k=draw(st.sampled_from([0, 1, 2, 3, 50])),
        top_p=draw(st.sampled_from([1.0, 0.9, 0.5, 0.05])),
        confidence=draw(st.sampled_from(CONFIDENCES)),
        suppress_tokens=suppress,
    )
    removed = {*suppress, mask_id}
    assume(all(any(v > -INF for i, v in enumerate(row) if i not in removed) for row in logits))
    gumbel = GumbelNoise(draw(st.integers(0, 1000)), vocab_size).gumbel(0, count, 0)
    return torch.tensor(logits), gumbel, sampling, mask_id


@settings(deadline=None, max_examples=600)
@given(case=cases(), with_entropy=st.booleans())
def test_score_equals_its_slow_twin(case, with_entropy):
    logits, gumbel, sampling, mask_id = case
    scores = score(logits, gumbel, sampling, mask_id=mask_id, with_entropy=with_entropy)
    assert scores.tokens.dtype == torch.int64
    assert scores.confidence.dtype == torch.float32
    assert scores.entropy is not None or not with_entropy
    for row in range(len(logits)):
        token, confidence, entropy, _ = slow_score(logits[row].tolist(), gumbel[row].tolist(), sampling, mask_id)
        assert int(scores.tokens[row]) == token
        assert token not in {*sampling.suppress_tokens, mask_id}
        expected = confidence[sampling.confidence]
        assert float(scores.confidence[row]) == pytest.approx(expected, rel=2e-5, abs=2e-5)
        if scores.entropy is not None:
            assert float(scores.entropy[row]) == pytest.approx(entropy, rel=2e-5, abs=2e-5)


@settings(deadline=None, max_examples=300)
@given(case=cases())
def test_what_drafters_read_equals_the_slow_twin(case):
    logits, gumbel, sampling, mask_id = case
    log_probs = tempered_log_probs(logits, sampling, mask_id)
    for row in range(len(logits)):
        expected = slow_score(logits[row].tolist(), gumbel[row].tolist(), sampling, mask_id)[3]
        assert log_probs[row].tolist() == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("vocab_size", [4, 13, 64, 4096, 5003])
def test_the_lowest_id_wins_ties(vocab_size):
    generator = torch.Generator().manual_seed(vocab_size)
    for count in (2, 3, 40):
        logits = torch.randint(0, 3, (16, vocab_size), generator=generator).float()
        places = torch.randint(0, vocab_size, (16, count), generator=generator)
        logits.scatter_(-1, places, 5.0)
        tokens = score(logits, None, Sampling(), mask_id=None, with_entropy=False).tokens
        assert tokens.tolist() == places.amin(-1).tolist()
        # noise that cancels the logits leaves ties at T > 0 as well
        constant = torch.zeros(16, vocab_size)
        drawn = score(logits, constant, Sampling(1.0), mask_id=None, with_entropy=False).tokens
        assert drawn.tolist() == places.amin(-1).tolist()


def survivors(logits: list[float], **options) -> list[int]:
    log_probs = tempered_log_probs(torch.tensor([logits]), Sampling(**options), None)
    return (log_probs[0] > -INF).nonzero()[:, 0].tolist()


def test_top_k_keeps_the_ties_of_the_kth():
    assert survivors([1.0, 3.0, 2.0, 2.0, 0.0], top_k=2) == [1, 2, 3]
    assert survivors([1.0, 3.0, 2.0, 2.0, 0.0], top_k=1) == [1]
    assert survivors([1.0, 3.0, 2.0, 2.0, 0.0], top_k=5) == [0, 1, 2, 3, 4]


def test_top_p_keeps_the_crossing_token_and_the_lowest_ids():
    equal = [0.0] * 8  # every mass is a multiple of 1/8, exactly
    assert survivors(equal, top_p=0.5) == [0, 1, 2, 3]
    assert survivors(equal, top_p=0.51) == [0, 1, 2, 3, 4]
    assert survivors(equal, top_p=0.01) == [0]
    assert survivors([0.0, 9.0, 0.0, 9.0, 9.0, 9.0], top_p=0.6) == [1, 3, 4]
    logits = [math.log(p) for p in (0.1, 0.5, 0.3, 0.1)]
    assert survivors(logits, top_p=0.7) == [1, 2]
    assert survivors(logits, top_p=0.85) == [0, 1, 2]


def test_top_p_is_taken_of_what_top_k_leaves():
    logits = [math.log(p) for p in (0.4, 0.3, 0.2, 0.1)]
    assert survivors(logits, top_p=0.65) == [0, 1]
    assert survivors(logits, top_k=2, top_p=0.55) == [0]  # 4/7 of the rest already exceeds 0.55


def test_filters_act_on_the_tempered_distribution():
    logits = [math.log(p) for p in (0.5, 0.3, 0.2)]
    assert survivors(logits, top_p=0.6, temperature=1.0) == [0, 1]
    assert survivors(logits, top_p=0.6, temperature=0.25) == [0]
    assert survivors(logits, top_p=0.6) == [0, 1]  # T = 0 is read as T = 1


def test_suppression_comes_before_everything():
    logits = torch.tensor([[9.0, 1.0, 2.0, 8.0, 0.0]])
    for temperature in (0.0, 1e-3):
        sampling = Sampling(temperature, top_k=1, suppress_tokens=(3,))
        scores = score(logits, torch.zeros(1, 5), sampling, mask_id=0, with_entropy=True)
        assert scores.tokens.tolist() == [2]
    scores = score(logits, None, Sampling(suppress_tokens=(3,)), mask_id=0, with_entropy=True)
    weights = [math.exp(-1), 1.0, math.exp(-2)]
    assert float(scores.confidence) == pytest.approx(1 / sum(weights), rel=1e-6)


def test_confidence_names_differ_where_they_should():
    logits = torch.tensor([[math.log(p) for p in (0.5, 0.3, 0.2)]])
    noise = torch.tensor([[0.0, 5.0, 0.0]])  # draws token 1

    def confidence(name: str, **options) -> float:
        scores = score(logits, noise, Sampling(confidence=name, **options), mask_id=None, with_entropy=False)
        return float(scores.confidence)

    half = {"temperature": 0.5, "top_k": 2}
    squares = 0.25 + 0.09 + 0.04
    assert Sampling().confidence == "token_prob"
    assert confidence("token_prob", **half) == pytest.approx(0.09 / squares, rel=1e-5)
    assert confidence("filtered_token_prob", **half) == pytest.approx(0.09 / 0.34, rel=1e-5)
    assert confidence("raw_token_prob", **half) == pytest.approx(0.3, rel=1e-5)
    assert confidence("max_prob", **half) == pytest.approx(0.25 / squares, rel=1e-5)
    assert confidence("margin", **half) == pytest.approx(0.16 / squares, rel=1e-5)
    assert confidence("token_prob") == pytest.approx(0.5, rel=1e-5)
    assert confidence("filtered_token_prob", top_k=2) == pytest.approx(0.625, rel=1e-5)


@pytest.mark.parametrize("temperature", [0.0, 1e-30, 1e-6, 1.0, 1e30])
@pytest.mark.parametrize("confidence", CONFIDENCES)
def test_extreme_logits_and_temperatures_stay_finite(temperature, confidence):
    logits = torch.tensor([[3e38, -3e38, 0.0, -INF, -INF], [-3e38, -3e38, -INF, -INF, -3e38]])
    sampling = Sampling(temperature, top_p=0.9, confidence=confidence)
    scores = score(logits, GumbelNoise(1, 5).gumbel(0, 2, 0), sampling, mask_id=4, with_entropy=True)
    assert scores.entropy is not None
    assert scores.confidence.isfinite().all()
    assert scores.entropy.isfinite().all()
    assert (scores.entropy >= 0).all()
    assert all(logits[row, token] > -INF for row, token in enumerate(scores.tokens.tolist()))
    if temperature < 1:
        assert int(scores.tokens[0]) == 0


def test_a_certain_token_has_entropy_zero_and_confidence_one():
    logits = torch.tensor([[0.0, -INF, -INF], [500.0, 0.0, 0.0]])
    for confidence in CONFIDENCES:
        scores = score(logits, None, Sampling(confidence=confidence), mask_id=2, with_entropy=True)
        assert scores.confidence.tolist() == ([0.0, 0.0] if confidence == "entropy" else [1.0, 1.0])
        assert scores.entropy is not None
        assert scores.entropy.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("bad", [math.nan, INF])
@pytest.mark.parametrize("place", [0, 2])  # 2 is the mask id: bad there as well
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_bad_logits_are_an_error(bad, place, dtype):
    logits = torch.zeros(2, 4, dtype=dtype)
    logits[1, place] = bad
    for call in (
        lambda: score(logits, None, Sampling(), mask_id=2, with_entropy=False),
        lambda: tempered_log_probs(logits, Sampling(), 2),
    ):
        with pytest.raises(ValueError, match=rf"NaN or infinity \({dtype}\).*bfloat16 or float32"):
            call()


def test_no_token_left_is_an_error():
    logits = torch.tensor([[0.0, -INF, -INF]])
    with pytest.raises(ValueError, match="no token left"):
        score(logits, None, Sampling(), mask_id=0, with_entropy=False)
    with pytest.raises(ValueError, match="no token left"):
        score(torch.zeros(1, 2), None, Sampling(suppress_tokens=(0, 1)), mask_id=None, with_entropy=False)


def test_unknown_ids_and_missing_noise_are_errors():
    logits = torch.zeros(1, 4)
    with pytest.raises(ValueError, match=r"token id 4 .* vocabulary of 4"):
        score(logits, None, Sampling(suppress_tokens=(4,)), mask_id=None, with_entropy=False)
    with pytest.raises(ValueError, match="token id 9"):
        score(logits, None, Sampling(), mask_id=9, with_entropy=False)
    with pytest.raises(ValueError, match="Gumbel noise"):
        score(logits, None, Sampling(0.5), mask_id=None, with_entropy=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": INF}, "temperature"),
        ({"temperature": 1e-40}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.01}, "top_p"),
        ({"top_p": math.nan}, "top_p"),
        ({"confidence": "prob"}, "unknown confidence 'prob'; choose one of token_prob"),
        ({"suppress_tokens": (3, -1)}, "suppress_tokens"),
    ],
)
def test_bad_sampling_options(options, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**options)


def test_inputs_are_not_written_to_and_half_precision_is_read_as_fp32():
    logits = torch.randn(3, 64, generator=torch.Generator().manual_seed(1))
    noise = GumbelNoise(2, 64).gumbel(0, 3, 0)
    before, noise_before = logits.clone(), noise.clone()
    sampling = Sampling(0.7, top_k=9, top_p=0.8)
    score(logits, noise, sampling, mask_id=3, with_entropy=True)
    tempered_log_probs(logits, sampling, 3)
    assert torch.equal(logits, before)
    assert torch.equal(noise, noise_before)
    half = logits.bfloat16()
    first = score(half, noise, sampling, mask_id=3, with_entropy=True)
    second = score(half.float(), noise, sampling, mask_id=3, with_entropy=True)
    assert torch.equal(first.tokens, second.tokens)
    assert torch.equal(first.confidence, second.confidence)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(1.0),
        Sampling(0.6),
        Sampling(1.5, top_k=4),
        Sampling(0.8, top_p=0.7),
        Sampling(1.0, suppress_tokens=(1,)),
    ],
)
@pytest.mark.parametrize("mode", ["step", "position"])
def test_draws_follow_the_filtered_distribution(sampling, mode):
    """Chi-square, at most 6 degrees of freedom: above 27.9 with probability 1e-4 (the seed is fixed)."""
    logits, count, mask_id = torch.tensor([0.3, 1.2, -0.5, 2.0, 0.9, 0.0, 5.0]), 40_000, 6
    noise = GumbelNoise(77, 7, mode).gumbel(0, count, 3)
    tokens = score(logits.expand(count, 7), noise, sampling, mask_id=mask_id, with_entropy=False).tokens
    observed = torch.bincount(tokens, minlength=7).tolist()
    log_probs = slow_score(logits.tolist(), [0.1 * i for i in range(7)], sampling, mask_id)[3]
    statistic = 0.0
    for seen, log_prob in zip(observed, log_probs, strict=True):
        expected = count * math.exp(log_prob)
        if expected == 0:
            assert seen == 0
        else:
            statistic += (seen - expected) ** 2 / expected
    assert statistic < 27.9


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("vocab_size", [13, 5003, 50_000])
def test_a_row_is_bitwise_independent_of_its_company(threads, vocab_size):
    logits = torch.randn(5, vocab_size, generator=torch.Generator().manual_seed(0)) * 3
    noise = GumbelNoise(4, vocab_size).gumbel(0, 5, 0)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for sampling in (Sampling(), Sampling(0.8, top_p=0.9, confidence="margin")):
            together = score(logits, noise, sampling, mask_id=1, with_entropy=True)
            for rows in ([0], [4], [3, 1], [2, 3, 4]):
                alone = score(logits[rows], noise[rows], sampling, mask_id=1, with_entropy=True)
                assert torch.equal(alone.tokens, together.tokens[rows])
                assert torch.equal(alone.confidence, together.confidence[rows])
                assert alone.entropy is not None
                assert together.entropy is not None
                assert torch.equal(alone.entropy, together.entropy[rows])
    finally:
        torch.set_num_threads(before)


def test_leading_dimensions_are_kept():
    logits = torch.randn(2, 3, 9, generator=torch.Generator().manual_seed(0))
    noise = GumbelNoise(0, 9).gumbel(0, 6, 0)
    scores = score(logits, noise.view(2, 3, 9), Sampling(1.0), mask_id=8, with_entropy=True)
    flat = score(logits.view(6, 9), noise, Sampling(1.0), mask_id=8, with_entropy=True)
    assert scores.entropy is not None
    assert scores.tokens.shape == scores.confidence.shape == scores.entropy.shape == (2, 3)
    assert torch.equal(scores.tokens.view(6), flat.tokens)
