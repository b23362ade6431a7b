"""Training rows for a block-diffusion model: packed documents, their block grid, and complementary masks.

A row packs whole math problems and windows of code or prose. Every packed piece starts on a block boundary, counts
its positions from 0 and sees only itself, exactly as a prompt does in decoding.
"""

import random
from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from dlmspec.training.corpus import Document
from dlmspec.training.math_problems import prompt_text, sample_problem, sample_training_problem
from dlmspec.training.tokenizer import EOS_TOKEN

QUESTION_WEIGHT = 0.3  # names and numbers of a question cannot be guessed
SOLUTION_WEIGHT = 2.0
PADDING_WEIGHT = 0.1  # end tokens that only fill the last block
DOMAINS = ("math", "code", "prose")


@dataclass(frozen=True, slots=True)
class Batch:
    """`R` rows of `T` tokens. `segments` numbers the pieces of a row, `positions` count within a piece."""

    tokens: Tensor  # [R, T] int64
    positions: Tensor  # [R, T] int64
    segments: Tensor  # [R, T] int64
    weights: Tensor  # [R, T] float32
    domains: Tensor  # [R, T] int64, index into DOMAINS
    masked: Tensor  # [R, T] bool: masked in the first noised copy; the second masks the rest


class TokenStream:
    """Documents of one domain as one token array that can be entered at any line start."""

    def __init__(self, documents: list[Document], tokenizer: Tokenizer) -> None:
        eos = tokenizer.token_to_id(EOS_TOKEN)
        line_ends = [i for i in range(tokenizer.get_vocab_size()) if i == eos or "\n" in tokenizer.decode([i])]
        pieces = []
        for start in range(0, len(documents), 256):
            encodings = tokenizer.encode_batch([document.text for document in documents[start : start + 256]])
            pieces += [np.array([*encoding.ids, eos], dtype=np.uint16) for encoding in encodings]
        self.tokens = np.concatenate(pieces)
        after_newline = np.isin(self.tokens, np.array(line_ends)).nonzero()[0] + 1
        self.starts = np.concatenate([[0], after_newline[after_newline < len(self.tokens)]])

    def window(self, rng: random.Random, length: int) -> np.ndarray:
        """`length` consecutive tokens from a random line start."""
        last = len(self.tokens) - length
        start = min(int(self.starts[rng.randrange(len(self.starts))]), last)
        return self.tokens[start : start + length].astype(np.int64)


class RowPacker:
    """Endless supply of seeded training rows of `row_length` tokens."""

    def __init__(self, streams: dict[str, TokenStream], tokenizer: Tokenizer, *, row_length: int,
                 block_length: int, math_share: float, held_out: bool) -> None:  # fmt: skip
        self.streams = streams
        self.tokenizer = tokenizer
        self.row_length = row_length
        self.block_length = block_length
        self.math_share = math_share
        self.held_out = held_out
        self.eos = tokenizer.token_to_id(EOS_TOKEN)

    def batch(self, seed: int, num_rows: int) -> Batch:
        """The batch of this seed: the same on every machine with the same tokenizer and documents."""
        rng = random.Random(seed)
        rows = [self._row(rng) for _ in range(num_rows)]
        columns = {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0]}
        masked = sample_masks(num_rows, self.row_length, self.block_length, seed)
        return Batch(**columns, masked=masked)

    def _row(self, rng: random.Random) -> dict[str, np.ndarray]:
        shape = self.row_length
        row: dict[str, np.ndarray] = {
            name: np.zeros(shape, dtype=np.int64) for name in ("tokens", "positions", "segments", "domains")
        }
        row["weights"] = np.ones(shape, dtype=np.float32)
        filled = segment = 0
        is_math = rng.random() < self.math_share
        while filled < shape:
            room = shape - filled
            piece = self._math_piece(rng) if is_math else None
            if piece is None or len(piece[0]) > room:
                domain = rng.choice(("code", "prose"))
                tokens = self.streams[domain].window(rng, room)
                piece = tokens, np.ones(room, dtype=np.float32), DOMAINS.index(domain)
            end = filled + len(piece[0])
            row["tokens"][filled:end], row["weights"][filled:end], row["domains"][filled:end] = piece
            row["positions"][filled:end] = np.arange(len(piece[0]))
            row["segments"][filled:end] = segment
            filled, segment = end, segment + 1
        return row

    def _math_piece(self, rng: random.Random) -> tuple[np.ndarray, np.ndarray, int]:
        problem = sample_problem(rng, held_out=True) if self.held_out else sample_training_problem(rng)
        prompt = self.tokenizer.encode(prompt_text(problem)).ids
        solution = [*self.tokenizer.encode(" " + problem.solution).ids, self.eos]
        padding = -(len(prompt) + len(solution)) % self.block_length
        tokens = np.array(prompt + solution + [self.eos] * padding, dtype=np.int64)
        weights = [QUESTION_WEIGHT] * len(prompt) + [SOLUTION_WEIGHT] * len(solution) + [PADDING_WEIGHT] * padding
        return tokens, np.array(weights, dtype=np.float32), DOMAINS.index("math")


def sample_masks(num_rows: int, row_length: int, block_length: int, seed: int) -> Tensor:
    """Per block a uniform number of masked positions (0…B) at random places; bool `[R, T]`.

    Both a mask and its complement are trained on, so every token is predicted exactly once per batch.
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (num_rows, row_length // block_length, block_length)
    ranks = torch.rand(shape, generator=generator).argsort(-1).argsort(-1)
    counts = torch.randint(0, block_length + 1, (*shape[:2], 1), generator=generator)
    return (ranks < counts).view(num_rows, row_length)
