"""Exactness over everything at once: random short decodes of random tiny models of every family, all drafters.

A case draws family, dtype, block length, rule, temperature, filters, confidence, noise, cache semantics, prompt length,
new tokens and early stop; every drafter then has to give the reference's ids.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from dlmspec.config import DecodeConfig
from dlmspec.decode import Job, decode, reference_decode, run_jobs
from dlmspec.drafters import UNTRAINED
from dlmspec.memory import CHOICES
from dlmspec.models.target import Target
from dlmspec.models.tiny import MASK_ID, TINY_SPECS, VOCAB, tiny_target
from dlmspec.rules import (
    CommitRule,
    EntropyBounded,
    Factor,
    LowConfidenceDynamic,
    LowConfidenceStatic,
    Sequential,
)
from dlmspec.step import CONFIDENCES, Sampling

BLOCK_LENGTHS = (1, 2, 3, 5, 8)
DTYPES = (torch.float32, torch.float64)
SEEDS = 3  # of the models of each family


@dataclass(frozen=True, slots=True)
class Case:
    """One reference decode, and what it was of."""

    family: str
    dtype: str
    block_length: int
    seed: int
    prompt: tuple[int, ...]
    config: DecodeConfig


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one case went: `differing` names drafter and budget of every decode with other ids or another end."""

    case: Case
    decodes: int
    differing: tuple[str, ...]


class Ladder:
    """The cases of a seed, in order; models are made once."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.targets: dict[tuple, Target] = {}

    def cases(self) -> Iterator[Case]:
        rng = self.rng
        while True:
            family = rng.choice(list(TINY_SPECS))
            block_length = 1 if family == "llama" else rng.choice(BLOCK_LENGTHS)
            length = rng.randint(1, 2 * block_length + 3)
            yield Case(
                family,
                str(rng.choice(DTYPES)).removeprefix("torch."),
                block_length,
                rng.randrange(SEEDS),
                tuple(rng.randrange(MASK_ID + 1, VOCAB) for _ in range(length)),
                self._config(family, block_length),
            )

    def _config(self, family: str, block_length: int) -> DecodeConfig:
        rng = self.rng
        temperature = rng.choice((0.0, 0.0, 0.5, 1.0, 1.6))
        sampling = Sampling(
            temperature,
            top_k=rng.choice((0, 0, 3)),
            top_p=rng.choice((1.0, 1.0, 0.8)),
            confidence=rng.choice(CONFIDENCES),
            suppress_tokens=rng.choice(((), (5, 6))),
            mask_in_softmax=rng.random() < 0.2,
        )
        return DecodeConfig(
            rng.randint(1, 2 * block_length + 4),
            rule=self._rule(sampling.confidence, block_length),
            sampling=sampling,
            noise=rng.choice(("step", "step", "position")),
            seed=rng.getrandbits(64),
            early_stop=rng.random() < 0.5,
            cache=rng.choice(CHOICES[TINY_SPECS[family].attention]),
        )

    def _rule(self, confidence: str, block_length: int) -> CommitRule:
        rng = self.rng
        steps = rng.choice((None, 1, 2, block_length, 2 * block_length))
        threshold = -1.5 if confidence == "entropy" else rng.choice((0.15, 0.4, 0.9))
        return rng.choice(
            (
                Sequential(steps),
                LowConfidenceStatic(steps),
                LowConfidenceStatic(),
                LowConfidenceStatic(steps, schedule="timesteps"),
                LowConfidenceDynamic(threshold, steps),
                LowConfidenceDynamic(threshold, steps, inclusive=True, fallback="leftmost"),
                EntropyBounded(rng.choice((0.0, 1.0, 4.0))),
                Factor(rng.choice((0.5, 1.0, 3.0))),
            )
        )

    def target(self, case: Case) -> Target:
        key = (case.family, case.block_length, case.dtype, case.seed)
        if key not in self.targets:
            dtype = getattr(torch, case.dtype)
            self.targets[key] = tiny_target(case.family, case.block_length, dtype, case.seed)
        return self.targets[key]

    def run(self, case: Case) -> Outcome:
        """Decode a case by every drafter, alone and all of them together in shared passes."""
        target, prompt = self.target(case), list(case.prompt)
        reference = reference_decode(target, prompt, case.config)
        expected = (reference.token_ids, reference.finish_reason)
        outputs = {"store passes": reference_decode(target, prompt, case.config, store_passes=True)}
        jobs = []
        for name, make in UNTRAINED.items():
            budget = self.rng.choice((1, 2, 4, 9))
            outputs[f"{name}, {budget}"] = decode(target, prompt, case.config, drafter=make(), budget=budget)
            jobs.append(Job(target, prompt, case.config, make(), budget, len(jobs)))
        for _ in run_jobs(jobs, len(jobs)):
            pass
        outputs |= {f"job {job.index}": job.request.output() for job in jobs}
        differing = [name for name, out in outputs.items() if (out.token_ids, out.finish_reason) != expected]
        slower = [name for name, out in outputs.items() if name != "store passes"
                  and out.stats.num_passes > reference.stats.num_passes]  # fmt: skip
        return Outcome(case, 1 + len(outputs), tuple(dict.fromkeys(differing + slower)))


def climb(decodes: int, seed: int = 0, progress: Callable[[int], None] | None = None) -> Iterator[Outcome]:
    """Cases until at least so many decodes were made."""
    ladder, done = Ladder(seed), 0
    for case in ladder.cases():
        if done >= decodes:
            return
        outcome = ladder.run(case)
        done += outcome.decodes
        if progress is not None:
            progress(done)
        yield outcome
