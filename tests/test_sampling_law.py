"""The law of whole sampled blocks: chi-square of counts over seeds against exactly enumerated probabilities.

Catches what looks right call by call but samples another law than the one defined: a filter, temperature, confidence,
schedule or rule that is slightly off; noise that is not independent over seeds, positions, steps and tokens; a
sampler keyed by position taken for one keyed by step. Neighbouring laws must be told apart, or a pass means nothing.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from dlmspec.noise import GumbelNoise, NoiseMode, gumbel_from_bits, philox_bits
from dlmspec.rules import (
    CommitRule,
    EntropyBounded,
    Factor,
    LowConfidenceDynamic,
    LowConfidenceStatic,
    PositionScores,
    Sequential,
)
from dlmspec.state import BlockState
from dlmspec.step import CONFIDENCES, Sampling, commit, denoise_step, score

Block = tuple[int, ...]
Law = dict[Block, float]

MASK = 1  # among the ordinary ids
NUM_DRAWS = 200_000  # for each case, a multiple of CHUNK
CHUNK = 20_000  # seeds decoded together
POSITION_START = 7
INF = math.inf
PLAIN = Sampling(1.0)


@dataclass(frozen=True)
class Case:
    """A sampler on a table of logits. `table`: "random"; "tied": two tokens of each row tie, and two positions;
    "halves": two tokens, of probability 1/2 each in half of the rows; "certain": one token in half of the rows."""

    rule: CommitRule
    sampling: Sampling = PLAIN
    start: Block = (MASK, MASK, MASK)
    table: str = "random"
    noise: NoiseMode = "step"
    seed: int = 0

    @property
    def vocab_size(self) -> int:
        return 3 if self.table == "halves" else 5


@cache
def logits_table(block_length: int, vocab_size: int, table: str, seed: int) -> Tensor:
    """The toy target: a row of logits for each position of every block state, `[V, …, V, B, V]`."""
    generator = torch.Generator().manual_seed(seed)
    logits = 1.2 * torch.randn(*[vocab_size] * block_length, block_length, vocab_size, generator=generator)
    if table == "tied":
        logits[..., 3] = logits[..., 0]
        logits[..., 1, :] = logits[..., 0, :]
    fixed_rows = {"halves": [0.0, 9.0, 0.0], "certain": [0.0, 9.0, -INF, -INF, -INF]}
    if table in fixed_rows:
        is_fixed = torch.rand(logits.shape[:-1], generator=generator) < 0.5
        logits[is_fixed] = torch.tensor(fixed_rows[table])
    return logits


def table_of(case: Case) -> Tensor:
    return logits_table(len(case.start), case.vocab_size, case.table, case.seed)


# The exact side, in fp64, from the definitions.


def exceeds(a: float, b: float) -> bool:
    """`a > b`, for numbers that fp32 orders in the same way: equal by construction or well apart."""
    assert a == b or abs(a - b) > 3e-6, "rounding would decide: take another seed for the table"
    return a > b


def softmax(values: list[float]) -> list[float]:
    weights = [math.exp(value - max(values)) for value in values]
    return [weight / math.fsum(weights) for weight in weights]


def exact_row(logits: list[float], sampling: Sampling) -> tuple[list[float], list[float], float]:
    """Of one position: the probability that a token is drawn, the confidence if it is, and the entropy."""
    removed = (MASK, *sampling.suppress_tokens)
    raw = [-INF if token in removed else value for token, value in enumerate(logits)]
    probs = softmax([value / sampling.temperature for value in raw])
    tokens = sorted((t for t in range(len(raw)) if probs[t] > 0), key=lambda t: (-probs[t], t))
    if sampling.top_k:
        tokens = [t for t in tokens if sum(exceeds(other, raw[t]) for other in raw) < sampling.top_k]
    rest, mass, draw = math.fsum(probs[t] for t in tokens), 0.0, [0.0] * len(raw)
    for token in tokens:
        if exceeds(sampling.top_p, mass):  # the mass before it: the token that crosses top_p is in
            draw[token] = probs[token]
            mass += probs[token] / rest
    draw = [p / math.fsum(draw) for p in draw]
    second, best = sorted(probs)[-2:]
    entropy = -math.fsum(p * math.log(p) for p in probs if p > 0)
    confidence = {
        "token_prob": probs,
        "filtered_token_prob": draw,
        "raw_token_prob": softmax(raw),
        "max_prob": [best] * len(raw),
        "margin": [best - second] * len(raw),
        "entropy": [-entropy] * len(raw),
    }
    return draw, confidence[sampling.confidence], entropy


def exact_choice(rule: CommitRule, confidence: dict[int, float], entropy: dict[int, float], step: int,
                 block_length: int) -> list[int]:  # fmt: skip
    """Which of the masked positions, the keys of both, the rule commits."""
    key = {i: -value for i, value in entropy.items()} if isinstance(rule, EntropyBounded) else confidence
    order = sorted(key, key=lambda i: (-key[i], i))
    assert all(exceeds(key[i], key[j]) or key[i] == key[j] for i, j in itertools.pairwise(order))
    if isinstance(rule, EntropyBounded):
        sums = itertools.accumulate(entropy[i] for i in order)
        return order[: max(1, sum(not exceeds(total, rule.gamma) for total in sums))]
    if isinstance(rule, Factor):
        fits = [n for n, i in enumerate(order, 1) if exceeds(rule.factor, (n + 1) * (1 - confidence[i]))]
        return order[: max([1, *fits])]
    assert isinstance(rule, Sequential | LowConfidenceStatic | LowConfidenceDynamic)
    total = rule.denoising_steps or block_length
    n = block_length // total + (step < block_length % total) if step < total else 1
    n = max(1, min(n, len(order)))
    if isinstance(rule, Sequential):
        return sorted(order)[:n]
    if isinstance(rule, LowConfidenceDynamic):
        above = [i for i in order if exceeds(confidence[i], rule.threshold)]
        if len(above) >= n:
            return above
    return order[:n]


def exact_successors(case: Case, block: Block, step: int) -> Iterator[tuple[Block, float]]:
    logits = table_of(case)[block].tolist()
    rows = {i: exact_row(logits[i], case.sampling) for i, token in enumerate(block) if token == MASK}
    entropy = {i: row[2] for i, row in rows.items()}
    for drawn in itertools.product(*([t for t, p in enumerate(row[0]) if p > 0] for row in rows.values())):
        tokens = dict(zip(rows, drawn, strict=True))
        confidence = {i: rows[i][1][token] for i, token in tokens.items()}
        chosen = exact_choice(case.rule, confidence, entropy, step, len(block))
        successor = tuple(tokens[i] if i in chosen else token for i, token in enumerate(block))
        yield successor, math.prod(rows[i][0][token] for i, token in tokens.items())


def exact_law(case: Case) -> Law:
    """The probability of every final block, over all draws and choices; each step draws anew."""
    final: Law = defaultdict(float)
    current: Law = {case.start: 1.0}
    for step in range(case.start.count(MASK)):
        later: Law = defaultdict(float)
        for block, mass in current.items():
            for successor, probability in exact_successors(case, block, step):
                (later if MASK in successor else final)[successor] += mass * probability
        current = later
    assert not current
    assert math.fsum(final.values()) == pytest.approx(1, abs=1e-12)
    return final


# The sampled side: the package's noise and step, one decode of the block for each seed.


def gumbel_rows(case: Case, seeds: NDArray[np.uint64], places: NDArray[np.int64], step: int) -> Tensor:
    """The noise `[M, V]` of M pairs of a seed and a place in the block: keys broadcast as counters do."""
    step = step if case.noise == "step" else 0
    return torch.from_numpy(
        gumbel_from_bits(philox_bits(cast(Any, seeds[:, None]), places + POSITION_START, step, case.vocab_size))
    )


def inputs_of(case: Case, tokens: Tensor, seeds: NDArray[np.uint64], step: int) -> tuple[Tensor, Tensor]:
    """Logits and noise `[M, V]` of the masked positions of N states `[N, B]`."""
    nodes, places = (tokens == MASK).numpy().nonzero()
    logits = table_of(case)[tuple(tokens.unbind(-1))][nodes, places]
    return logits, gumbel_rows(case, seeds[nodes], places, step)


def successors(case: Case, tokens: Tensor, seeds: NDArray[np.uint64], step: int) -> Tensor:
    """`F` of N states with masks, `[N, B]`. Each is scored; of those that score the same, one is committed."""
    masked = tokens == MASK
    logits, gumbel = inputs_of(case, tokens, seeds, step)
    found = score(logits, gumbel, case.sampling, mask_id=MASK, with_entropy=case.rule.needs_entropy)
    values = [
        torch.zeros(masked.shape, dtype=rows.dtype).masked_scatter_(masked, rows)
        for rows in (found.tokens, found.confidence, found.entropy)
        if rows is not None
    ]
    digits = torch.cat([tokens, values[0]], -1)
    codes = (digits * case.vocab_size ** torch.arange(digits.shape[-1])).sum(-1).numpy()
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    assert all(torch.equal(value, value[first][inverse]) for value in values)  # of state and token alone
    states = [BlockState(tuple(row), step) for row in tokens[first].tolist()]
    scores = PositionScores(*(value[first] for value in values))
    return torch.tensor([state.tokens for state in commit(scores, states, case.rule, MASK)])[inverse]


def sampled_counts(case: Case, seed_start: int) -> Tensor:
    """How often each block came out of the seeds from `seed_start` on, `[V, …, V]`."""
    counts = torch.zeros([case.vocab_size] * len(case.start), dtype=torch.long)
    for first in range(0, NUM_DRAWS, CHUNK):
        seeds = np.arange(first, first + CHUNK, dtype=np.uint64) + np.uint64(seed_start)
        tokens = torch.tensor([case.start]).repeat(CHUNK, 1)
        for step in range(case.start.count(MASK)):
            tokens = successors(case, tokens, seeds, step)
            is_open = (tokens == MASK).any(-1)
            counts.index_put_(tokens[~is_open].unbind(-1), torch.tensor(1), accumulate=True)
            tokens, seeds = tokens[is_open], seeds[is_open.numpy()]
            if not len(tokens):
                break
        assert not len(tokens), "a step commits at least one token"
    return counts


# The comparison.


def chi_square_p(law: Law, counts: Tensor) -> float:
    """The p-value of counts `[V, …, V]`; 0 if they hold an impossible block. Bins that expect < 5 are pooled."""
    num_draws = int(counts.sum())
    bins = sorted((num_draws * probability, int(counts[block])) for block, probability in law.items())
    if sum(seen for _, seen in bins) < num_draws:
        return 0.0
    while bins[0][0] < 5:
        bins = sorted([(bins[0][0] + bins[1][0], bins[0][1] + bins[1][1]), *bins[2:]])
    assert len(bins) > 1, "a law of one outcome tests nothing"
    statistic = math.fsum((seen - expected) ** 2 / expected for expected, seen in bins)
    a, x = torch.tensor([len(bins) - 1, statistic], dtype=torch.float64) / 2
    return float(torch.special.gammaincc(a, x))


def uniform_p(values: list[float]) -> float:
    """Kolmogorov-Smirnov against the uniform law, asymptotic with Stephens's correction."""
    n = len(values)
    distance = max(max((i + 1) / n - value, value - i / n) for i, value in enumerate(sorted(values)))
    scaled = distance * (n**0.5 + 0.12 + 0.11 / n**0.5)
    return min(1.0, 2 * sum((-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 101)))


