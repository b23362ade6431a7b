"""The library's front: names, prompts in all forms, batches, seeds, streams.

Catches: options silently ignored, a batch row that depends on its peers, a stream that loses or repeats commits,
a wrong drafter for the rule, text with masks or behind a stop string, a stop string that ends one drafter's answer
elsewhere than another's, an answer that is silently empty because its tokenizer has another file name, missing or
damaged files without a remedy.
"""

import json
import shutil

import pytest

import dlmspec
from dlmspec.drafters.registry import fitting_drafter, make_drafter
from dlmspec.engine import is_batch
from dlmspec.rules import LowConfidenceDynamic, LowConfidenceStatic
from dlmspec.shipped import find_model, shipped_names
from dlmspec.stops import StopSearch, find_stop


@pytest.fixture(scope="module")
def lm(tiny_sdar):
    return dlmspec.load(tiny_sdar(block_length=5))


@pytest.fixture(scope="module")
def pocket():
    return dlmspec.load("pocket")


def test_ids_in_ids_out(lm):
    out = lm.generate([3, 4, 5], max_new_tokens=9, drafter="confidence-tree")
    assert len(out.token_ids) <= 9
    assert out.drafter == "confidence-tree"
    assert out.dtype == "float32"
    assert out.finish_reason in ("stop", "length")


def test_a_batch_row_does_not_depend_on_its_peers(lm):
    prompts = [[3, 4, 5], [6], [3, 4, 5], [7] * 11]
    options = {"max_new_tokens": 8, "temperature": 1.0, "drafter": "confidence-tree"}
    together = lm.generate(prompts, seed=[1, 2, 1, 3], **options)
    alone = [lm.generate(p, seed=s, **options) for p, s in zip(prompts, [1, 2, 1, 3], strict=True)]
    assert [row.token_ids for row in together] == [row.token_ids for row in alone]
    assert together[0].token_ids == together[2].token_ids
    same_seed = lm.generate([prompts[0]] * 2, seed=5, **options)
    assert same_seed[0].token_ids == same_seed[1].token_ids
    assert lm.generate([], **options) == []


def test_seeds_change_samples_and_nothing_else_does(lm):
    options = {"max_new_tokens": 12, "temperature": 1.0}
    outputs = {lm.generate([3, 4], seed=seed, **options).token_ids for seed in range(6)}
    assert len(outputs) > 1
    assert (
        lm.generate([3, 4], seed=1, budget=2, drafter="random", **options).token_ids
        == lm.generate([3, 4], seed=1, budget=9, drafter="confidence", **options).token_ids
    )


def test_parity_is_reported(lm):
    report = lm.verify_parity([[3, 4, 5], [6]], drafters=["confidence", "random"], budgets=(2, 6), max_new_tokens=7)
    assert report.exact_match == 1.0
    assert {(row.drafter, row.budget) for row in report.rows} == {
        ("store-passes", 1), ("confidence", 2), ("confidence", 6), ("random", 2), ("random", 6),
    }  # fmt: skip
    assert report.decodes == 10


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"temprature": 1.0}, TypeError, "temprature"),
        ({"temperature": -1.0}, ValueError, "temperature"),
        ({"rule": "fastest"}, ValueError, "unknown rule 'fastest'"),
        ({"drafter": "psychic"}, ValueError, "unknown drafter 'psychic'"),
        ({"confidence": "high"}, ValueError, "unknown confidence"),
        ({"budget": 0}, ValueError, "budget"),
        ({"max_new_tokens": 600}, ValueError, "do not fit the context"),
        ({"seed": [1, 2]}, ValueError, "seeds"),
    ],
)
def test_bad_options_are_refused(lm, options, error, message):
    with pytest.raises(error, match=message):
        lm.generate([3, 4], **{"max_new_tokens": 4, **options})


def test_a_bad_prompt_is_refused_before_the_others_are_decoded(lm, monkeypatch):
    monkeypatch.setattr("dlmspec.decode.Request", lambda *_: pytest.fail("a prompt was decoded"))
    for bad, message in (([], "empty"), ([66], "mask id"), ([70], "outside the vocabulary"), ([3] * 510, "context")):
        for use in (lm.generate, lm.verify_parity):
            with pytest.raises(ValueError, match=f"prompt 2 of 3: .*{message}"):
                use([[3, 4], bad, [5]], max_new_tokens=4)


