"""The command line, run in process: output, exit codes, and one clear line for bad input.

Catches: a command that cannot start, a traceback instead of a message, results half-written or written after the
work instead of refused before it, JSON mixed with other output, a neighbour's file overwritten by a temporary one, a
parity check of nothing that reports success, a long command that a bad prompt ends half-way, `auto` resolved for
another rule than the one that runs.
"""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from dlmspec import load
from dlmspec.cli import build_parser, main
from dlmspec.cli.options import progress_bar, rules_from
from dlmspec.drafters.adversarial import RandomDrafter
from dlmspec.drafters.confidence import ConfidenceDrafter
from dlmspec.presets import PRESETS
from dlmspec.request import Request
from dlmspec.rules import RULES, EntropyBounded, LowConfidenceDynamic

from .families import saved, saved_llada, saved_llada2

VERIFY_KEYS = [
    "target", "dtype", "block_length", "domain", "rule", "rule_args", "temperature", "noise", "cache", "seed",
    "drafter", "budget", "tokens", "decodes", "identical", "mismatches", "exact_match",
]  # fmt: skip


def run(capsys, *argv: str) -> tuple[int, str, str]:
    code = main(list(argv))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_generate_answers_and_compares(capsys):
    code, out, _ = run(
        capsys, "generate", "pocket", "Question: 3 + 4?\nAnswer:", "--max-new-tokens", "20",
        "--compare", "--threads", "1",
    )  # fmt: skip
    assert code == 0
    assert "target passes" in out
    assert "reference" in out
    assert "yes" in out
    assert "NO" not in out


def test_generate_compares_up_to_a_stop_string(capsys):
    code, out, _ = run(
        capsys, "generate", "pocket", "In the beginning", "--max-new-tokens", "32", "--compare",
        "--stop-strings", "the", "--drafter", "confidence-tree",
    )  # fmt: skip
    assert code == 0
    assert "finished by stop_string" in out
    assert "reference, folded" in out
    assert "NO" not in out


def test_json_on_stdout_is_alone(capsys):
    code, out, _ = run(capsys, "generate", "pocket", "In the beginning", "--max-new-tokens", "12", "--json", "-")
    assert code == 0
    content = json.loads(out)
    assert content["schema"] == 1
    assert {"versions", "device", "threads", "load", "commit", "argv", "date"} <= content["meta"].keys()
    assert content["rows"][0]["num_passes"] >= 1


def test_flags_of_generate_reach_the_decoder(capsys):
    lm = load("pocket", block_length=8)
    options = {"max_new_tokens": 24, "temperature": 1.0, "seed": 5, "drafter": "none"}
    flags = {"confidence": "margin", "noise": "position"}
    whole = lm.generate("In the beginning", **flags, **options)
    stop = whole.text[12:16]
    code, out, _ = run(
        capsys, "generate", "pocket", "In the beginning", "--max-new-tokens", "24", "--temperature", "1", "--seed", "5",
        "--drafter", "confidence", "--confidence", "margin", "--noise", "position", "--device", "cpu",
        "--block-length", "8", "--mask-id", "0", "--stop-strings", "no such text", "--stop-strings", stop,
        "--json", "-",
    )  # fmt: skip
    assert code == 0
    expected = lm.generate("In the beginning", stop_strings=["no such text", stop], **flags, **options)
    (row,) = json.loads(out)["rows"]
    assert (row["text"], row["token_ids"]) == (expected.text, list(expected.token_ids))
    assert row["finish_reason"] == "stop_string"
    assert row["token_ids"] == list(whole.token_ids)[: len(row["token_ids"])]
    for changes in ({"confidence": "token_prob"}, {"noise": "step"}):
        other = lm.generate("In the beginning", **{**flags, **options, **changes})
        assert other.token_ids != whole.token_ids, "the flag makes a difference"