TEMPERATURES = (0.5, 1.0, 1.7)
FILTERS: tuple[dict[str, Any], ...] = ({}, {"top_k": 2}, {"top_p": 0.85}, {"top_k": 3, "top_p": 0.9})


def rules_by(confidence: str) -> list[CommitRule]:
    """Rules with bounds that this confidence is on either side of."""
    threshold, factor = {"margin": (0.25, 2.3), "entropy": (-1.05, 5.8)}.get(confidence, (0.45, 1.6))
    return [
        LowConfidenceStatic(),
        LowConfidenceStatic(2),
        LowConfidenceDynamic(threshold),
        LowConfidenceDynamic(threshold, 2),
        Factor(factor),
    ]


def build_cases() -> list[Case]:
    by_confidence = [(rule, name) for name in CONFIDENCES for rule in rules_by(name)]
    other_rules = [Sequential(), Sequential(2), Sequential(1), *map(EntropyBounded, (0.0, 0.9, 1.2, 1.8, 2.4))]
    other_rules += [LowConfidenceStatic(1), LowConfidenceStatic(5), LowConfidenceDynamic(0.5, 5)]
    cases = []
    for i, (rule, name) in enumerate(by_confidence + [(rule, "token_prob") for rule in other_rules]):
        start = {3: (2, MASK, MASK), 8: (MASK, 0, MASK), 9: (MASK, MASK)}.get(i % 10, (MASK, MASK, MASK))
        cases.append(Case(rule, Sampling(TEMPERATURES[i % 3], confidence=name, **FILTERS[i % 4]), start))
    for rule in (LowConfidenceStatic(), LowConfidenceDynamic(0.3), Factor(1.7), EntropyBounded(2.0)):
        cases.append(Case(rule, Sampling(0.8, top_k=2), table="tied"))
        cases.append(Case(rule, Sampling(1.2, top_p=0.8, confidence="filtered_token_prob"), table="tied"))
    for rule in (LowConfidenceDynamic(0.5), LowConfidenceDynamic(0.5, 2), Factor(1.5)):
        cases.append(Case(rule, Sampling(0.7), table="halves"))
    cases.append(Case(LowConfidenceStatic(), Sampling(1.0, suppress_tokens=(3,))))
    blind = (Sequential(), EntropyBounded(1.5), LowConfidenceStatic(), LowConfidenceDynamic(0.3, 2), Factor(2.2))
    for rule, name in zip(blind, ("token_prob", "token_prob", "max_prob", "margin", "margin"), strict=True):
        cases.append(Case(rule, Sampling(0.9, top_p=0.95, confidence=name), noise="position"))
    return [replace(case, seed=i) for i, case in enumerate(cases)]


