"""Other engines' decoders: each differs from the others where it says so, and in nothing else.

Catches: `>` for `>=`, the surest for the leftmost, a threshold compared in another dtype, a confidence of the wrong
distribution, SDAR's greedy evaluation setting that is not T = 0.
"""

from dataclasses import replace

import pytest
import torch

from dlmspec.config import DecodeConfig
from dlmspec.decode import decode, reference_decode
from dlmspec.drafters import UNTRAINED
from dlmspec.engine import LanguageModel, make_config
from dlmspec.presets import PRESETS, find_preset
from dlmspec.rules import LowConfidenceDynamic, LowConfidenceStatic, PositionScores, timestep_counts
from dlmspec.state import BlockState, new_commits
from dlmspec.step import Sampling, denoise_step, score

MASK = 4


def scores(*confidences: float) -> tuple[PositionScores, torch.Tensor]:
    confidence = torch.tensor([confidences])
    return PositionScores(torch.zeros_like(confidence, dtype=torch.long), confidence), confidence > 0


def selected(name: str, *confidences: float, step: int = 0) -> list[int]:
    """Positions that a preset commits, of a block of which all with a confidence are masked."""
    row, masked = scores(*confidences)
    return find_preset(name).rule.select(row, masked, [step])[0].nonzero().flatten().tolist()


def test_which_positions_each_preset_commits():
    below = (0.2, 0.0, 0.5, 0.4)  # position 1 is decided
    for name in ("sdar-generate", "sdar-eval", "lmdeploy", "sglang", "fast-dllm", "llada2", "llada", "dream"):
        assert selected(name, *below) == [2], name
    assert selected("jetengine", *below) == [0], "the leftmost mask"
    above = (0.99, 0.3, 0.97, 0.96)
    for name in ("sdar-generate", "sdar-eval", "lmdeploy", "sglang", "fast-dllm", "llada2", "jetengine"):
        assert selected(name, *above) == [0, 2, 3], name
    assert selected("llada", *above) == [0], "a schedule, no threshold"


@pytest.mark.parametrize("name", [name for name, preset in PRESETS.items() if hasattr(preset.rule, "threshold")])
def test_the_threshold_itself(name):
    """LMDeploy and Fast-dLLM commit what is exactly as sure as the threshold, the others do not."""
    rule = find_preset(name).rule
    assert isinstance(rule, LowConfidenceDynamic)
    exact = torch.tensor([rule.threshold]).item()  # in fp32, as confidences are
    rule = replace(rule, threshold=exact)
    row, masked = scores(exact, 0.99, 0.1)
    committed = rule.select(row, masked, [0])[0].tolist()
    assert committed == [name in ("lmdeploy", "fast-dllm"), True, False]


def test_jetengine_takes_the_first_masks_of_the_schedule():
    rule = replace(find_preset("jetengine").rule, denoising_steps=2)  # type: ignore[type-var]
    row, masked = scores(0.1, 0.0, 0.6, 0.5)
    assert rule.select(row, masked, [0])[0].tolist() == [True, False, True, False]
    sdar = replace(find_preset("sdar-eval").rule, denoising_steps=2)  # type: ignore[type-var]
    assert sdar.select(row, masked, [0])[0].tolist() == [False, False, True, True]


def test_a_model_in_bf16_compares_in_bf16():
    """0.85 becomes 0.8516 there, and a confidence of 0.8516 fails although it exceeds 0.85 as a number."""
    preset = find_preset("sdar-generate").for_dtype(torch.bfloat16)
    assert isinstance(preset.rule, LowConfidenceDynamic)
    assert preset.rule.threshold == 0.8515625
    assert preset.sampling.confidence_dtype == "bfloat16"
    assert find_preset("sdar-generate").for_dtype(torch.float32) is find_preset("sdar-generate")
    assert find_preset("lmdeploy").for_dtype(torch.bfloat16) is find_preset("lmdeploy")
    probability = 0.8512
    logits = torch.tensor([[probability, 1 - probability]]).log()
    wide, narrow = (
        score(logits, None, Sampling(confidence_dtype=dtype), mask_id=None, with_entropy=False).confidence
        for dtype in ("float32", "bfloat16")
    )
    torch.testing.assert_close(wide, torch.tensor([probability]))
    assert narrow.item() == 0.8515625