@pytest.mark.parametrize("command", ["verify", "bench", "record"])
def test_confidence_and_noise_reach_every_decoder(capsys, monkeypatch, tmp_path, command):
    seen = set()

    def noted(_target, _prompt, config, **_options):
        seen.add((config.sampling.confidence, config.noise))
        raise ValueError("seen")

    for module in ("parity", "training.record"):
        monkeypatch.setattr(f"dlmspec.{module}.reference_decode", noted)
    monkeypatch.setattr("dlmspec.bench.stale.reference_decode", noted)
    argv = {
        "verify": ["--drafters", "none"],
        "bench": ["--stale", "--rule", "factor", "--limit", "1"],
        "record": ["--out", str(tmp_path / "records")],
    }[command]
    code, _, err = run(
        capsys, command, "pocket", "--prompts", "math", *argv, "--confidence", "margin", "--noise", "position"
    )
    assert (code, err) == (2, "dlmspec: seen\n")
    assert seen == {("margin", "position")}


@pytest.mark.parametrize("command", ["verify", "bench", "record"])
def test_a_preset_reaches_every_decoder_and_flags_go_before_it(capsys, monkeypatch, tmp_path, command):
    seen = []

    def noted(_target, _prompt, config, **_options):
        seen.append((config.rule, config.sampling.confidence))
        raise ValueError("seen")

    for module in ("parity", "training.record", "bench.stale"):
        monkeypatch.setattr(f"dlmspec.{module}.reference_decode", noted)
    argv = {
        "verify": ["--drafters", "none", "--limit", "1"],
        "bench": ["--stale", "--limit", "1"],
        "record": ["--out", str(tmp_path / "records")],
    }[command]
    preset = PRESETS["fast-dllm"]
    for more, expected in (
        ([], (preset.rule, "raw_token_prob")),
        (["--confidence", "margin", "--threshold", "0.6"], (replace(preset.rule, threshold=0.6), "margin")),
    ):
        seen.clear()
        code, _, err = run(capsys, command, "pocket", "--prompts", "math", *argv, "--preset", "fast-dllm", *more)
        assert (code, err) == (2, "dlmspec: seen\n")
        assert set(seen) == {expected}


def test_the_cache_of_full_attention_is_chosen_on_the_command_line(capsys, tmp_path):
    saved_llada(tmp_path)
    vocabulary = {word: token for token, word in enumerate(["?", "one", "two", "three"], 20)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    prompts = tmp_path / "own.jsonl"
    prompts.write_text(json.dumps({"id": "a#0", "prompt": "one two three two one"}))
    answers = []
    for cache in ("none", "dual"):
        path = tmp_path / f"{cache}.json"
        code, _, _ = run(
            capsys, "verify", str(tmp_path), "--prompts", str(prompts), "--rules", "low_confidence_static",
            "--drafters", "confidence-tree", "--budgets", "4", "--max-new-tokens", "12", "--block-length", "8",
            "--cache", cache, "--json", str(path),
        )  # fmt: skip
        assert code == 0
        answers.append({row["cache"] for row in json.loads(path.read_text())["rows"]})
    assert answers == [{"none"}, {"dual"}]
    code, _, err = run(capsys, "verify", "pocket", "--prompts", "math", "--limit", "1", "--cache", "dual")
    assert (code, err.count("\n")) == (2, 1)
    assert "cache 'dual' is not defined for" in err


@pytest.mark.parametrize("command", ["generate", "demo", "verify", "bench", "record"])
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--device", "cuda:99"], "device 'cuda:99' is not to be had"),
        (["--block-length", "0"], "block length 0"),
        (["--mask-id", "99999"], "mask id 99999"),
    ],
)
def test_every_command_hands_on_what_a_model_is_loaded_with(capsys, command, flags, message):
    more = {"generate": ["hi"], "record": ["--prompts", "math", "--out", "records"]}.get(command, [])
    code, _, err = run(capsys, command, "pocket", *more, *flags)
    assert (code, err.count("\n")) == (2, 1)
    assert message in err


