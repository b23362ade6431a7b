"""How much stale distributions still tell: of the token that is committed next, and of its position.

At staleness d the distributions were read d steps before the state whose commit is predicted; the true
commits in between are known. Only steps of one block are compared.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import Tensor

from dlmspec.bench.prompt_sets import domain_name, encode_prompts, load_prompts
from dlmspec.config import DecodeConfig
from dlmspec.decode import reference_decode
from dlmspec.drafters.stale import coupled
from dlmspec.evidence import Candidates, Evidence
from dlmspec.grid import Grid
from dlmspec.law import DenoisingLaw
from dlmspec.models.target import Target
from dlmspec.noise import NoiseMode
from dlmspec.rules import CommitRule, LowConfidenceStatic
from dlmspec.state import BlockState, new_commits
from dlmspec.step import Sampling

MAX_STALENESS = 5

# (evidence, step) → odds [B] that a position is committed at that step
Order = Callable[[Evidence, int], list[float]]


@dataclass(frozen=True, slots=True)
class StaleRow:
    """Shares at one staleness, pooled over the prompts of a domain.

    `token_share`: commits whose token is the stale coupled token (at T = 0 the stale top-1) of the position.
    `confidence_accuracy`, `order_accuracy`: steps at which the position of highest stale confidence, or the
    order model's, is one that is committed. `commits` and `steps` are what was counted; a share of nothing is
    None.
    """

    domain: str
    temperature: float
    staleness: int
    commits: int
    steps: int
    token_share: float | None
    confidence_accuracy: float | None
    order_accuracy: float | None

    def as_dict(self) -> dict:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Tally:
    """Hits at one staleness."""

    commits: int = 0
    steps: int = 0
    tokens: int = 0
    confidence: int = 0
    order: int = 0


@dataclass(slots=True)
class StaleCounter:
    """A step observer of one decode at a time, under its `law`; the tallies go on over decodes of one config."""

    law: DenoisingLaw
    order: Order | None = None
    tallies: dict[int, Tally] = field(default_factory=lambda: {d: Tally() for d in range(1, MAX_STALENESS + 1)})
    recent: list[Evidence] = field(default_factory=list)  # of this block's steps, the latest last

    def __call__(self, block: int, state: BlockState, logits: Tensor, successor: BlockState) -> None:
        if state.step == 0:
            self.recent.clear()
        masked = state.masked_positions(self.law.spec.mask_id)
        commits = {p: successor.tokens[p] for p in masked if successor.tokens[p] != self.law.spec.mask_id}
        for staleness, evidence in enumerate(reversed(self.recent), 1):
            odds = None if self.order is None else self.order(evidence, state.step)
            self._count(self.tallies[staleness], evidence.candidates(state.step), odds, state, commits)
        self.recent.append(Evidence(block, state, logits, self.law, new_commits(state, successor)))
        del self.recent[:-MAX_STALENESS]

    def _count(self, tally: Tally, candidates: Candidates, odds: list[float] | None, state: BlockState,
               commits: dict[int, int]) -> None:  # fmt: skip
        mask_id = self.law.spec.mask_id
        ids, log_probs = coupled(candidates)
        likeliest = max(state.masked_positions(mask_id), key=lambda position: log_probs[position])
        tally.steps += 1
        tally.commits += len(commits)
        tally.tokens += sum(ids[position] == token for position, token in commits.items())
        tally.confidence += likeliest in commits
        if odds is not None:
            tally.order += max(state.masked_positions(mask_id), key=lambda position: odds[position]) in commits

    def rows(self, domain: str) -> list[StaleRow]:
        """One row per staleness."""
        temperature = self.law.config.sampling.temperature
        return [
            StaleRow(
                domain,
                temperature,
                staleness,
                tally.commits,
                tally.steps,
                _share(tally.tokens, tally.commits),
                _share(tally.confidence, tally.steps),
                _share(tally.order, tally.steps) if self.order else None,
            )
            for staleness, tally in self.tallies.items()
        ]


def stale_report(
    *,
    target: Target,
    encode: Callable[[str], list[int]],
    prompts: Sequence[str | Path],
    temperatures: Sequence[float] = (0.0, 1.0),
    rule: CommitRule | None = None,
    sampling: Sampling | None = None,
    noise: NoiseMode = "step",
    limit: int = 20,
    max_new_tokens: int = 64,
    seed: int = 0,
    order: Order | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[StaleRow]:
    """Rows per domain, temperature and staleness 1 … 5, from reference decodes."""
    sets = {
        domain_name(name): encode_prompts(load_prompts(name, limit), encode, target, max_new_tokens) for name in prompts
    }
    done, total = 0, len(temperatures) * sum(map(len, sets.values()))
    rows: list[StaleRow] = []
    for domain, chosen in sets.items():
        for temperature in temperatures:
            config = DecodeConfig(
                max_new_tokens=max_new_tokens,
                rule=rule or LowConfidenceStatic(),
                sampling=replace(sampling or Sampling(), temperature=temperature),
                noise=noise,
                seed=seed,
                early_stop=False,
            )
            counter = StaleCounter(DenoisingLaw(target.spec, config, Grid.of(target.spec, 0)), order)
            for prompt_ids in chosen:
                counter.law = DenoisingLaw(target.spec, config, Grid.of(target.spec, len(prompt_ids)))
                reference_decode(target, prompt_ids, config, observer=counter)
                done += 1
                if progress is not None:
                    progress(done, total, f"{domain} T={temperature:g}")
            rows += counter.rows(domain)
    return rows


def _share(hits: int, total: int) -> float | None:
    return hits / total if total else None