def test_text_needs_a_tokenizer(lm):
    with pytest.raises(ValueError, match="no usable tokenizer"):
        lm.encode("hello")
    with pytest.raises(ValueError, match="no usable tokenizer"):
        lm.generate([3, 4], stop_strings=["."])
    assert lm.generate([3, 4], max_new_tokens=4).text == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"tokenizer.json: not readable as JSON"),  # at the load, which looks for the token that ends a chat
        ("[]", r"tokenizer.json: expected a JSON object"),
        ('{"model": 3}', r"no usable tokenizer \(.*\); pass token ids"),
        ('{"added_tokens": [{"content": "m"}]}', r"no usable tokenizer \(.*\); pass token ids"),
    ],
)
def test_a_damaged_tokenizer_is_named(tiny_sdar, text, message):
    directory = tiny_sdar()
    (directory / "tokenizer.json").write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        dlmspec.load(directory).encode("hello")
    assert "\n" not in str(caught.value)


def test_a_stream_checks_its_options_at_the_call(lm):
    with pytest.raises(TypeError, match="bogus"):
        lm.stream([3, 4], bogus=1)
    with pytest.raises(ValueError, match="unknown drafter"):
        lm.stream([3, 4], drafter="psychic")


def test_parity_takes_one_prompt_and_refuses_none(lm):
    report = lm.verify_parity([3, 4, 5], drafters=["confidence"], budgets=(4,), max_new_tokens=5)
    assert report.decodes == 2
    with pytest.raises(ValueError, match="no prompts"):
        lm.verify_parity([], max_new_tokens=5)


@pytest.mark.parametrize(
    ("text", "stops", "place"),
    [
        ("one two", "two", 4),
        ("one two", ["two", "one"], 0),
        ("one two", ["three", ""], None),
        ("one two", (), None),
        ("abc", ["abc", "b"], 1),  # `b` is complete first, whatever follows
    ],
)
def test_the_stop_string_that_is_complete_first_wins(text, stops, place):
    assert find_stop(text, stops) == place


@pytest.mark.parametrize("sizes", [[1, 1, 1, 1, 1], [5], [3, 2], [0, 4, 1]])
def test_a_stop_is_found_at_the_same_token_in_any_portions(sizes):
    """Half a character reads as another sign until the next token: a stop that shows for one token only counts."""
    texts = ["", "a", "a?", "aé", "aéb", "aébc"]
    for stop, expected in (("?", ((0, 1), "a")), ("éb", ((0, 1, 2, 3), "a")), ("x", None)):
        search, known, found = StopSearch(stop, lambda ids: texts[len(ids)]), 0, None
        for size in sizes:
            known += size
            found = found or search.look(tuple(range(known)))
        assert found == expected


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_stop_string_ends_every_decode_at_the_same_token(pocket, temperature):
    options = {"max_new_tokens": 64, "temperature": temperature, "seed": 2}
    whole = pocket.generate("In the beginning", drafter="none", **options)
    stop = whole.text[12:16]
    end = next(n for n in range(65) if stop in pocket.decode_text(whole.token_ids[:n]))
    assert end < 40
    runs = [("none", 1), ("confidence", 4), ("confidence-tree", 16), ("random", 7), ("oracle", 16)]
    for drafter, budget in runs:
        full = pocket.generate("In the beginning", drafter=drafter, budget=budget, **options)
        cut = pocket.generate("In the beginning", drafter=drafter, budget=budget, stop_strings=["zzz", stop], **options)
        assert (cut.text, cut.finish_reason) == (whole.text[: whole.text.index(stop)], "stop_string")
        assert cut.token_ids == whole.token_ids[:end]
        assert cut.stats.num_passes < full.stats.num_passes, "nothing is decoded behind the stop"
        *_, last = pocket.stream("In the beginning", drafter=drafter, budget=budget, stop_strings=stop, **options)
        assert last.text == cut.text
    never = pocket.generate("In the beginning", drafter="confidence", stop_strings="no such text", **options)
    assert (never.text, never.token_ids, never.finish_reason) == (whole.text, whole.token_ids, whole.finish_reason)


def test_forms_of_prompts_are_told_apart():
    assert not is_batch("text")
    assert not is_batch([1, 2])
    assert not is_batch([{"role": "user", "content": "hi"}])
    assert is_batch(["a", "b"])
    assert is_batch([[1], [2]])
    assert is_batch([])