def test_verify_reports_every_configuration(capsys, tmp_path):
    path = tmp_path / "parity.json"
    code, out, _ = run(
        capsys, "verify", "pocket", "--prompts", "math,prose", "--limit", "1", "--temperature", "0,1", "--rules", "all",
        "--drafters", "confidence-tree,random", "--budgets", "3,9", "--max-new-tokens", "12", "--json", str(path),
    )  # fmt: skip
    assert code == 0
    assert "100.00%" in out
    rows = json.loads(path.read_text())["rows"]
    assert len(rows) == 2 * 2 * 5 * (1 + 2 * 2)
    assert all(row["identical"] == row["decodes"] and row["exact_match"] == 1.0 for row in rows)
    assert list(rows[0]) == VERIFY_KEYS
    assert (rows[0]["dtype"], rows[0]["block_length"], rows[0]["cache"]) == ("float32", 16, "prefix")
    dynamic = next(row for row in rows if row["rule"] == "low_confidence_dynamic")
    assert dynamic["rule_args"] == {
        "threshold": 0.9, "denoising_steps": None, "inclusive": False, "fallback": "confidence",
    }  # fmt: skip


def test_verify_fails_when_a_decode_differs(capsys, monkeypatch):
    original = Request.output

    def spoiled(request):
        output = original(request)
        if request.stats.num_nodes > request.stats.num_denoising_passes:  # only speculation has more than one node
            object.__setattr__(output, "token_ids", (*output.token_ids[:-1], 7))
        return output

    monkeypatch.setattr(Request, "output", spoiled)
    code, out, _ = run(
        capsys, "verify", "pocket", "--prompts", "math", "--limit", "1", "--temperature", "0",
        "--rules", "low_confidence_static", "--drafters", "confidence", "--budgets", "4", "--max-new-tokens", "12",
    )  # fmt: skip
    assert code == 1
    assert "0/1" in out


def test_auto_is_resolved_for_every_rule(capsys, monkeypatch, tmp_path):
    def fitting(target, rule, block_length):
        return RandomDrafter() if rule.name == "low_confidence_static" else ConfidenceDrafter()

    monkeypatch.setattr("dlmspec.engine.fitting_drafter", fitting)
    path = tmp_path / "parity.json"
    code, out, _ = run(
        capsys, "verify", "pocket", "--prompts", "math", "--limit", "1", "--temperature", "0", "--drafters", "auto",
        "--rules", "sequential,low_confidence_static", "--budgets", "4", "--max-new-tokens", "8", "--json", str(path),
    )  # fmt: skip
    assert code == 0
    assert "–" in out, "a drafter that a rule does not use is a dash"
    rows = [(row["rule"], row["drafter"]) for row in json.loads(path.read_text())["rows"]]
    assert ("low_confidence_static", "random") in rows
    assert ("sequential", "confidence") in rows


def test_a_neighbour_called_tmp_survives(capsys, tmp_path):
    neighbour = tmp_path / "out.json.tmp"
    neighbour.write_text("mine")
    code, _, _ = run(capsys, "generate", "pocket", "hi", "--max-new-tokens", "4", "--json", str(tmp_path / "out.json"))
    assert code == 0
    assert neighbour.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.json", "out.json.tmp"]


def test_record_and_train_make_a_drafter(capsys, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"id": str(i), "prompt": f"Question {i}:"}) + "\n" for i in range(21)))
    code, out, _ = run(
        capsys, "record", "pocket", "--prompts", str(prompts), "--temperature", "0", "--max-new-tokens", "8",
        "--out", str(tmp_path / "records"),
    )  # fmt: skip
    assert code == 0
    assert "steps of 21 decodes" in out
    code, out, _ = run(
        capsys, "train-drafter", str(tmp_path / "records"), "--steps", "3", "--out", str(tmp_path / "spot")
    )
    assert code == 0
    code, _, _ = run(
        capsys, "verify", "pocket", "--prompts", "math", "--limit", "1", "--rules", "low_confidence_static",
        "--drafters", str(tmp_path / "spot"), "--budgets", "6", "--max-new-tokens", "16",
    )  # fmt: skip
    assert code == 0


