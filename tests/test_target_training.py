"""Training of a target: packed rows, evaluation, interruption, export.

Catches: rows that see across pieces or break the block grid, weights on the wrong tokens, a resumed run that differs
from an uninterrupted one, an export that the loader does not read, held-out text in training.
"""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import dlmspec
from dlmspec.models.spec import ModelSpec
from dlmspec.training import target as training
from dlmspec.training.batches import (
    HIDDEN_RESULTS,
    PADDING_WEIGHT,
    QUESTION_WEIGHT,
    RESULT_WEIGHT,
    SOLUTION_WEIGHT,
    TRAINED_DOMAINS,
    sample_masks,
)
from dlmspec.training.corpus import Document
from dlmspec.training.drills import EQUATION, result_spans, sample_equation
from dlmspec.training.target import Corpus, TargetTrainer, TrainingPlan, from_scratch, start_from
from dlmspec.training.tokenizer import kept_tokenizer

SPEC = ModelSpec(
    name="tiny", family="sdar", hidden_size=16, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=8,
    intermediate_size=24, vocab_size=400, rms_norm_eps=1e-6, rope_theta=10_000.0, max_position_embeddings=256,
    tie_word_embeddings=True, block_length=8, mask_id=0, stop_ids=(1,),
)  # fmt: skip
PLAN = TrainingPlan(tokens=2 * 2 * 160 * 6, rows=2, row_length=160, warmup_steps=2, compile=False)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    documents = [
        Document(domain, f"{domain}/{number}", "".join(f"line {i} of {domain} {number}\n" for i in range(60)))
        for domain in ("code", "prose")
        for number in range(60)
    ]
    assert {d.domain for d in documents if d.held_out} == {"code", "prose"}
    tokenizer = kept_tokenizer(tmp_path_factory.mktemp("corpus"), documents, vocab_size=SPEC.vocab_size)
    return Corpus(documents, tokenizer, SPEC)


def trainer_of(corpus: Corpus, work: Path) -> TargetTrainer:
    return TargetTrainer(from_scratch(SPEC, PLAN, corpus.tokenizer), PLAN, corpus, work)


def test_rows_are_packed_on_the_block_grid(corpus):
    batch = corpus.packer(replace(PLAN, row_length=320, math_share=1.0, arithmetic_share=0.0)).batch(
        seed=3, num_rows=12
    )
    for row in range(12):
        segments = batch.segments[row]
        starts = [0, *((segments.diff() != 0).nonzero().squeeze(-1) + 1).tolist()]
        assert all(start % SPEC.block_length == 0 for start in starts)
        assert batch.positions[row, starts].tolist() == [0] * len(starts)
    math = batch.domains == TRAINED_DOMAINS.index("math")
    drills = batch.domains == TRAINED_DOMAINS.index("arithmetic")
    assert math.any()
    assert drills.any(), "drills fill what is too short for a problem"
    for rows, allowed in (
        (math, [QUESTION_WEIGHT, SOLUTION_WEIGHT, RESULT_WEIGHT, PADDING_WEIGHT]),
        (drills, [RESULT_WEIGHT, PADDING_WEIGHT]),
    ):
        assert set(batch.weights[rows].tolist()) == set(torch.tensor(allowed).tolist())
    results = corpus.tokenizer.decode(batch.tokens[batch.weights == RESULT_WEIGHT].tolist())
    assert results.replace(" ", "").isdigit()
    fill = math & (batch.weights == PADDING_WEIGHT)
    assert (batch.tokens[fill] == 1).all(), "only end tokens fill a block"
    assert (batch.tokens != SPEC.mask_id).all()


def test_equations_are_right_and_their_later_mentions_are_found():
    rng = random.Random(5)
    for _ in range(300):
        equation = sample_equation(rng)
        left, right = equation.split(" = ")
        assert eval(left) == int(right)
        assert 2 <= int(right) <= 999
        assert EQUATION.fullmatch(equation)
    text = " He has 9 * 5 = 45 figs. Then 45 + 145 = 190 figs. The answer is 190."
    results, mentions = result_spans(text)
    assert [text[slice(*span)] for span in results] == ["45", "190"]
    assert [(text[slice(*span)], span[0]) for span in mentions] == [
        ("45", text.index("45 +")),
        ("190", text.rindex("190")),
    ]


