"""Shared counter-based Gumbel noise: a pure function of (seed, absolute position, step in the block, token).

Reference and speculation read the same numbers, so that a drafted state can be compared with the target's own
state at any temperature. Knows nothing of models, states or rules.

Generator: Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC
2011).
"""

from collections import OrderedDict
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Words = NDArray[np.uint64]
NoiseMode = Literal["step", "position"]

NOISE_MODES = ("step", "position")
STREAM_TOKENS = 0

_ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW_WORD = np.uint64(0xFFFFFFFF)
_WORD = np.uint64(32)

_CACHE_ENTRIES = 32
_CACHE_BYTES = 256 << 20  # a block of 32 at V = 152 K takes 19 MB
_CHUNK_ELEMENTS = 1 << 16  # keeps the temporaries of one chunk in the L2 cache


def philox4x32(counter: tuple[Words, Words, Words, Words], key: tuple[int, int]) -> tuple[Words, Words, Words, Words]:
    """Philox-4x32-10 of four counter words under a two-word key.

    Counter words are uint64 arrays that broadcast, with values below 2**32; so are the four output words.
    """
    x0, x1, x2, x3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        # Products fit 64 bits exactly. x1 and x3 are only XORed, so their high words may stay until the end;
        # and while a word does not depend on every counter yet it keeps its small broadcast shape.
        p0, p1 = x0 * _MULTIPLIERS[0], x2 * _MULTIPLIERS[1]
        x0 = ((p1 >> _WORD) ^ x1 ^ np.uint64(k0)) & _LOW_WORD
        x2 = ((p0 >> _WORD) ^ x3 ^ np.uint64(k1)) & _LOW_WORD
        x1, x3 = p1, p0
        k0, k1 = (k0 + _KEY_STEPS[0]) & 0xFFFFFFFF, (k1 + _KEY_STEPS[1]) & 0xFFFFFFFF
    return x0, x1 & _LOW_WORD, x2, x3 & _LOW_WORD


def philox_bits(seed: int, positions: NDArray[np.int64], step: int, vocab_size: int) -> NDArray[np.uint32]:
    """The 32 random bits of every token at `positions` `[P]` (absolute) and `step`: uint32 `[P, V]`.

    Key = low and high word of the 64-bit seed; counter = (position, step, token // 4, stream 0); word token %
    4. These bits are the same in every implementation.
    """
    groups = -(-vocab_size // 4)
    counter = (
        positions.astype(np.uint64)[:, None],
        np.full((1, 1), step, np.uint64),
        np.arange(groups, dtype=np.uint64)[None, :],
        np.full((1, 1), STREAM_TOKENS, np.uint64),
    )
    words = philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32))
    bits = np.empty((len(positions), groups, 4), np.uint32)
    for index, word in enumerate(words):
        bits[:, :, index] = word
    return bits.reshape(len(positions), 4 * groups)[:, :vocab_size]


def gumbel_from_bits(bits: NDArray[np.uint32]) -> NDArray[np.float32]:
    """Standard Gumbel variates, fp32, of the shape of `bits`; finite for all bits, within [-3.14, 22.88].

    w = (bits + 1/2) 2**-32, g = -log(-log1p(-w)), in fp64: in fp32 the largest bits round w to 1 and g to
    -inf.
    """
    noise = bits.astype(np.float64)
    noise += 0.5
    noise *= -(2.0**-32)
    np.log1p(noise, out=noise)
    np.negative(noise, out=noise)
    np.log(noise, out=noise)
    np.negative(noise, out=noise)
    return noise.astype(np.float32)


class GumbelNoise:
    """The noise of one request: depends on its arguments only, never on batch, order or other requests.

    `mode="step"` draws anew at every denoising step of a block (the law of the families' own samplers);
    `mode="position"` keeps one draw per position. Recent blocks are kept: at most 32 of them and 256 MiB.
    """

    def __init__(self, seed: int, vocab_size: int, mode: NoiseMode = "step") -> None:
        if not 0 <= seed < 2**64:
            raise ValueError(f"seed must lie in [0, 2**64), got {seed}")
        if vocab_size < 1:
            raise ValueError(f"vocab_size must be at least 1, got {vocab_size}")
        if mode not in NOISE_MODES:
            raise ValueError(f"unknown noise {mode!r}; choose {' or '.join(NOISE_MODES)}")
        self.seed, self.vocab_size, self.mode = seed, vocab_size, mode
        self._cache: OrderedDict[tuple[int, int, int], Tensor] = OrderedDict()

    def gumbel(self, position_start: int, block_length: int, step: int) -> Tensor:
        """Noise `[B, V]`, fp32, CPU, of the block that starts at absolute position `position_start`.

        The tensor is shared by all callers with the same arguments: do not write to it.
        """
        step = step if self.mode == "step" else 0
        key = (position_start, block_length, step)
        found = self._cache.get(key)
        if found is None:
            found = self._cache[key] = self._compute(*key)
            self._shrink()
        self._cache.move_to_end(key)
        return found

    def _compute(self, position_start: int, block_length: int, step: int) -> Tensor:
        if position_start < 0 or position_start + block_length > 2**32 or not 0 <= step < 2**32:
            raise ValueError(
                f"noise counters are 32 bits wide: got position {position_start}, "
                f"block length {block_length}, step {step}; positions and steps must lie in [0, 2**32)"
            )
        noise = np.empty((block_length, self.vocab_size), np.float32)
        positions = np.arange(position_start, position_start + block_length, dtype=np.int64)
        rows = max(1, _CHUNK_ELEMENTS // self.vocab_size)
        for start in range(0, block_length, rows):
            bits = philox_bits(self.seed, positions[start : start + rows], step, self.vocab_size)
            noise[start : start + rows] = gumbel_from_bits(bits)
        return torch.from_numpy(noise)

    def _shrink(self) -> None:
        size = sum(tensor.nbytes for tensor in self._cache.values())
        while len(self._cache) > 1 and (len(self._cache) > _CACHE_ENTRIES or size > _CACHE_BYTES):
            size -= self._cache.popitem(last=False)[1].nbytes