def test_doctor_knows_this_machine_and_a_directory(capsys, tiny_sdar):
    code, out, _ = run(capsys, "doctor")
    assert code == 0
    assert "row invariance" in out
    code, out, _ = run(capsys, "doctor", str(tiny_sdar(block_length=8)))
    assert code == 0
    assert "block_size in config.json" in out
    assert "parameters" in out
    assert "row invariance" in out
    directory = tiny_sdar(block_length=8, name="SDAR-b8")
    config = json.loads((directory / "config.json").read_text())
    del config["block_size"]
    (directory / "config.json").write_text(json.dumps(config))
    assert "8 (the name's suffix -b8)" in run(capsys, "doctor", str(directory))[1]


def test_doctor_says_what_a_family_is_decoded_as(capsys, tmp_path):
    saved_llada(tmp_path / "llada")
    saved_llada2(tmp_path / "llada2")
    for family in ("Dream", "Fast_dLLM_Qwen", "qwen3"):
        saved(tmp_path / family, family)
    expected = {
        "llada": ["llada (model_type 'llada')", "the whole canvas", "of the position itself", "from the prompt's end"],
        "llada2": ["llada2", "the blocks up to its own", "3 of 8, grouped_sigmoid", "8 (block_length in config.json)"],
        "Dream": ["the whole canvas", "of the row before", "from the prompt's end", "the family's default"],
        "Fast_dLLM_Qwen": ["the blocks up to its own", "of the row before", "in the first 8 positions with a mask"],
        "qwen3": ["the rows before it", "none (autoregressive)"],
    }
    for family, parts in expected.items():
        code, out, _ = run(capsys, "doctor", str(tmp_path / family))
        assert code == 0
        assert [part for part in parts if part not in out] == [], (family, out)


def test_doctor_says_when_rows_are_not_invariant(capsys, monkeypatch):
    for failing, expected in ((torch.float32, 1), (torch.bfloat16, 0)):
        counts = {failing: [3, 5]}
        monkeypatch.setattr("dlmspec.cli.doctor.row_invariant", lambda dtype, counts=counts: counts.get(dtype, []))
        code, out, _ = run(capsys, "doctor")
        assert code == expected
        line = next(line for line in out.splitlines() if f"invariance, {str(failing).removeprefix('torch.')}" in line)
        assert "FAILS for [3, 5] rows" in line


