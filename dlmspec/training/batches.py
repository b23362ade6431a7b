"""Training rows for a block-diffusion model: packed documents, their block grid, and complementary masks.

A row packs whole math problems and windows of code or prose. Every packed piece starts on a block boundary, counts
its positions from 0 and sees only itself, exactly as a prompt does in decoding.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from dlmspec.bench.prompt_sets import DOMAINS
from dlmspec.models.spec import ModelSpec
from dlmspec.training.corpus import Document
from dlmspec.training.dialogues import Dialogue
from dlmspec.training.drills import result_spans, sample_equation
from dlmspec.training.math_problems import prompt_text, sample_problem, sample_training_problem

QUESTION_WEIGHT = 0.3  # names and numbers of a question cannot be guessed
SOLUTION_WEIGHT = 2.0
RESULT_WEIGHT = 6.0  # the digits after "=": calculated, not copied
PADDING_WEIGHT = 0.1  # end tokens that only fill the last block, and the numbers that a drill draws at random
HIDDEN_RESULTS = 0.75  # share of blocks whose first noised copy masks all results and their later mentions
CHAINS = 0.4  # of the training problems
TRAINED_DOMAINS = (*DOMAINS, "arithmetic", "chat")  # arithmetic: drills, counted by their results alone


@dataclass(frozen=True, slots=True)
class Batch:
    """`R` rows of `T` tokens. `segments` numbers the pieces of a row, `positions` count within a piece."""

    tokens: Tensor  # [R, T] int64
    positions: Tensor  # [R, T] int64
    segments: Tensor  # [R, T] int64
    weights: Tensor  # [R, T] float32
    domains: Tensor  # [R, T] int64, index into TRAINED_DOMAINS
    masked: Tensor  # [R, T] bool: masked in the first noised copy; the second masks the rest


class Piece(NamedTuple):
    """One problem, drill or window of text: `[n]` each."""

    tokens: np.ndarray
    weights: np.ndarray
    results: np.ndarray  # bool: a result or a later mention of one
    domain: int


class TokenStream:
    """Documents of one domain as one token array that can be entered at any line start."""

    def __init__(self, documents: list[Document], tokenizer: Tokenizer, eos: int) -> None:
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
    """Endless supply of seeded training rows of `row_length` tokens, for the block grid and ids of `spec`."""

    def __init__(self, streams: dict[str, TokenStream], dialogues: Sequence[Dialogue], tokenizer: Tokenizer,
                 spec: ModelSpec, *, row_length: int, shares: dict[str, float], held_out: bool) -> None:  # fmt: skip
        self.streams = streams
        self.dialogues = dialogues
        self.tokenizer = tokenizer
        self.spec = spec
        self.row_length = row_length
        self.shares = shares
        self.held_out = held_out
        self.block_length, self.eos = spec.block_length, spec.stop_ids[0]

    def batch(self, seed: int, num_rows: int) -> Batch:
        """The batch of this seed: the same on every machine with the same tokenizer and documents."""
        rng = random.Random(seed)
        rows = [self._row(rng) for _ in range(num_rows)]
        columns = {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0]}
        masked = sample_masks(columns.pop("results"), self.block_length, seed)
        return Batch(**columns, masked=masked)

    def _row(self, rng: random.Random) -> dict[str, np.ndarray]:
        columns = ("tokens", "positions", "segments", "domains")
        row: dict[str, np.ndarray] = {name: np.zeros(self.row_length, dtype=np.int64) for name in columns}
        row["weights"] = np.ones(self.row_length, dtype=np.float32)
        row["results"] = np.zeros(self.row_length, dtype=bool)
        filled = segment = 0
        domain = rng.choices(list(self.shares), list(self.shares.values()))[0]
        while filled < self.row_length:
            piece = self._piece(rng, domain, self.row_length - filled)
            end = filled + len(piece.tokens)
            row["tokens"][filled:end], row["weights"][filled:end], row["results"][filled:end] = piece[:3]
            row["domains"][filled:end] = piece.domain
            row["positions"][filled:end] = np.arange(len(piece.tokens))
            row["segments"][filled:end] = segment
            if self.spec.logit_shift:
                row["weights"][filled] = 0.0  # no row before it predicts the first token
            filled, segment = end, segment + 1
        return row

    def _piece(self, rng: random.Random, domain: str, room: int) -> Piece:
        """The next piece of a row, at most `room` tokens; a drill fills what is too short for a problem."""
        if domain == "math":
            piece = self._math_piece(rng)
            return piece if len(piece.tokens) <= room else self._drill_piece(rng, room)
        if domain == "chat":
            piece = self._chat_piece(rng)
            return piece if len(piece.tokens) <= room else self._drill_piece(rng, room)
        if domain == "arithmetic":
            return self._drill_piece(rng, min(room, self.block_length * rng.randint(2, 10)))
        tokens = self.streams[domain].window(rng, room)
        return Piece(tokens, np.ones(room), np.zeros(room, dtype=bool), DOMAINS.index(domain))

    def _math_piece(self, rng: random.Random) -> Piece:
        problem = (
            sample_problem(rng, held_out=True) if self.held_out else sample_training_problem(rng, chain_share=CHAINS)
        )
        prompt = self.tokenizer.encode(prompt_text(problem)).ids
        solution, is_result, is_mention = self._marked(" " + problem.solution)
        weights = np.where(is_result, RESULT_WEIGHT, SOLUTION_WEIGHT)
        fill = -(len(prompt) + len(solution) + 1) % self.block_length
        return Piece(
            np.concatenate([prompt, solution, [self.eos] * (1 + fill)]).astype(np.int64),
            np.concatenate([[QUESTION_WEIGHT] * len(prompt), weights, [SOLUTION_WEIGHT], [PADDING_WEIGHT] * fill]),
            np.concatenate([[False] * len(prompt), is_result | is_mention, [False] * (1 + fill)]),
            DOMAINS.index("math"),
        )

    def _chat_piece(self, rng: random.Random) -> Piece:
        dialogue = self.dialogues[rng.randrange(len(self.dialogues))]
        prompt, answer = (self.tokenizer.encode(text).ids for text in (dialogue.prompt, dialogue.answer))
        ends = 1 if dialogue.is_whole else 0
        fill = -(len(prompt) + len(answer) + ends) % self.block_length
        tokens = np.array([*prompt, *answer, *[self.eos] * (ends + fill)], dtype=np.int64)
        weights = np.array([PADDING_WEIGHT] * len(prompt) + [1.0] * (len(answer) + ends) + [PADDING_WEIGHT] * fill)
        if not dialogue.is_whole:  # it goes on behind its last whole block: no end token follows
            whole = len(tokens) - (self.block_length if fill else 0)
            tokens, weights = tokens[:whole], weights[:whole]
        return Piece(tokens, weights, np.zeros(len(tokens), dtype=bool), TRAINED_DOMAINS.index("chat"))

    def _drill_piece(self, rng: random.Random, length: int) -> Piece:
        equations = [sample_equation(rng) for _ in range(1 + length // 8)]  # each has more than eight tokens
        tokens, is_result, _ = self._marked(" " + ". ".join(equations))
        assert len(tokens) >= length
        weights = np.where(is_result, RESULT_WEIGHT, PADDING_WEIGHT)
        number = TRAINED_DOMAINS.index("arithmetic")
        return Piece(tokens[:length], weights[:length], is_result[:length], number)

    def _marked(self, text: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tokens of a text, which of them are results of equations, and which mention one again."""
        encoding = self.tokenizer.encode(text)
        marks = []
        for spans in result_spans(text):
            inside = np.zeros(len(text) + 1, dtype=bool)
            for start, end in spans:
                inside[start:end] = True
            marks.append(np.array([inside[start] for start, _ in encoding.offsets]))
        return np.array(encoding.ids, dtype=np.int64), *marks


def sample_masks(results: Tensor, block_length: int, seed: int) -> Tensor:
    """Masked positions of the first noised copy; the second masks the rest, so each token is predicted once.

    Per block a uniform number (0…B) at random places. In most blocks with results (bool `[R, T]`) the first copy masks
    all of these and few others: a result that is visible further on would be copied instead of calculated.
    """
    generator = torch.Generator().manual_seed(seed)
    results = results.unflatten(1, (-1, block_length))
    ranks = torch.rand(results.shape, generator=generator).argsort(-1).argsort(-1)
    counts = torch.randint(0, block_length + 1, (*results.shape[:2], 1), generator=generator)
    coins = torch.rand((*results.shape[:2], 1), generator=generator)
    hidden = results.any(-1, keepdim=True) & (coins < HIDDEN_RESULTS)
    few = (counts - block_length // 2).clamp_min(0) // 2  # none in half of the blocks
    return ((ranks < torch.where(hidden, few, counts)) | (hidden & results)).flatten(1)
