"""The denoising step F: logits at a block state -> its successor. Written once; every loop calls it.

Two pure halves, batched over nodes: `score` turns logits into tokens and confidences, `commit` lets the rule
choose and writes the new states. A row's result never depends on the other rows of the call.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dlmspec.rules import CommitRule, PositionScores
from dlmspec.state import BlockState

__all__ = [
    "CONFIDENCES",
    "PositionScores",
    "Sampling",
    "commit",
    "denoise_step",
    "score",
    "tempered_log_probs",
]

CONFIDENCE_DTYPES = ("float32", "bfloat16", "float16")
CONFIDENCES = ("token_prob", "filtered_token_prob", "raw_token_prob", "max_prob", "margin", "entropy")

# Beyond these bounds 1 / T or T leaves the range of fp32.
_TEMPERATURE_MIN, _TEMPERATURE_MAX = 1e-30, 1e30
# exp of it is 0 in fp32: stands in for log 0, so that 0 * log 0 is 0 and not NaN.
_LOG_ZERO = -200.0


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is drawn and how sure the step is of it.

    `temperature` 0 takes the likeliest token. `top_k` 0 and `top_p` 1 keep every token. `confidence` is a
    probability of the drawn token: `token_prob` (unfiltered, tempered), `filtered_token_prob` (SDAR),
    `raw_token_prob` (untempered: LLaDA, Fast-dLLM); or, of the unfiltered tempered distribution, `max_prob`,
    `margin` or `entropy` (negative). No token is drawn that is the mask id or one of `suppress_tokens`, and no
    distribution holds them; `mask_in_softmax` leaves the mask's share in what confidence and entropy are read of.
    `confidence_dtype` rounds the confidence, as decoders do that never leave their model's dtype.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    confidence: str = "token_prob"
    suppress_tokens: tuple[int, ...] = ()
    confidence_dtype: str = "float32"
    mask_in_softmax: bool = False

    def __post_init__(self) -> None:
        if self.temperature != 0 and not _TEMPERATURE_MIN <= self.temperature <= _TEMPERATURE_MAX:
            raise ValueError(
                f"temperature must be 0 (greedy) or lie in [{_TEMPERATURE_MIN:g}, {_TEMPERATURE_MAX:g}], "
                f"got {self.temperature}"
            )
        if self.top_k < 0:
            raise ValueError(f"top_k must be at least 1, or 0 to keep every token, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1], 1 keeps every token, got {self.top_p}")
        if self.confidence not in CONFIDENCES:
            raise ValueError(f"unknown confidence {self.confidence!r}; choose one of {', '.join(CONFIDENCES)}")
        if self.confidence_dtype not in CONFIDENCE_DTYPES:
            known = ", ".join(CONFIDENCE_DTYPES)
            raise ValueError(f"unknown confidence_dtype {self.confidence_dtype!r}; choose one of {known}")
        if any(token < 0 for token in self.suppress_tokens):
            raise ValueError(f"suppress_tokens must be token ids of at least 0, got {min(self.suppress_tokens)}")

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0


@dataclass(frozen=True, slots=True)
class _Distribution:
    """Of M rows, `[M, V]`: `raw` and `tempered` logits, suppressed ids at -inf; `probs` = softmax(tempered).

    `filtered`: log-probabilities after top-k and top-p, or None where neither draw nor confidence reads them.
    """

    raw: Tensor
    tempered: Tensor
    probs: Tensor
    filtered: Tensor | None


def score(logits: Tensor, gumbel: Tensor | None, sampling: Sampling, *, mask_id: int | None,
          with_entropy: bool) -> PositionScores:  # fmt: skip
    """Token, confidence and (if asked) entropy of each row of `logits` `[..., V]`, on their device, in fp32.

    `gumbel` `[..., V]` is the noise of the same rows, unused at T = 0. The mask id and `suppress_tokens` are
    removed before anything else, from the softmax too; ties go to the lowest id.
    ValueError: NaN or +inf logits, no token left, noise missing.
    """
    shape = logits.shape[:-1]
    raw = _suppressed(logits, sampling, mask_id)
    tempered = _tempered(raw, sampling)
    is_filter_read = not sampling.is_greedy or sampling.confidence == "filtered_token_prob"
    filtered = _filtered_log_probs(tempered, sampling) if is_filter_read else None
    tokens = _argmax(raw) if sampling.is_greedy or filtered is None else _draw(filtered, gumbel, sampling)
    if sampling.mask_in_softmax:  # from here on the mask has its share
        raw = _suppressed(logits, sampling, None)
        tempered = _tempered(raw, sampling)
        filtered = None if filtered is None else _filtered_log_probs(tempered, sampling)
    distribution = _Distribution(raw, tempered, torch.softmax(tempered, -1), filtered)
    entropy = _entropy(distribution) if with_entropy or sampling.confidence == "entropy" else None
    if entropy is not None and sampling.confidence == "entropy":
        confidence = 0.0 - entropy
    else:
        confidence = _confidence(distribution, tokens, sampling)
    if sampling.confidence_dtype != "float32":
        confidence = confidence.to(getattr(torch, sampling.confidence_dtype)).float()
    entropy = None if entropy is None else entropy.view(shape)
    return PositionScores(tokens.view(shape), confidence.view(shape), entropy)


def commit(scores: PositionScores, states: Sequence[BlockState], rule: CommitRule, mask_id: int) -> list[BlockState]:
    """The successors of N `states` given the scores `[N, B]`: `rule` chooses, `step` grows by 1.

    Values at positions without a mask are ignored: a committed token is never touched.
    """
    # A rule with history will return its next `aux` beside the choice; none exists yet.
    assert rule.memoryless, f"rule {rule.name} keeps history, which commit does not carry yet"
    current = torch.tensor([state.tokens for state in states], device=scores.tokens.device)
    chosen = rule.select(scores, current == mask_id, [state.step for state in states])
    rows = torch.where(chosen, scores.tokens, current).tolist()
    return [BlockState(tuple(row), state.step + 1, state.aux) for row, state in zip(rows, states, strict=True)]


def denoise_step(states: Sequence[BlockState], logits: Tensor, gumbel: Tensor | None, sampling: Sampling,
                 rule: CommitRule, mask_id: int) -> list[BlockState]:  # fmt: skip
    """F: the successors of N `states` of one block length, each with at least one mask.

    `logits` `[M, V]` and `gumbel` `[M, V]` (or None at T = 0) hold the rows of the masked positions only:
    state by state, positions ascending. A model without a mask id passes a negative one, a sentinel that no
    token equals.
    """
    counts = [state.num_masked(mask_id) for state in states]
    assert all(counts), "a state without masks has no successor"
    if len(logits) != sum(counts):
        raise ValueError(f"got {len(logits)} rows of logits for {sum(counts)} masked positions; pass one row for each")
    scores = score(logits, gumbel, sampling, mask_id=mask_id, with_entropy=rule.needs_entropy)
    masked = torch.tensor([state.tokens for state in states], device=logits.device) == mask_id
    return commit(_scattered(scores, masked), states, rule, mask_id)


def tempered_log_probs(logits: Tensor, sampling: Sampling, mask_id: int | None) -> Tensor:
    """Log-probabilities `[M, V]`, fp32, tempered (T = 1 if T = 0) and filtered; excluded ids have -inf."""
    return _filtered_log_probs(_tempered(_suppressed(logits, sampling, mask_id), sampling), sampling)


def _suppressed(logits: Tensor, sampling: Sampling, mask_id: int | None) -> Tensor:
    """`logits` as checked fp32 rows `[M, V]`, the mask id and `suppress_tokens` at -inf: probability 0."""
    vocab_size = logits.shape[-1]
    rows = logits.reshape(-1, vocab_size).float()
    # A maximum is NaN if any entry is, so one pass over V finds NaN and +inf.
    if not bool((rows.amax(-1) < math.inf).all()):
        raise ValueError(f"logits contain NaN or infinity ({logits.dtype}): run the model in bfloat16 or float32")
    excluded = sampling.suppress_tokens
    if mask_id is not None and mask_id >= 0:
        excluded = (*excluded, mask_id)
    if excluded:
        if max(excluded) >= vocab_size:
            raise ValueError(f"token id {max(excluded)} to suppress is not in the vocabulary of {vocab_size}")
        rows = rows.index_fill(-1, torch.tensor(excluded, device=rows.device), -math.inf)
    if not bool((rows.amax(-1) > -math.inf).all()):
        raise ValueError(
            f"no token left to draw: a row of logits ({logits.dtype}) is -inf wherever it is not suppressed; "
            "run the model in bfloat16 or float32, or suppress fewer tokens"
        )
    return rows


def _tempered(raw: Tensor, sampling: Sampling) -> Tensor:
    """(raw - max) / T, or `raw` unchanged at T = 0. The order matters: a small T would overflow first."""
    if sampling.is_greedy:
        return raw
    return (raw - raw.amax(-1, keepdim=True)) / sampling.temperature


def _filtered(tempered: Tensor, sampling: Sampling) -> Tensor:
    """`tempered` with the ids that top-k, then top-p over the rest, exclude at -inf.

    Every row keeps its maximum, which is finite, so an excluded id can never be drawn.
    """
    kept = tempered
    if 0 < sampling.top_k < tempered.shape[-1]:
        smallest = tempered.topk(sampling.top_k, -1).values[:, -1:]
        kept = kept.masked_fill(tempered < smallest, -math.inf)
    if sampling.top_p < 1:
        kept = kept.masked_fill(~_nucleus(kept, sampling.top_p), -math.inf)
    return kept


def _nucleus(values: Tensor, top_p: float) -> Tensor:
    """Bool `[M, V]`: the shortest prefix, by falling value and then rising id, whose mass reaches `top_p`.

    Mass in fp64, relative to the row's total. Only values are sorted (a stable sort of ids costs five times
    as much): everything above the last kept value is in, and of its ties the lowest ids that fill the prefix.
    """
    ordered = _sorted_descending(values)
    mass = (ordered - ordered[:, :1]).exp().double().cumsum(-1)
    length = 1 + (mass[:, :-1] < top_p * mass[:, -1:]).sum(-1, keepdim=True)
    last = ordered.gather(-1, length - 1)
    above, tied = values > last, values == last
    return above | (tied & (tied.cumsum(-1) <= length - above.sum(-1, keepdim=True)))


def _sorted_descending(values: Tensor) -> Tensor:
    if values.device.type == "cpu":  # numpy sorts rows several times faster
        return -torch.from_numpy(np.sort(-values.detach().numpy(), axis=-1))
    return values.sort(-1, descending=True).values


def _filtered_log_probs(tempered: Tensor, sampling: Sampling) -> Tensor:
    return torch.log_softmax(_filtered(tempered, sampling), -1)


def _draw(log_probs: Tensor, gumbel: Tensor | None, sampling: Sampling) -> Tensor:
    """The Gumbel-max draw of each row, int64 `[M]`: an excluded id has -inf, and noise is finite."""
    if gumbel is None:
        raise ValueError(f"temperature {sampling.temperature} needs Gumbel noise: pass it, or temperature 0")
    return _argmax(log_probs + gumbel.reshape(log_probs.shape).to(log_probs.device))


def _argmax(values: Tensor) -> Tensor:
    """Index of the largest entry of each row, int64 `[M]`; the lowest index wins ties.

    Both libraries promise the first occurrence (torch: `max` along a dimension); numpy is ten times faster.
    """
    if values.device.type == "cpu":
        return torch.from_numpy(values.detach().numpy().argmax(-1))
    return values.max(-1).indices


def _confidence(distribution: _Distribution, tokens: Tensor, sampling: Sampling) -> Tensor:
    """The confidence called `sampling.confidence` (but `entropy`), fp32 `[M]`."""
    name, chosen = sampling.confidence, tokens[:, None]
    if name == "token_prob":
        return distribution.probs.gather(-1, chosen)[:, 0]
    if name == "filtered_token_prob":
        assert distribution.filtered is not None
        return distribution.filtered.gather(-1, chosen)[:, 0].exp()
    if name == "raw_token_prob":
        return torch.softmax(distribution.raw, -1).gather(-1, chosen)[:, 0]
    if name == "max_prob":
        return distribution.probs.amax(-1)
    assert name == "margin", name
    best = distribution.probs.topk(min(2, distribution.probs.shape[-1]), -1).values
    return best[:, 0] - best[:, 1] if best.shape[-1] == 2 else best[:, 0]


def _entropy(distribution: _Distribution) -> Tensor:
    """Entropy in nats, fp32 `[M]`, at least 0."""
    log_probs = torch.log_softmax(distribution.tempered, -1).clamp_min(_LOG_ZERO)
    return (0.0 - _row_sums(distribution.probs * log_probs)).clamp_min(0.0)


def _row_sums(values: Tensor) -> Tensor:
    """Sums of rows, each the same whatever its company: so a row is never summed alone.

    torch splits a single long row over threads and rounds otherwise (measured: V = 50,000, two threads).
    """
    return values.expand(2, -1).sum(-1)[:1] if len(values) == 1 else values.sum(-1)


def _scattered(scores: PositionScores, masked: Tensor) -> PositionScores:
    """Scores `[M]` put at the M `masked` places of `[N, B]`, zeros elsewhere."""

    def spread(values: Tensor) -> Tensor:
        return values.new_zeros(masked.shape).masked_scatter_(masked, values.reshape(-1))

    entropy = None if scores.entropy is None else spread(scores.entropy)
    return PositionScores(spread(scores.tokens), spread(scores.confidence), entropy)
