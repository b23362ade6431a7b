"""What users of such decoders have hit, each symptom as a test; `USER_ISSUES.md` beside this file lists them all.

Catches: prompts overwritten, masks returned, lengths beyond what was asked for, rows that change with their batch or
their padding, seeds that are ignored, ends that are missed.
"""

import itertools
import json
import re
from pathlib import Path

import pytest
import torch

from dlmspec.config import DecodeConfig
from dlmspec.decode import decode, decode_passes, reference_decode
from dlmspec.drafters import UNTRAINED
from dlmspec.engine import LanguageModel
from dlmspec.models.read_spec import spec_from_directory
from dlmspec.models.target import Target
from dlmspec.request import Request
from dlmspec.rules import EntropyBounded, Factor, LowConfidenceDynamic, LowConfidenceStatic, Sequential
from dlmspec.step import Sampling

MASK, STOP = 0, 1
TESTS = Path(__file__).parent


def test_every_row_of_the_list_names_a_test_that_exists():
    text = (TESTS / "USER_ISSUES.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", text))
    known = set(re.findall(r"^def (test_\w+)", "\n".join(p.read_text() for p in TESTS.glob("test_*.py")), re.MULTILINE))
    assert len(named) > 30
    assert not named - known
    rows = [int(number) for number in re.findall(r"^\| (\d+)", text, re.MULTILINE)]
    assert len(rows) == len(set(rows)) >= 37


def grid(block_length: int) -> list[tuple[int, int, int, int]]:
    """Prompt lengths × denoising steps × new tokens around the block's edges, each with a number."""
    b = block_length
    cases = itertools.product((1, b - 1, b, b + 1, 2 * b, 2 * b + 1), (1, 2, b, 2 * b), (1, b - 1, b, b + 1))
    return [(number, *case) for number, case in enumerate(cases)]


@pytest.mark.parametrize("kind", ["sequential", "static", "dynamic", "entropy", "factor"])
def test_a_prompt_is_never_overwritten_and_no_mask_is_returned(make_target, kind):
    """SDAR's generate.py overwrote prompt tokens where P mod B > 0 and S < B, returned masks and ran over the limit."""
    b = 4
    target = make_target(b, stop=-1)
    for number, length, steps, new in grid(b):
        rule = {
            "sequential": Sequential(denoising_steps=steps),
            "static": LowConfidenceStatic(denoising_steps=steps),
            "dynamic": LowConfidenceDynamic(threshold=0.5, denoising_steps=steps),
            "entropy": EntropyBounded(gamma=2.0),
            "factor": Factor(factor=1.0),
        }[kind]
        prompt = [2 + (number + 7 * i) % 26 for i in range(length)]
        states = []
        config = DecodeConfig(new, rule=rule, sampling=Sampling(temperature=number % 2), early_stop=False)
        output = reference_decode(target, prompt, config, observer=lambda *step, seen=states: seen.append(step))
        assert len(output.token_ids) == new
        assert MASK not in output.token_ids
        steps_of = {}
        for block, state, _, successor in states:
            steps_of[block] = steps_of.get(block, 0) + 1
            known = prompt[block * b : (block + 1) * b]
            assert list(successor.tokens[: len(known)]) == known
            assert successor.num_masked(MASK) < state.num_masked(MASK)
        assert max(steps_of.values()) <= b


def biased(target, token: int, amount: float):
    """The target with a head that favours one token."""
    head = target.transformer.lm_head.clone()
    head[token] *= amount
    target.transformer.lm_head = head
    return target


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_that_prefers_the_mask_still_fills_its_blocks(make_target, temperature):
    target = biased(make_target(4, stop=-1), MASK, 40.0)
    config = DecodeConfig(11, sampling=Sampling(temperature=temperature))
    output = reference_decode(target, [5, 6], config)
    assert len(output.token_ids) == 11
    assert MASK not in output.token_ids


@pytest.mark.parametrize("offset", range(5))
def test_nothing_stands_behind_a_stop_at_any_place_of_a_block(make_target, offset):
    """The block's later positions are not returned, nor decided when the rest cannot matter."""
    target = make_target(5, stop=-1)
    free = reference_decode(target, [7, 3], DecodeConfig(15, early_stop=False))
    stop = free.token_ids[3 + offset]  # the first block has three places, the next begins here
    first = free.token_ids.index(stop)
    stopping = make_target(5, stop=stop)
    for early_stop in (True, False):
        config = DecodeConfig(15, early_stop=early_stop)
        for output in (
            reference_decode(stopping, [7, 3], config),
            decode(stopping, [7, 3], config, drafter=UNTRAINED["confidence-tree"](), budget=6),
        ):
            assert output.token_ids == free.token_ids[: first + 1]
            assert output.finish_reason == "stop"
            assert output.stats.num_steps <= free.stats.num_steps


def test_no_compute_goes_to_blocks_behind_a_stop(make_target):
    target = make_target(4, stop=-1)
    free = reference_decode(target, [7, 3], DecodeConfig(60, early_stop=False)).token_ids
    stopping = make_target(4, stop=free[5])
    output = reference_decode(stopping, [7, 3], DecodeConfig(60))
    assert output.stats.num_denoising_passes <= 4 * 3