def test_hidden_results_are_masked_together_and_other_blocks_are_not_touched():
    results = torch.zeros(400, 32, dtype=torch.bool)
    results[:, [3, 4, 9]] = True  # first of two blocks only
    plain = sample_masks(torch.zeros_like(results), 16, seed=2)
    masks = sample_masks(results, 16, seed=2)
    assert torch.equal(masks[:, 16:], plain[:, 16:])
    together = masks[:, [3, 4, 9]].all(-1)
    assert HIDDEN_RESULTS < together.float().mean() < HIDDEN_RESULTS + 0.15
    others = masks[together][:, [0, 1, 2, 5, 6, 7, 8]].float().mean()
    assert 0.02 < others < 0.2, "operands mostly stay visible"


def test_batches_are_a_function_of_the_seed(corpus):
    packer = corpus.packer(PLAN)
    first, again, other = (packer.batch(seed, 4) for seed in (5, 5, 6))
    assert torch.equal(first.tokens, again.tokens)
    assert torch.equal(first.masked, again.masked)
    assert not torch.equal(first.tokens, other.tokens)


def test_held_out_text_is_not_trained_on(corpus):
    trained = {tuple(corpus.streams[False][d].tokens.tolist()) for d in ("code", "prose")}
    held_out = {tuple(corpus.streams[True][d].tokens.tolist()) for d in ("code", "prose")}
    assert not trained & held_out
    text = corpus.tokenizer.decode(corpus.streams[False]["code"].tokens.tolist())
    names = [f"code {n}\n" for n in range(60) if Document("code", f"code/{n}", "").held_out]
    assert names
    assert not any(name in text for name in names)


def test_an_interrupted_run_ends_where_an_uninterrupted_one_does(corpus, tmp_path):
    whole = trainer_of(corpus, tmp_path / "whole")
    whole.run()
    broken = trainer_of(corpus, tmp_path / "broken")
    steps = iter(range(3))

    def stop(run=broken.train_step):
        if next(steps, None) is None:
            raise KeyboardInterrupt
        return run()

    broken.train_step = stop  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        broken.run()
    resumed = trainer_of(corpus, tmp_path / "broken")
    assert resumed.resume()
    assert resumed.step == 3
    resumed.run()
    for name, tensor in whole.trainee.network.state_dict().items():
        assert torch.equal(resumed.trainee.network.state_dict()[name], tensor), name
    row = json.loads((tmp_path / "broken" / "log.jsonl").read_text().splitlines()[-1])
    assert row["tokens"] == PLAN.tokens
    assert row["held_out"].keys() == set(TRAINED_DOMAINS) - {"chat"}


def test_an_export_is_a_model_directory(corpus, tmp_path):
    trainer = trainer_of(corpus, tmp_path)
    for parameter in trainer.trainee.network.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    trainer.save()
    lm = dlmspec.load(tmp_path / "export")
    assert (lm.target.spec.block_length, lm.target.spec.mask_id, lm.target.spec.stop_ids) == (8, 0, (1,))
    out = lm.generate("line 3 of", max_new_tokens=10)
    assert len(out.token_ids) <= 10
    assert lm.tokenizer.convert_ids_to_tokens([0, 1]) == ["<|mask|>", "<|eos|>"]
    again = trainer_of(corpus, tmp_path / "again")
    start_from(again.trainee.network, tmp_path / "export")
    for name, tensor in trainer.trainee.network.state_dict().items():
        assert torch.equal(again.trainee.network.state_dict()[name], tensor.bfloat16().float())
    digits = lm.tokenizer.encode("1234")
    assert len(digits) == 4, "digits never merge"


def test_the_rate_warms_up_and_decays():
    plan = TrainingPlan(tokens=6144 * 100, warmup_steps=10, decay_share=0.3)
    assert plan.num_steps == 100
    assert plan.rate(0) == pytest.approx(0.1)
    assert plan.rate(50) == 1.0
    assert plan.rate(85) == pytest.approx(0.5)
    assert plan.rate(99) == pytest.approx(1 / 30)
    assert training.TrainingPlan(first_step=40).rate(40) < 0.05, "a resumed run warms up again"