def test_unknown_models_are_refused_with_the_shipped_names(tmp_path):
    with pytest.raises(ValueError, match="pocket"):
        find_model("nothing-like-it")
    with pytest.raises(ValueError, match=r"no model directory|config\.json"):
        dlmspec.load(tmp_path)
    assert "pocket" in shipped_names()


def test_the_drafter_fits_target_and_rule():
    assert fitting_drafter("pocket", LowConfidenceStatic(), 16).name == "spot"
    assert fitting_drafter("pocket", LowConfidenceDynamic(), 16).name == "confidence"
    assert fitting_drafter("another", LowConfidenceStatic(), 16).name == "confidence"
    with pytest.raises(ValueError, match="no drafter is shipped for target 'another'"):
        make_drafter("spot", "another")


def test_the_shipped_model_answers_in_text(pocket):
    prompt = "Question: Mia picks 34 apples and 17 pears. How many pieces of fruit does Mia have?\nAnswer:"
    out = pocket.generate(prompt, max_new_tokens=48)
    assert out.text.strip()
    assert "<|" not in out.text
    stop = out.text[8:12]
    cut = pocket.generate(prompt, max_new_tokens=48, stop_strings=[stop])
    assert cut.finish_reason == "stop_string"
    assert cut.text == out.text[: out.text.find(stop)]
    assert "".join(e.text for e in [*pocket.stream(prompt, max_new_tokens=48, stop_strings=stop)][-1:]) == cut.text
    with pytest.raises(ValueError, match="no chat template"):
        pocket.generate([{"role": "user", "content": "hi"}])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_stream_commits_every_token_once(pocket, temperature):
    options = {"max_new_tokens": 40, "temperature": temperature, "seed": 4}
    out = pocket.generate("In the beginning", **options)
    committed: dict[int, int] = {}
    text = ""
    for event in pocket.stream("In the beginning", **options):
        assert not committed.keys() & set(event.positions)
        committed.update(zip(event.positions, event.token_ids, strict=True))
        text = event.text
    assert tuple(committed[i] for i in range(len(out.token_ids))) == out.token_ids
    assert text == out.text


def test_half_a_character_does_not_break_the_text(pocket):
    ids = pocket.encode("é€")
    for count in range(len(ids) + 1):
        assert isinstance(pocket.decode_text(ids[:count]), str)
    assert pocket.decode_text([*ids, pocket.target.spec.mask_id, *pocket.target.spec.stop_ids]) == "é€"


def test_a_tokenizer_in_the_qwen_files_gives_text_and_runs_no_remote_code(pocket, tmp_path):
    """SDAR's releases hold vocab.json and merges.txt, not tokenizer.json."""
    directory = tmp_path / "pocket"
    shutil.copytree(find_model("pocket"), directory)
    content = json.loads((directory / "tokenizer.json").read_text())
    (directory / "tokenizer.json").unlink()
    (directory / "vocab.json").write_text(json.dumps(content["model"]["vocab"]))
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in content["model"]["merges"]]
    (directory / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]))
    added = {str(t["id"]): {"content": t["content"], "special": True} for t in content["added_tokens"]}
    settings = {"tokenizer_class": "Qwen2Tokenizer", "mask_token": "<|mask|>", "added_tokens_decoder": added}
    settings["auto_map"] = {"AutoTokenizer": ["tokenization_remote.Remote", None]}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    (directory / "tokenization_remote.py").write_text("raise SystemExit('remote code ran')\n")
    ids = pocket.encode("In the beginning")
    options = {"max_new_tokens": 8, "drafter": "confidence"}
    assert dlmspec.load(directory).generate(ids, **options).text == pocket.generate(ids, **options).text != ""


def test_a_damaged_shipped_copy_is_refused(tmp_path):
    broken = tmp_path / "pocket"
    shutil.copytree(find_model("pocket"), broken)
    weights = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        dlmspec.load(broken)
    (broken / "model.safetensors").write_bytes(weights)
    config = json.loads((broken / "config.json").read_text())
    del config["mask_token_id"]
    (broken / "config.json").write_text(json.dumps(config))
    assert dlmspec.load(broken).target.spec.mask_id == 0, "found through the tokenizer"
