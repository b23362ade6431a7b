"""The noise field: bits, law, and independence of everything but its arguments.

Catches: a wrong Philox constant, round count or key schedule; counter words swapped or truncated; the token
group or word off by one at vocabularies that are no multiple of 4; a lost high word of the seed; infinities
at the extreme bits; the wrong sign or law; noise that depends on the block grid, call order or cache; a step
that leaks into `mode="position"` or is dropped from `mode="step"`; a cache that grows without bound.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dlmspec import noise as noise_module
from dlmspec.noise import GumbelNoise, gumbel_from_bits, philox4x32, philox_bits

WORD = 0xFFFFFFFF


def slow_philox(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    """Philox-4x32-10, one counter, written from the paper."""
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(second >> 32) ^ c[1] ^ k[0], second & WORD, (first >> 32) ^ c[3] ^ k[1], first & WORD]
        k = [(k[0] + 0x9E3779B9) & WORD, (k[1] + 0xBB67AE85) & WORD]
    return tuple(c)


def slow_bits(seed: int, position: int, step: int, token: int) -> int:
    return slow_philox((position, step, token // 4, 0), (seed % 2**32, seed // 2**32))[token % 4]


def slow_gumbel(bits: int) -> float:
    return -math.log(-math.log1p(-(bits + 0.5) / 2**32))


# Random123, kat_vectors, philox4x32 10
@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((WORD,) * 4, (WORD,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_published_answers(counter, key, expected):
    assert slow_philox(counter, key) == expected
    c0, c1, c2, c3 = (np.array([word], np.uint64) for word in counter)
    words = philox4x32((c0, c1, c2, c3), key)
    assert tuple(int(word[0]) for word in words) == expected


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**64 - 1),
    start=st.integers(0, 2**32 - 20),
    length=st.sampled_from([1, 3, 13, 16]),
    step=st.integers(0, 2**32 - 1),
    vocab_size=st.sampled_from([1, 4, 5, 6, 7, 37]),
)
def test_bits_equal_the_slow_twin(seed, start, length, step, vocab_size):
    bits = philox_bits(seed, np.arange(start, start + length), step, vocab_size)
    expected = [[slow_bits(seed, p, step, token) for token in range(vocab_size)] for p in range(start, start + length)]
    assert bits.tolist() == expected


@pytest.mark.parametrize("vocab_size", [4, 5003])
def test_noise_is_the_transform_of_the_bits(vocab_size):
    values = GumbelNoise(2**40 + 3, vocab_size).gumbel(1000, 3, 2)
    assert values.shape == (3, vocab_size)
    assert values.dtype == torch.float32
    for row in range(3):
        for token in {0, 1, 2, 3, vocab_size // 2, vocab_size - 1}:
            expected = slow_gumbel(slow_bits(2**40 + 3, 1000 + row, 2, token))
            assert float(values[row, token]) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_noise_is_finite_and_within_range_at_the_extreme_bits():
    bits = np.array([0, 1, 2**31, WORD - 1, WORD], np.uint32)
    values = gumbel_from_bits(bits)
    assert np.isfinite(values).all()
    assert (np.diff(values) < 0).all()  # the smallest bits give the largest noise
    assert values[0] == pytest.approx(22.8739, abs=1e-3)
    assert values[-1] == pytest.approx(-3.1300, abs=1e-3)
    assert values.min() >= -3.14
    assert values.max() <= 22.88


def test_noise_follows_the_gumbel_law():
    values = GumbelNoise(11, 5003).gumbel(0, 16, 0).double().flatten()
    count = len(values)
    for x in (-1.5, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0):
        p = math.exp(-math.exp(-x))
        assert abs(float((values <= x).double().mean()) - p) < 4 * math.sqrt(p * (1 - p) / count)


@settings(deadline=None, max_examples=40)
@given(
    start=st.integers(0, 5000),
    length=st.sampled_from([1, 3, 13, 16]),
    step=st.integers(0, 40),
    vocab_size=st.sampled_from([4, 9, 5003, 70001]),
    data=st.data(),
)
def test_a_position_is_independent_of_grid_order_and_chunks(start, length, step, vocab_size, data):
    row = data.draw(st.integers(0, length - 1))
    block = GumbelNoise(5, vocab_size).gumbel(start, length, step)
    other = GumbelNoise(5, vocab_size)
    other.gumbel(start + 1, 3, step + 1)  # other calls come first
    assert torch.equal(other.gumbel(start + row, 1, step)[0], block[row])


def test_neighbours_never_share_noise():
    rows = [
        GumbelNoise(seed, 64).gumbel(position, 1, step)[0]
        for seed in (0, 1, 2**32)  # 2**32: only the high word differs from 0
        for position in (0, 1, 16)
        for step in (0, 1, 2)
    ]
    assert len({tuple(row.tolist()) for row in rows}) == len(rows)
    assert all(len(set(row.tolist())) == 64 for row in rows)


def test_position_mode_drops_the_step_and_equals_step_zero():
    by_step, by_position = GumbelNoise(3, 9, "step"), GumbelNoise(3, 9, "position")
    first = by_position.gumbel(32, 13, 0)
    assert torch.equal(first, by_step.gumbel(32, 13, 0))
    assert torch.equal(first, by_position.gumbel(32, 13, 7))
    assert not torch.equal(first, by_step.gumbel(32, 13, 7))
    assert not torch.equal(first, by_position.gumbel(33, 13, 0))


def test_cache_returns_the_same_values_and_stays_small():
    noise = GumbelNoise(1, 16)
    first = noise.gumbel(0, 3, 0)
    copy = first.clone()
    assert noise.gumbel(0, 3, 0) is first
    for step in range(1, 100):
        noise.gumbel(0, 3, step)
        assert len(noise._cache) <= 32
    assert torch.equal(noise.gumbel(0, 3, 0), copy)


def test_cache_keeps_the_recently_used_and_respects_its_bytes(monkeypatch):
    monkeypatch.setattr(noise_module, "_CACHE_BYTES", 3 * 4 * 16 * 2)  # two blocks of three rows
    noise = GumbelNoise(1, 16)
    first = noise.gumbel(0, 3, 0)
    noise.gumbel(0, 3, 1)
    assert noise.gumbel(0, 3, 0) is first
    noise.gumbel(0, 3, 2)
    assert noise.gumbel(0, 3, 0) is first
    assert len(noise._cache) == 2
    big = noise.gumbel(0, 16, 0)  # larger than the bound alone: still served, and kept until the next
    assert noise.gumbel(0, 16, 0) is big


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 4), "seed"),
        ((2**64, 4), "seed"),
        ((0, 0), "vocab_size"),
        ((0, 4, "steps"), "unknown noise 'steps'"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        GumbelNoise(*arguments)


@pytest.mark.parametrize("where", [(-1, 3, 0), (2**32 - 2, 3, 0), (0, 3, -1), (0, 3, 2**32)])
def test_counters_beyond_32_bits(where):
    with pytest.raises(ValueError, match="32 bits"):
        GumbelNoise(0, 4).gumbel(*where)


def test_the_largest_arguments_work():
    assert GumbelNoise(2**64 - 1, 4).gumbel(2**32 - 3, 3, 2**32 - 1).isfinite().all()
