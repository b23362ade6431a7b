"""Several requests in every pass: what one of them gets must not depend on the others.

Catches: rows or logits of another request, noise or stops that are shared, a row that goes on changing after its end, a
late arrival that sees an early one's cache, results that depend on order, batch size or peers (what users of batched
decoders report most).
"""

import random
from dataclasses import replace

import pytest
import torch

from dlmspec.config import DecodeConfig
from dlmspec.decode import Job, decode, reference_decode, run_jobs
from dlmspec.drafters import UNTRAINED
from dlmspec.engine import LanguageModel
from dlmspec.rules import LowConfidenceDynamic, LowConfidenceStatic
from dlmspec.step import Sampling

SHAPES = {
    "sdar": {},
    "shifted": {"shift": True},
    "llada": {"full": True},
    "dream": {"full": True, "shift": True},
}
LENGTHS = (1, 9, 4, 22, 13, 3, 17, 8, 5, 30, 2, 11, 6, 16, 7, 12)


def ragged(number: int = len(LENGTHS)) -> tuple[list[list[int]], list[DecodeConfig]]:
    """Prompts of many lengths, each with its own length, seed, rule and temperature."""
    prompts = [[2 + (7 * i + n) % 26 for i in range(LENGTHS[n])] for n in range(number)]
    configs = [
        DecodeConfig(
            max_new_tokens=3 + 5 * n % 17,
            rule=LowConfidenceStatic() if n % 3 else LowConfidenceDynamic(threshold=0.4),
            sampling=Sampling(temperature=(0.0, 1.0)[n % 2], top_k=(0, 5)[n // 2 % 2]),
            seed=n // 2,
        )
        for n in range(number)
    ]
    return prompts, configs


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("drafter", ["none", "confidence-tree", "oracle", "random"])
def test_a_batch_gives_what_each_request_gives_alone(make_target, shape, drafter):
    target = make_target(4, **SHAPES[shape])
    prompts, configs = ragged()
    alone = [reference_decode(target, prompt, config) for prompt, config in zip(prompts, configs, strict=True)]
    order = list(range(len(prompts)))
    for batch_size, seed in ((16, 0), (5, 1), (1, 2)):
        random.Random(seed).shuffle(order)
        made = UNTRAINED[drafter]()
        jobs = (Job(target, prompts[i], configs[i], made, 6, i) for i in order)
        outputs = {}
        for active in run_jobs(jobs, batch_size):
            assert len(active) <= batch_size
            outputs.update({job.index: job.request.output() for job in active if job.is_over})
        assert outputs.keys() == set(order)
        for index, reference in enumerate(alone):
            assert outputs[index].token_ids == reference.token_ids, (batch_size, index)
            assert outputs[index].finish_reason == reference.finish_reason
            if drafter != "random":  # its own dice go on from one request to the next
                single = decode(target, prompts[index], configs[index], drafter=made, budget=6)
                assert outputs[index].stats.num_passes == single.stats.num_passes


def test_whoever_is_over_leaves_and_the_next_comes_in(make_target):
    target = make_target(4, stop=-1)
    configs = [DecodeConfig(max_new_tokens=new) for new in (2, 9, 4, 3)]
    drafter = UNTRAINED["none"]()
    jobs = (Job(target, [5, 6], config, drafter, 1, index) for index, config in enumerate(configs))
    seen = [[job.index for job in active] for active in run_jobs(jobs, 2)]
    left = [reference_decode(target, [5, 6], config).stats.num_passes for config in configs]
    expected, active, waiting = [], [0, 1], [2, 3]
    while active:
        expected.append(active)
        left = [count - (index in active) for index, count in enumerate(left)]
        active = [index for index in active if left[index]]
        while len(active) < 2 and waiting:
            active = [*active, waiting.pop(0)]
    assert seen == expected
    assert len(seen) > 6


def test_a_dropped_job_takes_no_more_passes(make_target):
    target = make_target(4, stop=-1)
    drafter = UNTRAINED["none"]()
    jobs = [Job(target, [5, 6], DecodeConfig(max_new_tokens=6), drafter, 1, index) for index in range(2)]
    for number, active in enumerate(run_jobs(jobs, 2)):
        if number == 1:
            active[0].is_dropped = True
    assert [job.request.stats.num_passes for job in jobs] == [2, 6]


def test_generate_gives_every_row_its_own_seed(make_target):
    lm = LanguageModel(make_target(4))
    prompts = [[5, 9, 3]] * 4 + [[7, 7]]
    options = {"max_new_tokens": 10, "temperature": 1.0, "budget": 5}
    rows = lm.generate(prompts, seed=[0, 1, 0, 2, 1], **options)
    assert rows[0].token_ids == rows[2].token_ids, "the same prompt and seed"
    assert len({row.token_ids for row in rows[:4]}) == 3
    for batch_size in (1, 2, 5):
        again = lm.generate(prompts, seed=[0, 1, 0, 2, 1], batch_size=batch_size, **options)
        assert [row.token_ids for row in again] == [row.token_ids for row in rows]
    singles = [lm.generate(prompt, seed=seed, **options) for prompt, seed in zip(prompts, (0, 1, 0, 2, 1), strict=True)]
    assert [row.token_ids for row in singles] == [row.token_ids for row in rows]
    samples = lm.generate(prompts[0], seed=0, num_samples=3, **options)
    assert [row.token_ids for row in samples] == [rows[index].token_ids for index in (0, 1, 3)], "seeds 0, 1, 2"
    assert len(lm.generate(prompts[0], num_samples=1, **options)) == 1
    with pytest.raises(ValueError, match="num_samples must be at least 1, got 0"):
        lm.generate(prompts[0], num_samples=0)
    with pytest.raises(ValueError, match="num_samples needs one prompt"):
        lm.generate(prompts, num_samples=2)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        lm.generate(prompts, batch_size=0)


def test_a_pass_over_a_batch_is_one_call_of_the_target(make_target):
    target = make_target(4)
    calls = []
    forward_parts = target.transformer.forward_parts
    target.transformer.forward_parts = lambda parts: calls.append(len(parts)) or forward_parts(parts)  # type: ignore[method-assign]
    LanguageModel(target).generate([[5], [6, 7], [8]], max_new_tokens=4, drafter="confidence", early_stop=False)
    assert calls[0] == 3
    assert max(calls) == 3
    assert torch.get_num_threads() == 1


def test_batches_under_the_dual_cache(make_target):
    """Some requests run their whole canvas while others run one block over their frozen rows."""
    target = make_target(4, full=True, shift=True)
    prompts, configs = ragged(7)
    configs = [replace(config, cache="dual") for config in configs]
    drafter = UNTRAINED["confidence-tree"]()
    jobs = [Job(target, prompts[i], configs[i], drafter, 5, i) for i in range(7)]
    for _ in run_jobs(jobs, 4):
        pass
    for job, prompt, config in zip(jobs, prompts, configs, strict=True):
        assert job.request.output().token_ids == reference_decode(target, prompt, config).token_ids