BASE = Case(LowConfidenceDynamic(0.35), Sampling(0.7, top_k=3, top_p=0.9), seed=114)
HALVES = Case(LowConfidenceDynamic(0.5), table="halves", seed=101)
HALF_FACTOR = Case(Factor(1.5), table="halves", seed=102)
TIED = Case(LowConfidenceStatic(), Sampling(1.0, top_k=2), table="tied", seed=103)
CERTAIN = Case(EntropyBounded(0.0), table="certain", seed=121)
POSITION = Case(LowConfidenceStatic(), noise="position", seed=105)
CASES = [*build_cases(), BASE, HALVES, HALF_FACTOR, TIED, CERTAIN, replace(POSITION, noise="step")]


def label(case: Case) -> str:
    return f"{case.seed}-{case.rule.name}-{case.sampling.confidence}"


@cache
def counts_of(case: Case) -> Tensor:
    return sampled_counts(case, case.seed << 31)  # no two cases share a seed; both words of the key vary


@cache
def p_value(case: Case) -> float:
    return chi_square_p(exact_law(case), counts_of(case))


@pytest.mark.parametrize("case", CASES, ids=label)
def test_final_blocks_have_the_exact_law(case: Case):
    p = p_value(case)
    assert p > 1e-4


def test_p_values_are_uniform():
    values = [p_value(case) for case in CASES]
    p = uniform_p(values)
    print(f"\n{len(values)} p-values from {min(values):.2g} to {max(values):.4f}; uniform: p = {p:.3f}")  # noqa: T201
    assert p > 1e-3