def test_equal_logits_commit_the_leftmost_position_and_the_lowest_id(make_target):
    target = make_target(4, stop=-1)
    target.transformer.lm_head = torch.zeros_like(target.transformer.lm_head)
    seen = []
    reference_decode(target, [5] * 4, DecodeConfig(4), observer=lambda *step: seen.append(step[3].tokens))
    assert seen == [(1, 0, 0, 0), (1, 1, 0, 0), (1, 1, 1, 0), (1, 1, 1, 1)]


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_logits_that_are_no_numbers_are_an_error_that_names_the_dtype(make_target, poison):
    target = make_target(4)
    target.transformer.lm_head = torch.full_like(target.transformer.lm_head, poison)
    with pytest.raises(ValueError, match=r"NaN or infinity \(torch.float32\)"):
        reference_decode(target, [5], DecodeConfig(4))


def test_the_same_seed_gives_the_same_text_and_another_seed_another(make_target):
    lm = LanguageModel(make_target(4))
    torch.manual_seed(1)
    first = lm.generate([5, 9], max_new_tokens=12, temperature=1.0, seed=7)
    torch.manual_seed(2)  # no global generator is read
    assert lm.generate([5, 9], max_new_tokens=12, temperature=1.0, seed=7).token_ids == first.token_ids
    others = {lm.generate([5, 9], max_new_tokens=12, temperature=1.0, seed=seed).token_ids for seed in range(8)}
    assert len(others) == 8


def test_top_k_and_top_p_are_honoured(make_target):
    lm = LanguageModel(make_target(4, stop=-1))
    greedy = lm.generate([5, 9], max_new_tokens=16).token_ids
    options = {"max_new_tokens": 16, "temperature": 1.0, "confidence": "max_prob"}
    assert lm.generate([5, 9], top_k=1, **options).token_ids == greedy
    assert lm.generate([5, 9], top_p=1e-6, **options).token_ids == greedy
    assert lm.generate([5, 9], **options).token_ids != greedy


def test_kept_keys_and_values_are_those_of_a_full_forward(make_target):
    """Rows of a block are kept from its final state only, whoever stored them (InternLM/lmdeploy#4082)."""
    target = make_target(4, dtype=torch.float64, stop=-1)
    config = DecodeConfig(17, early_stop=False)
    passes = decode_passes(target, [5, 9, 3, 3, 8], config, drafter=UNTRAINED["confidence-tree"](), budget=8)
    *_, request = passes
    assert isinstance(request, Request)
    cache = request.memory.cache  # type: ignore[attr-defined]
    fresh = target.new_cache(cache.length)
    target.prefill(fresh, request.finished[: cache.length])
    torch.testing.assert_close(cache.keys[:, :, : cache.length], fresh.keys[:, :, : cache.length])
    torch.testing.assert_close(cache.values[:, :, : cache.length], fresh.values[:, :, : cache.length])


def test_a_prompt_of_one_token_more_than_its_blocks_is_no_decode(make_target):
    """P mod B = 1: the remainder is the first block's beginning, not a state of its own (vllm#49495)."""
    target = make_target(4, stop=-1)
    for length in (1, 5, 9):
        prompt = [3 + i for i in range(length)]
        request = Request(target, prompt, DecodeConfig(4))
        assert request.root.tokens == (prompt[-1], MASK, MASK, MASK)
        assert reference_decode(target, prompt, DecodeConfig(3)).stats.num_denoising_passes == 3


def test_a_request_that_does_not_fit_is_refused_before_any_pass(make_target):
    target = make_target(4)  # a context of 96
    calls = []
    target.transformer.forward_parts = lambda parts: calls.append(parts)  # type: ignore[method-assign]
    lm = LanguageModel(target)
    with pytest.raises(ValueError, match=r"prompt 2 of 2: .*do not fit the context of 96"):
        lm.generate([[5], [5] * 90], max_new_tokens=8)
    assert not calls


def test_an_id_without_a_string_is_a_token_like_others(tiny_sdar):
    """SDAR's vocabulary has 266 rows of logits more than its tokenizer has strings."""
    directory = tiny_sdar(vocab=67, name="gaps")
    lm = LanguageModel(Target.from_directory(directory))
    out = lm.generate([3, 4], max_new_tokens=9)
    assert len(out.token_ids) <= 9
    assert isinstance(out.text, str)


def test_a_text_begins_as_its_family_has_to(make_target, monkeypatch):
    for bos_id, expected in ((None, [7, 8]), (7, [7, 8]), (3, [3, 7, 8])):
        lm = LanguageModel(make_target(4, bos_id=bos_id))
        lm._tokenizer = type("Words", (), {"encode": lambda self, text, add_special_tokens: [7, 8]})()
        assert lm.encode("two words") == expected


def test_the_token_that_ends_a_chat_is_a_stop(tiny_sdar):
    """Beside the ids that the configs list; by the tokenizer's own table of added tokens."""
    directory = tiny_sdar(name="chat")
    assert spec_from_directory(directory).stop_ids == (0,)
    added = [{"id": 41, "content": "<|im_end|>"}, {"id": 42, "content": "<|im_start|>"}]
    (directory / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
    assert spec_from_directory(directory).stop_ids == (0, 41)


def test_the_mask_is_known_by_its_id_and_never_by_a_string(tiny_sdar):
    directory = tiny_sdar()
    assert spec_from_directory(directory, mask_id=9).mask_id == 9
    with pytest.raises(ValueError, match="mask id 9 at position 1"):
        reference_decode(Target.from_directory(directory, mask_id=9), [3, 9], DecodeConfig(4))
