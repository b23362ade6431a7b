"""Tests of the benchmark's prompts and of their reader.

They catch prompts from what training saw, duplicates, prompts too long for the shipped model, answers that
are not the problem's, a limit that takes one source only, and a reader that hides which line is damaged.
"""

import json
import random
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from dlmspec.bench.prompt_sets import SETS, Prompt, domain_name, load_prompts
from dlmspec.training.corpus import Document
from dlmspec.training.instructions import all_instructions
from dlmspec.training.math_problems import TEMPLATES, is_held_out_question, sample_training_problem
from dlmspec.training.prompts import MAX_TOKENS, build_prompt_sets, chat_prompts, code_prompts, math_prompts

ROOT = Path(__file__).parents[1]


def source(prompt: Prompt) -> str:
    """`domain/name` without the number."""
    return prompt.id.rpartition("#")[0]


@pytest.mark.parametrize("domain", SETS)
def test_sets_are_large_and_hold_nothing_twice(domain: str):
    prompts = load_prompts(domain)
    assert len(prompts) >= 200
    assert len({prompt.id for prompt in prompts}) == len(prompts)
    assert len({prompt.prompt for prompt in prompts}) == len(prompts)
    assert all(prompt.prompt == prompt.prompt.rstrip() for prompt in prompts)


@pytest.mark.parametrize("domain", SETS)
def test_a_limit_spreads_over_sources(domain: str):
    assert len({source(prompt) for prompt in load_prompts(domain, 16)}) == 16


@pytest.mark.parametrize(("name", "held_out"), [("math", True), ("math-known", False)])
def test_math_is_held_out_even_and_answered_right(name: str, held_out: bool):
    prompts = load_prompts(name)
    templates = [template for template in TEMPLATES if template.held_out == held_out]
    names = {f"math/{template.name}" for template in templates}
    assert {source(prompt) for prompt in prompts} == names
    counts = [sum(source(prompt) == template for prompt in prompts) for template in names]
    assert max(counts) - min(counts) <= 1
    # answers come from the generator, whose equations are tested; a stale file differs here
    again = [Prompt(**row) for row in math_prompts(len(prompts), templates)]
    assert prompts == again


@pytest.mark.parametrize("domain", ["code", "prose"])
def test_excerpts_come_from_held_out_documents(domain: str):
    prompts = load_prompts(domain)
    assert all(prompt.answer is None for prompt in prompts)
    assert all(Document(domain, source(prompt).partition("/")[2], "").held_out for prompt in prompts)


def test_trained_templates_are_asked_with_numbers_that_training_leaves_out():
    questions = [
        prompt.prompt.removeprefix("Question: ").removesuffix("\nAnswer:") for prompt in load_prompts("math-known")
    ]
    assert all(map(is_held_out_question, questions))
    rng = random.Random(3)
    assert not any(is_held_out_question(sample_training_problem(rng).question) for _ in range(2000))


def test_chat_asks_about_held_out_topics_only():
    """A topic is held out with its kind: what is trained on never names it in the same kind of question."""
    prompts = load_prompts("chat")
    assert prompts == [Prompt(**row) for row in chat_prompts()], "a stale file differs"
    assert all(prompt.chat for prompt in prompts)
    topics = {held: {i.name.partition("#")[0] for i in all_instructions() if i.held_out == held} for held in (0, 1)}
    assert not topics[0] & topics[1]
    assert {prompt.id.removeprefix("chat/").partition("#")[0] for prompt in prompts} == topics[1]
    assert prompts[0].content == [{"role": "user", "content": prompts[0].prompt}]


def test_prose_is_half_bible():
    names = [source(prompt) for prompt in load_prompts("prose")]
    assert sum(name.startswith("prose/kjv/") for name in names) * 2 == len(names)


@pytest.mark.parametrize("domain", SETS)
def test_prompts_fit_the_shipped_model(domain: str):
    path = ROOT / "models" / "pocket" / "tokenizer.json"
    if not path.is_file():
        pytest.skip("models/pocket is not trained yet")
    tokenizer = Tokenizer.from_file(str(path))
    assert all(len(tokenizer.encode(prompt.prompt).ids) <= MAX_TOKENS for prompt in load_prompts(domain))


def make_documents() -> list[Document]:
    """Two held-out and two other documents per kind, of distinct lines."""
    rng = random.Random(0)
    documents = []
    for domain, prefix in (("code", "Lib/"), ("prose", "kjv/"), ("prose", "Doc/")):
        names = {True: 0, False: 0}
        for number in range(400):
            document = Document(domain, f"{prefix}{number}", "")
            if names[document.held_out] == 2:
                continue
            names[document.held_out] += 1
            words = ("".join(rng.choices("abcdefgh", k=5)) for _ in range(12_000))
            lines = "\n".join(f"The {next(words)} of {next(words)} {next(words)}." for _ in range(4_000))
            documents.append(Document(domain, document.name, f"# copyright notice\n{lines}"))
    return documents


def test_building_writes_what_the_reader_reads(tmp_path: Path):
    documents = make_documents()
    tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    counts = build_prompt_sets(documents, tokenizer, tmp_path)
    assert counts == {**dict.fromkeys(SETS, 240), "chat": len(chat_prompts())}
    names = {document.name for document in documents if document.held_out}
    for domain in ("code", "prose"):
        prompts = load_prompts(tmp_path / f"{domain}.jsonl")
        assert {source(prompt).partition("/")[2] for prompt in prompts} <= names
        assert all(48 <= len(tokenizer.encode(prompt.prompt).ids) <= MAX_TOKENS for prompt in prompts)
        assert not any("copyright" in prompt.prompt for prompt in prompts)
    assert {path.suffix for path in tmp_path.iterdir()} == {".jsonl"}
    with pytest.raises(ValueError, match="held-out documents give"):
        code_prompts([], tokenizer, 1)


def test_unknown_prompts_are_named_with_the_known():
    with pytest.raises(ValueError, match=r"'poems'.*math, code, prose"):
        load_prompts("poems")
    with pytest.raises(ValueError, match="cannot read"):
        load_prompts("/nowhere/poems.jsonl")
    with pytest.raises(ValueError, match="limit"):
        load_prompts("math", 0)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "3",
        '{"id": "a"}',
        '{"id": "a", "prompt": ""}',
        '{"id": "a", "prompt": "p", "answer": "7"}',
        '{"id": "a", "prompt": "p", "chat": 1}',
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str):
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps({"id": "1", "prompt": "héllo", "answer": 4}) + "\n\n" + line + "\n", "utf-8")
    with pytest.raises(ValueError, match=r"own\.jsonl:3: "):
        load_prompts(path)


def test_a_line_separator_within_a_string_ends_no_line(tmp_path: Path):
    """JSON strings may hold U+2028, U+0085 and form feeds of other kinds unescaped; files may end lines in CR LF."""
    path = tmp_path / "own.jsonl"
    texts = ["one\u2028two", "three\u0085four", "five\u2029six"]
    lines = [json.dumps({"id": f"a#{i}", "prompt": text}, ensure_ascii=False) for i, text in enumerate(texts)]
    path.write_bytes("\r\n".join(lines).encode())
    assert [prompt.prompt for prompt in load_prompts(path)] == texts


def test_own_files_are_read(tmp_path: Path):
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps({"id": "1", "prompt": "héllo", "answer": 4}) + "\n", "utf-8")
    assert load_prompts(str(path)) == [Prompt("1", "héllo", 4)]
    assert domain_name(path) == "own"
    path.write_text("\n")
    with pytest.raises(ValueError, match="holds no prompts"):
        load_prompts(path)