def test_position_noise_is_another_sampler_where_the_rule_looks_at_the_token():
    assert p_value(POSITION) < 1e-12


NEIGHBOURS = [
    *(replace(BASE, sampling=replace(BASE.sampling, confidence=name)) for name in CONFIDENCES if name != "token_prob"),
    *(replace(BASE, sampling=replace(BASE.sampling, temperature=temperature)) for temperature in (0.68, 0.72)),
    *(replace(BASE, sampling=replace(BASE.sampling, top_k=top_k)) for top_k in (2, 4)),
    *(replace(BASE, sampling=replace(BASE.sampling, top_p=top_p)) for top_p in (0.8, 1.0)),
    *(replace(BASE, rule=LowConfidenceDynamic(0.35, steps)) for steps in (1, 2)),
    *(replace(BASE, rule=rule) for rule in (LowConfidenceDynamic(0.4), LowConfidenceStatic(), Sequential(), Factor())),
    replace(HALVES, rule=LowConfidenceDynamic(0.4999)),  # a bound that is hit, taken the wrong way; two more follow
    replace(HALF_FACTOR, rule=Factor(1.5001)),
    replace(CERTAIN, rule=LowConfidenceStatic(), sampling=Sampling(1.0, confidence="entropy")),
    *(replace(TIED, sampling=Sampling(1.0, top_k=top_k)) for top_k in (1, 3)),
]