def test_the_mask_may_keep_its_share_of_the_softmax():
    logits = torch.zeros(1, 5)
    for confidence in ("token_prob", "raw_token_prob", "max_prob", "filtered_token_prob"):
        without, with_mask = (
            score(logits, None, Sampling(confidence=confidence, mask_in_softmax=kept), mask_id=MASK, with_entropy=False)
            for kept in (False, True)
        )
        torch.testing.assert_close(without.confidence, torch.tensor([0.25]))
        torch.testing.assert_close(with_mask.confidence, torch.tensor([0.2]))
    # however likely the mask is, it is not drawn
    logits[0, MASK] = 9.0
    found = score(logits, None, Sampling(mask_in_softmax=True), mask_id=MASK, with_entropy=False)
    assert found.tokens.item() == 0


def test_sdars_greedy_evaluation_is_temperature_zero():
    """T = 1, top_k = 1 and the unfiltered confidence, as the official evaluation runs it (JetAstra/SDAR#1)."""
    torch.manual_seed(0)
    rule = LowConfidenceDynamic(threshold=0.6)
    state = BlockState((MASK,) * 6, 0)
    for _ in range(50):
        logits, gumbel = torch.randn(6, 9) * 2, torch.randn(6, 9)
        evaluation = Sampling(temperature=1.0, top_k=1, confidence="token_prob")
        assert denoise_step([state], logits, gumbel, evaluation, rule, MASK) == denoise_step(
            [state], logits, None, Sampling(), rule, MASK
        )
        filtered = replace(evaluation, confidence="filtered_token_prob")  # every confidence is 1: the block at once
        assert denoise_step([state], logits, gumbel, filtered, rule, MASK)[0].num_masked(MASK) == 0


def test_dreams_schedule_by_hand():
    """4 positions, 3 steps, times 1, .667, .334, .001: shares 1/3, 1/2, all."""
    assert timestep_counts(4, 3) == (1, 1, 2)
    assert timestep_counts(8, 1) == (8,)
    for length, steps in ((5, 5), (16, 7), (32, 64), (7, 512)):
        counts = timestep_counts(length, steps)
        assert sum(counts) == length
        assert min(counts) >= 1
        assert len(counts) <= min(length, steps)


def test_dreams_steps_commit_by_that_schedule(make_target):
    target = make_target(7, full=True, shift=True, stop=-1)
    rule = LowConfidenceStatic(denoising_steps=3, schedule="timesteps")
    sizes = []
    config = DecodeConfig(7, rule=rule)
    reference_decode(target, [5], config, observer=lambda *step: sizes.append(len(new_commits(step[1], step[3]))))
    assert tuple(sizes) == timestep_counts(7, 3)
    with pytest.raises(ValueError, match="unknown schedule 'cosine'; choose even or timesteps"):
        LowConfidenceStatic(schedule="cosine")


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_decoded_exactly(make_target, name):
    target = make_target(8)
    config = make_config(preset=name, max_new_tokens=19, seed=2)
    reference = reference_decode(target, [5, 9, 3], config)
    for kind in ("confidence", "random", "oracle"):
        assert decode(target, [5, 9, 3], config, drafter=UNTRAINED[kind](), budget=6).token_ids == reference.token_ids


def test_what_is_given_goes_before_the_preset(make_target):
    lm = LanguageModel(make_target(4))
    assert lm.config(preset="sdar-generate").sampling.temperature == 1.0
    config = lm.config(preset="sdar-generate", temperature=0.0, rule="sequential", top_k=3)
    assert (config.sampling.temperature, config.rule.name, config.sampling.top_k) == (0.0, "sequential", 3)
    assert config.sampling.confidence == "filtered_token_prob"
    with pytest.raises(ValueError, match="unknown preset 'vllm'; choose one of sdar-generate"):
        lm.generate([5], preset="vllm")
