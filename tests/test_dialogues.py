"""Dialogues that a model gives itself.

Catches: an interrupted recording that repeats or loses answers, answers that depend on their batch, a held-out topic
that is trained on, a question that is weighted like an answer.
"""

import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from dlmspec.models.spec import NO_MASK, ModelSpec
from dlmspec.models.target import Target
from dlmspec.models.transformer import BlockDiffusionTransformer
from dlmspec.training import dialogues
from dlmspec.training.batches import PADDING_WEIGHT, TRAINED_DOMAINS, RowPacker
from dlmspec.training.corpus import Document
from dlmspec.training.dialogues import Dialogue, read_dialogues, record_dialogues
from dlmspec.training.instructions import all_instructions
from dlmspec.training.network import BlockDiffusionNetwork
from dlmspec.training.target import Corpus, TrainingPlan

SPEC = ModelSpec(
    name="tiny-ar", family="llama", hidden_size=16, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=8,
    intermediate_size=24, vocab_size=300, rms_norm_eps=1e-6, rope_theta=10_000.0, max_position_embeddings=512,
    tie_word_embeddings=True, block_length=1, mask_id=NO_MASK, stop_ids=(1,), qk_norm=False, logit_shift=True,
)  # fmt: skip


@pytest.fixture
def lm():
    """A random autoregressive model over characters."""
    torch.manual_seed(0)
    weights = {name: tensor.detach() for name, tensor in BlockDiffusionNetwork(SPEC).state_dict().items()}
    weights["model.embed_tokens.weight"] = 0.3 * torch.randn(300, 16)  # soft enough to sample
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    target = Target(SPEC, BlockDiffusionTransformer(SPEC, weights), Path("tiny"), torch.float32, torch.device("cpu"))
    return SimpleNamespace(
        target=target,
        encode=lambda text: [2 + ord(character) % 250 for character in text],
        decode_text=lambda ids: " ".join(str(token) for token in ids if token != 1),
        tokenizer=SimpleNamespace(apply_chat_template=lambda messages, **_: f"<{messages[0]['content']}>"),
    )


def test_an_interrupted_recording_goes_on_with_the_answers_it_would_have_given(lm, tmp_path, monkeypatch):
    monkeypatch.setattr(dialogues, "MAX_NEW_TOKENS", 6)
    instructions = all_instructions()[:7]
    monkeypatch.setattr(dialogues, "BATCH", 4)
    record_dialogues(lm, instructions, tmp_path / "whole.jsonl")
    monkeypatch.setattr(dialogues, "BATCH", 3)
    record_dialogues(lm, instructions[:2], tmp_path / "broken.jsonl")
    record_dialogues(lm, instructions, tmp_path / "broken.jsonl")
    whole = read_dialogues(tmp_path / "whole.jsonl")
    assert whole == read_dialogues(tmp_path / "broken.jsonl")
    assert [row.id for row in whole] == [instruction.name for instruction in instructions]
    assert [row.prompt for row in whole] == [f"<{instruction.text}>" for instruction in instructions]
    assert len({row.answer for row in whole}) > 1
    with (tmp_path / "broken.jsonl").open("a") as file:
        file.write('{"id": "half')
    record_dialogues(lm, instructions, tmp_path / "broken.jsonl")
    assert whole == read_dialogues(tmp_path / "broken.jsonl"), "a half-written line is dropped"
    with (tmp_path / "broken.jsonl").open("a") as file:
        file.write('{"id": "other"}\n')
    with pytest.raises(ValueError, match=r"broken\.jsonl:8: no dialogue"):
        read_dialogues(tmp_path / "broken.jsonl")
    with pytest.raises(ValueError, match="--dialogues"):
        read_dialogues(tmp_path / "none.jsonl")


def test_a_line_separator_in_an_answer_does_not_break_its_line(lm, tmp_path, monkeypatch):
    lm.decode_text = lambda ids: "one\u2028two\x85three"
    monkeypatch.setattr(dialogues, "MAX_NEW_TOKENS", 3)
    for _ in range(2):
        record_dialogues(lm, all_instructions()[:2], tmp_path / "lines.jsonl")
    assert [row.answer for row in read_dialogues(tmp_path / "lines.jsonl")] == ["one\u2028two\x85three"] * 2


def test_an_answer_says_whether_it_came_to_its_end(lm, monkeypatch):
    monkeypatch.setattr(dialogues, "MAX_NEW_TOKENS", 12)
    stops = tuple(range(1, 25))
    lm.target = replace(lm.target, spec=replace(SPEC, stop_ids=stops))
    rows = dialogues.answer(lm, all_instructions()[:12])
    assert {row.is_whole for row in rows} == {True, False}
    assert all(row.is_whole == (not row.answer or int(row.answer.split()[-1]) in stops) for row in rows)


def test_held_out_dialogues_are_never_trained_on():
    tokenizer = Tokenizer(models.WordLevel({"q": 2, "w": 3}, unk_token="q"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    documents = [Document(domain, f"{domain}/{n}", "q w\n" * 40) for domain in ("code", "prose") for n in range(60)]
    talks = [Dialogue(str(n), "q", "w", True, n % 3 == 0) for n in range(9)]
    spec = replace(SPEC, block_length=8, mask_id=0)
    plan = TrainingPlan(row_length=64, math_share=0.0, arithmetic_share=0.0, chat_share=1.0)
    corpus = Corpus(documents, tokenizer, spec, talks)
    for held_out in (False, True):
        found = {dialogue.id for dialogue in corpus.packer(plan, held_out=held_out).dialogues}
        assert found == {talk.id for talk in talks if talk.held_out == held_out}
    with pytest.raises(ValueError, match="no held-out dialogues"):
        Corpus(documents, tokenizer, spec, talks[1:3]).packer(plan, held_out=True)


def test_chat_rows_hold_whole_dialogues_and_weigh_answers():
    tokenizer = Tokenizer(
        models.WordLevel({word: 2 + n for n, word in enumerate(["q", "w", "a", "s", "d"])}, unk_token="q")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    talks = [Dialogue(str(n), "q w " * (n + 1), "a s d " * (n + 2), True, False) for n in range(3)]
    spec = replace(SPEC, block_length=8, mask_id=0)
    packer = RowPacker({}, talks, tokenizer, spec, row_length=64, shares={"chat": 1.0}, held_out=False)
    row = packer._chat_piece(random.Random(0))
    assert len(row.tokens) % 8 == 0
    assert row.domain == TRAINED_DOMAINS.index("chat")
    question, answer = row.weights == PADDING_WEIGHT, row.weights == 1.0
    assert set(row.tokens[answer]) == {1, 4, 5, 6}, "the answer and one end token"
    assert set(row.tokens[question]) <= {1, 2, 3}
    assert (row.tokens[answer] == 1).sum() == 1
    cut = Dialogue("cut", "q w", "a s d " * 5, False, False)  # 17 tokens
    packer.dialogues = [cut]
    row = packer._chat_piece(random.Random(0))
    assert len(row.tokens) == 16, "whole blocks of what is known"
    assert (row.tokens != 1).all(), "no end where the answer goes on"
    assert (row.weights[2:] == 1.0).all()