@pytest.mark.parametrize("neighbour", NEIGHBOURS, ids=label)
def test_neighbouring_laws_are_told_apart(neighbour: Case):
    case = next(case for case in CASES if case.seed == neighbour.seed)
    p = chi_square_p(exact_law(neighbour), counts_of(case))
    assert p < 1e-12


def test_denoise_step_is_what_was_sampled():
    """The successors above, which take a shortcut through `score` and `commit`, against `denoise_step`."""
    for case in CASES:
        tokens, seeds = torch.tensor([case.start]).repeat(300, 1), np.arange(300, dtype=np.uint64)
        for step in range(case.start.count(MASK)):
            states = [BlockState(tuple(row), step) for row in tokens.tolist()]
            found = denoise_step(states, *inputs_of(case, tokens, seeds, step), case.sampling, case.rule, MASK)
            tokens = successors(case, tokens, seeds, step)
            assert found == [BlockState(tuple(row), step + 1) for row in tokens.tolist()]
            is_open = (tokens == MASK).any(-1)
            tokens, seeds = tokens[is_open], seeds[is_open.numpy()]
            if not len(tokens):
                break


@pytest.mark.parametrize("case", [BASE, POSITION, HALVES], ids=label)
def test_rows_of_many_seeds_are_the_noise_of_each(case: Case):
    seeds, length = [0, 3, 2**32 + 3, 2**64 - 1], len(case.start)
    places = np.tile(np.arange(length), len(seeds))
    for step in (0, 2):
        rows = gumbel_rows(case, np.repeat(np.array(seeds, np.uint64), length), places, step)
        each = [GumbelNoise(seed, case.vocab_size, case.noise).gumbel(POSITION_START, length, step) for seed in seeds]
        assert torch.equal(rows, torch.cat(each))


def test_the_tests_of_fit_give_known_p_values():
    law = {(0,): 0.5, (2,): 0.4999, (3,): 0.0001}  # the last two are one bin
    assert chi_square_p(law, torch.tensor([5098, 0, 4900, 2])) == pytest.approx(0.05, abs=1e-4)
    assert chi_square_p(law, torch.tensor([5000, 1, 4999, 0])) == 0.0
    values = [(i + 0.5) / 50 for i in range(50)]
    assert uniform_p(values) == pytest.approx(1)
    assert uniform_p([value**2 for value in values]) < 0.01
    assert uniform_p([value - 0.182 for value in values]) == pytest.approx(0.05, abs=0.01)