def test_a_directory_that_is_no_model_or_lacks_a_tensor(capsys, tiny_sdar, tmp_path):
    code, _, err = run(capsys, "generate", str(tmp_path), "hi")
    assert (code, err.count("\n")) == (2, 1)
    assert "not a model directory" in err
    directory = tiny_sdar(block_length=8)
    weights = load_file(directory / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    code, _, err = run(capsys, "generate", str(directory), "hi")
    assert (code, err.count("\n")) == (2, 1)
    assert "model.layers.1.mlp.up_proj.weight" in err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["generate", "no-such-model", "hi"], "no model is called 'no-such-model'"),
        (["generate", "pocket", ""], "the prompt is empty"),
        (["generate", "pocket", "<|mask|>"], "mask id"),
        (["generate", "pocket", "hi", "--max-new-tokens", "5000"], "do not fit the context"),
        (["generate", "pocket", "hi", "--rule", "magic"], "unknown rule 'magic'"),
        (["generate", "pocket", "hi", "--drafter", "magic"], "unknown drafter 'magic'"),
        (["generate", "pocket", "hi", "--gamma", "1"], "no option 'gamma'"),
        (["generate", "pocket", "hi", "--json", "/no/such/folder/out.json"], "cannot write"),
        (["generate", "pocket", "hi", "--threads", "0"], "--threads"),
        (["verify", "pocket", "--prompts", "poetry"], "poetry"),
        (["bench", "pocket", "--prompts", "poetry", "--allow-busy"], "poetry"),
        (["bench", "pocket", "--json", "/no/such/folder/out.json"], "cannot write"),
        (["bench", "pocket", "--plots", "/dev/null/plots"], "cannot write into"),
        (["train-drafter", "no-records", "--out", "/dev/null/drafter"], "cannot write into"),
        (["record", "pocket", "--prompts", "math", "--out", "/dev/null/records"], "cannot write into"),
        (["verify", "pocket", "--drafters", ","], "lists nothing"),
        (["verify", "pocket", "--budgets", "four"], "--budgets"),
        (
            ["verify", "pocket", "--rules", "sequential,factor", "--gamma", "1"],
            "--gamma is an option of entropy_bounded",
        ),
        (["verify", "pocket", "--rules", "factor", "--denoising-steps", "4"], "--denoising-steps is an option of seq"),
        (["verify", "pocket", "--rules", "magic", "--gamma", "1"], "unknown rule 'magic'"),
        (["generate", "pocket", "hi", "--confidence", "high"], "unknown confidence 'high'"),
        (["bench", "pocket", "--noise", "loud", "--drafters", "confidence"], "unknown noise 'loud'"),
        (["verify", "pocket", "--budgets", "0", "--prompts", "math", "--limit", "1"], "budget must be at least 1"),
        (["sing"], "COMMAND"),
        (["record", "pocket", "--prompts", "nowhere.jsonl", "--out", "records"], "nowhere.jsonl"),
        (["train-drafter", "no-records", "--out", "drafter"], "no recording"),
        (["train-drafter", "no-records", "--out", "drafter", "--steps", "0"], "steps must be at least 1, got 0"),
        (["train-drafter", "no-records", "--out", "drafter", "--batch", "0"], "batch must be at least 1, got 0"),
        (["generate", "pocket", "hi", "--dtype", "float99"], "dtype 'float99' is not supported"),
        (["doctor", "no-such-model"], "no model is called"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_two(capsys, argv, message):
    code, _, err = run(capsys, *argv)
    assert code == 2
    assert message in err
    assert err.startswith("dlmspec: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "argv",
    [
        ["record", "--out", "records"],
        ["verify", "--drafters", "random", "--rules", "sequential"],
        ["bench", "--drafters", "confidence", "--allow-busy"],
        ["bench", "--rule", "factor", "--stale"],
    ],
    ids=lambda argv: " ".join(argv[:1] + argv[3:]),
)
@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("word " * 300, "do not fit the context"),
        ("a <|mask|>", "mask id"),
        ("\ud83d", "half a character"),
    ],
)
def test_a_bad_prompt_ends_the_command_before_any_decode(capsys, monkeypatch, tmp_path, argv, prompt, message):
    def decoded(*_args, **_options):
        pytest.fail("a prompt was decoded")

    monkeypatch.setattr("dlmspec.decode.Request", decoded)
    monkeypatch.chdir(tmp_path)
    rows = [{"id": "fine", "prompt": "In the beginning"}, {"id": "bad one", "prompt": prompt}]
    (tmp_path / "own.jsonl").write_text("\n\n".join(map(json.dumps, rows)))
    code, _, err = run(capsys, argv[0], "pocket", *argv[1:], "--prompts", "own.jsonl", "--max-new-tokens", "250")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("dlmspec: prompt 'bad one' (own.jsonl:3): ")
    assert message in err
    assert not (tmp_path / "records").exists()


def test_a_flag_goes_to_the_rules_that_take_it():
    arguments = build_parser().parse_args(["verify", "pocket", "--rules", "all", "--gamma", "1", "--threshold", "0.5"])
    rules = {rule.name: rule for rule in rules_from(arguments)}
    assert rules.keys() == RULES.keys()
    assert rules["entropy_bounded"] == EntropyBounded(gamma=1.0)
    assert rules["low_confidence_dynamic"] == LowConfidenceDynamic(threshold=0.5)


def test_an_interrupt_ends_quietly(capsys, monkeypatch):
    def interrupted(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("dlmspec.cli.generating.load", interrupted)
    code, _, err = run(capsys, "generate", "pocket", "hi")
    assert code == 130
    assert err == "dlmspec: interrupted\n"


def test_a_long_run_without_a_terminal_says_how_far_it_is(capsys, monkeypatch):
    with progress_bar(9) as show:
        show(3, "decodes compared")
        assert capsys.readouterr().err == ""
        monkeypatch.setattr("dlmspec.cli.options.SECONDS_BETWEEN_LINES", -1.0)
        show(4, "decodes [compared]")
    assert capsys.readouterr().err == "4 of 9: decodes [compared]\n"
