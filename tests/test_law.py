"""The denoising law of one request: which noise a step reads, and where.

Catches: noise of another step or position than the one that the drafters couple with; reference and speculation would
agree all the same.
"""

import pytest
import torch

from dlmspec.config import DecodeConfig
from dlmspec.decode import decode
from dlmspec.drafters import UNTRAINED
from dlmspec.evidence import Evidence
from dlmspec.grid import Grid
from dlmspec.law import DenoisingLaw
from dlmspec.noise import GumbelNoise
from dlmspec.state import BlockState
from dlmspec.step import Sampling, denoise_step

MASK = 0


@pytest.mark.parametrize("noise", ["step", "position"])
@pytest.mark.parametrize("anchor", [0, 7])
def test_a_step_reads_the_noise_of_its_own_number_at_the_texts_positions(make_target, anchor, noise):
    spec = make_target(5, full=anchor > 0).spec
    config = DecodeConfig(sampling=Sampling(temperature=1.0), seed=9, noise=noise)
    law, source = DenoisingLaw(spec, config, Grid(anchor, 5)), GumbelNoise(9, spec.vocab_size)
    state = BlockState((MASK, 4, MASK, MASK, 8), 3)
    logits = torch.randn(3, spec.vocab_size, generator=torch.Generator().manual_seed(1))
    step = 3 if noise == "step" else 0
    rows = source.gumbel(anchor + 2 * 5, 5, step)[[0, 2, 3]]
    assert law.denoise([state], logits, 2) == denoise_step([state], logits, rows, config.sampling, config.rule, MASK)
    found = law.gumbel(2, 3, [0, 2, 3])
    assert found is not None
    assert torch.equal(found, rows)
    # a drafter that reads the same distributions for the same step couples the tokens that the step draws
    coupled = Evidence(2, state, logits, law).candidates(3).ids
    (successor,) = law.denoise([state], logits, 2)
    (place,) = [i for i in (0, 2, 3) if successor.tokens[i] != MASK]
    assert coupled[place][0] == successor.tokens[place]


def test_several_states_of_one_call_read_their_own_steps(make_target):
    spec = make_target(4).spec
    law = DenoisingLaw(spec, DecodeConfig(sampling=Sampling(temperature=1.0)), Grid(0, 4))
    states = [BlockState((MASK, 5, MASK, 7), step) for step in (0, 1, 5)]
    logits = torch.randn(6, spec.vocab_size, generator=torch.Generator().manual_seed(2))
    together = law.denoise(states, logits, 1)
    alone = [law.denoise([state], logits[2 * i : 2 * i + 2], 1)[0] for i, state in enumerate(states)]
    assert together == alone


def test_stale_tokens_are_often_the_committed_ones(make_target):
    """With the true order and coupled tokens a sampled decode is walked in long strides, under either grid."""
    for full in (False, True):
        target = make_target(6, full=full, stop=-1)
        # what is left of a distribution is mostly its noise: logits that hardly move from step to step
        target.transformer.lm_head = target.transformer.lm_head * 0.02
        config = DecodeConfig(18, sampling=Sampling(temperature=1.0), early_stop=False, seed=5)
        stats = decode(target, [5] * 6, config, drafter=UNTRAINED["oracle-order"](), budget=8).stats
        assert stats.mat > 2.5
