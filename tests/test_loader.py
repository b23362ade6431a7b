"""Reading and writing checkpoints: what is resolved from where, one clear line per kind of bad input.

Catches: values of a wrong kind or size that raise deep inside or are taken for others, damaged JSON without its file's
name, devices and dtypes that torch refuses in its own words.
"""

import json
import math
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from dlmspec.models.loader import checkpoint_dtype, load_weights, save_checkpoint
from dlmspec.models.read_spec import spec_from_directory
from dlmspec.models.target import Target


def patch_config(directory: Path, remove: tuple[str, ...] = (), **changes) -> Path:
    file = directory / "config.json"
    config = {k: v for k, v in json.loads(file.read_text()).items() if k not in remove}
    file.write_text(json.dumps({**config, **changes}))
    return directory


def patch_weights(directory: Path, remove: tuple[str, ...] = (), **changes) -> Path:
    file = directory / "model.safetensors"
    weights = {k: v for k, v in load_file(file).items() if k not in remove}
    save_file({**weights, **changes}, file)
    return directory


def load(directory: Path) -> dict[str, torch.Tensor]:
    return load_weights(directory, spec_from_directory(directory), torch.float32, "cpu")


def refusal(call, *args, **kwargs) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the callers look at the message)
        call(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_spec_reads_shapes_and_ids(tiny_sdar):
    directory = tiny_sdar(block_length=8, heads=6, kv_heads=3, head_dim=10, tied=True)
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 3]}))
    spec = spec_from_directory(directory)
    assert (spec.family, spec.block_length, spec.mask_id, spec.stop_ids) == ("sdar", 8, 66, (5, 3, 0))
    assert (spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.hidden_size) == (6, 3, 10, 48)
    assert spec.tie_word_embeddings
    assert spec.name == "tiny-sdar"


def test_block_length_resolves_in_order(tiny_sdar):
    assert spec_from_directory(tiny_sdar(name="SDAR-b16")).block_length == 4  # config before name
    named = patch_config(tiny_sdar(name="SDAR-1.7B-Chat-b16"), remove=("block_size",))
    assert spec_from_directory(named).block_length == 16
    assert spec_from_directory(named, block_length=32).block_length == 32
    assert spec_from_directory(patch_config(named, block_length=8)).block_length == 8
    plain = patch_config(tiny_sdar(name="SDAR-b128"), remove=("block_size",))
    assert spec_from_directory(plain).block_length == 4


def test_mask_id_resolves_in_order(tiny_sdar):
    directory = patch_config(tiny_sdar(), remove=("mask_token_id",))
    assert "151669" in refusal(spec_from_directory, directory)
    tokenizer = {"mask_token": "<|MASK|>", "added_tokens_decoder": {"41": {"content": "<|MASK|>"}}}
    (directory / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    assert spec_from_directory(directory).mask_id == 41
    (directory / "tokenizer_config.json").write_text(json.dumps({"mask_token": {"content": "<|MASK|>"}}))
    (directory / "tokenizer.json").write_text(json.dumps({"added_tokens": [{"id": 42, "content": "<|MASK|>"}]}))
    assert spec_from_directory(directory).mask_id == 42
    assert spec_from_directory(patch_config(directory, mask_token_id=9)).mask_id == 9
    assert spec_from_directory(directory, mask_id=0).mask_id == 0
    assert spec_from_directory(patch_config(directory, mask_token_id=None, vocab_size=151936)).mask_id == 42
    (directory / "tokenizer_config.json").unlink()
    assert spec_from_directory(directory).mask_id == 151669


def test_a_plain_decoder_is_autoregressive_unless_it_has_blocks(tiny_sdar):
    directory = patch_config(tiny_sdar(), remove=("block_size", "mask_token_id"), model_type="qwen3")
    spec = spec_from_directory(directory)
    assert (spec.block_length, spec.logit_shift, spec.is_autoregressive, spec.mask_id) == (1, True, True, -1)
    assert "mask_id=" in refusal(spec_from_directory, directory, block_length=8)
    assert spec_from_directory(directory, block_length=8, mask_id=1).block_length == 8
    assert "block_length=" in refusal(spec_from_directory, patch_config(directory, mask_token_id=5))  # a mask, no block


def test_both_spellings_of_rope_and_dtype(tiny_sdar):
    directory = patch_config(
        tiny_sdar(), remove=("rope_theta", "rope_scaling", "torch_dtype"), dtype="bfloat16",
        rope_parameters={"rope_theta": 5e5, "rope_type": "default"},
    )  # fmt: skip
    assert spec_from_directory(directory).rope_theta == 5e5
    assert checkpoint_dtype(directory) == torch.bfloat16
    assert Target.from_directory(directory).dtype == torch.float32  # up-cast on a CPU
    assert Target.from_directory(directory, dtype="bfloat16").transformer.embedding.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"model_type": "gpt2"}, "sdar, sdar_moe, llada"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "yarn"),
        ({"use_sliding_window": True, "sliding_window": 64}, "use_sliding_window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding"),
        ({"attention_bias": True}, "attention_bias"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"hidden_size": None}, "hidden_size"),
        ({"num_key_value_heads": 4}, "key/value heads"),
        ({"block_size": 0}, "block length 0"),
        ({"block_size": True}, "block length True"),
        ({"mask_token_id": 67}, "mask id 67"),
        ({"mask_token_id": "<|mask|>"}, "mask id '<|mask|>'"),
        ({"model_type": ["sdar"]}, "['sdar']"),
        ({"hidden_size": True}, "hidden_size is True"),
        ({"num_hidden_layers": 2.0}, "num_hidden_layers is 2.0"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"num_key_value_heads": 0}, "num_key_value_heads is 0"),
        ({"num_key_value_heads": "2"}, "num_key_value_heads is '2'"),
        ({"head_dim": 11}, "head_dim even"),
        ({"head_dim": -12}, "head_dim is -12"),
        ({"head_dim": None, "num_attention_heads": 60}, "head_dim is 0"),
        ({"vocab_size": -67}, "vocab_size is -67"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps is 'small'"),
        ({"rms_norm_eps": math.nan}, "rms_norm_eps is nan"),
        ({"rope_theta": "big"}, "rope_theta is 'big'"),
        ({"rope_theta": 0}, "rope_theta is 0"),
        ({"rope_scaling": "yarn"}, "rope_scaling is 'yarn'"),
        ({"rope_parameters": [1]}, "rope_parameters is [1]"),
        ({"layer_types": 2}, "layer_types is 2"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'"),
        ({"eos_token_id": "<|eos|>"}, "eos_token_id is '<|eos|>'"),
        ({"eos_token_id": [1, None]}, "eos_token_id is [1, None]"),
    ],
)
def test_unsupported_configs_are_refused_by_name(tiny_sdar, changes, word):
    assert word in refusal(spec_from_directory, patch_config(tiny_sdar(), **changes))


def test_a_directory_that_is_no_model(tmp_path):
    assert "no such directory" in refusal(Target.from_directory, tmp_path / "absent")
    assert "no config.json" in refusal(Target.from_directory, tmp_path)
    (tmp_path / "config.json").write_text("{")
    assert "config.json" in refusal(Target.from_directory, tmp_path)


MASK = {"mask_token": "m"}


@pytest.mark.parametrize(
    ("file", "text", "word"),
    [
        ("config.json", "[]", "JSON object"),
        ("config.json", "\udcff", "not readable"),
        ("generation_config.json", "{", "not readable"),
        ("generation_config.json", "7", "JSON object"),
        ("generation_config.json", '{"eos_token_id": {"a": 1}}', "eos_token_id"),
        ("tokenizer_config.json", "[1]", "JSON object"),
        ("tokenizer_config.json", json.dumps({**MASK, "added_tokens_decoder": [3]}), "added_tokens_decoder"),
        ("tokenizer_config.json", json.dumps({**MASK, "added_tokens_decoder": {"x": {"content": "m"}}}), "'x'"),
        ("tokenizer.json", "{", "not readable"),
        ("tokenizer.json", '{"added_tokens": 3}', "added_tokens"),
        ("tokenizer.json", '{"added_tokens": [5, {"content": "m"}]}', "id of token 'm' is None"),
        ("model.safetensors.index.json", "{", "not readable"),
        ("model.safetensors.index.json", "[]", "JSON object"),
        ("model.safetensors.index.json", "{}", "weight_map"),
        ("model.safetensors.index.json", '{"weight_map": {"a": 3}}', "weight_map"),
    ],
)
def test_damaged_json_is_named(tiny_sdar, file, text, word):
    directory = patch_config(tiny_sdar(sharded=True), remove=("mask_token_id",) if "tokenizer" in file else ())
    if file == "tokenizer.json":
        (directory / "tokenizer_config.json").write_text(json.dumps(MASK))
    (directory / file).write_text(text, "utf-8", "surrogateescape")
    message = refusal(Target.from_directory, directory)
    assert f"/{file}: " in message
    assert word in message


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"dtype": "float99"}, "'float99'"),
        ({"dtype": "int8"}, "'int8'"),
        ({"dtype": ""}, "''"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"device": "meta"}, "'meta'"),
        ({"block_length": 0}, "block length 0"),
        ({"block_length": "8"}, "block length '8'"),
        ({"mask_id": 67}, "mask id 67"),
        ({"mask_id": -1}, "mask id -1"),
    ],
)
def test_options_that_cannot_be_are_refused_by_value(tiny_sdar, options, word):
    assert word in refusal(Target.from_directory, tiny_sdar(), **options)


def test_a_gpu_that_is_not_there(tiny_sdar, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    message = refusal(Target.from_directory, tiny_sdar(), device="cuda")
    assert "'cuda'" in message
    assert "use cpu" in message
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert "'cuda:1'" in refusal(Target.from_directory, tiny_sdar(), device="cuda:1")


def test_missing_tensors_are_named_and_counted(tiny_sdar):
    gone = ("model.norm.weight", "model.layers.1.mlp.up_proj.weight")
    message = refusal(load, patch_weights(tiny_sdar(), remove=gone))
    assert "2 tensors" in message
    assert all(name in message for name in gone)
    assert "lm_head.weight" in refusal(load, patch_weights(tiny_sdar(), remove=("lm_head.weight",)))


def test_unexpected_tensors_warn_with_their_names(tiny_sdar):
    directory = patch_weights(tiny_sdar(), extra=torch.ones(2))
    with pytest.warns(UserWarning, match="extra"):
        load(directory)


def test_a_wrong_shape_names_tensor_expected_and_found(tiny_sdar):
    message = refusal(load, patch_weights(tiny_sdar(), **{"model.norm.weight": torch.ones(47)}))
    assert all(word in message for word in ("model.norm.weight", "(47,)", "(48,)"))


def test_integer_weights_are_refused(tiny_sdar):
    message = refusal(load, patch_weights(tiny_sdar(), **{"model.norm.weight": torch.ones(48, dtype=torch.int8)}))
    assert "quantised" in message


@pytest.mark.parametrize("damage", ["truncated", "garbage", "empty"])
def test_a_damaged_file_is_named(tiny_sdar, damage):
    directory = tiny_sdar()
    file = directory / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes({"truncated": content[: len(content) // 2], "garbage": b"\xff" * 999, "empty": b""}[damage])
    message = refusal(load, directory)
    assert str(file) in message
    assert "truncated" in message


def test_absent_weights_and_shards(tiny_sdar):
    directory = tiny_sdar(sharded=True)
    (directory / "model-00002-of-00003.safetensors").unlink()
    assert "model-00002-of-00003.safetensors" in refusal(load, directory)
    (directory / "model.safetensors.index.json").write_text("[]")
    assert "index" in refusal(load, directory)
    (directory / "model.safetensors.index.json").unlink()
    assert "no weights" in refusal(load, directory)


def test_sharded_equals_single(tiny_sdar):
    single, sharded = load(tiny_sdar()), load(tiny_sdar(sharded=True))
    assert single.keys() == sharded.keys()
    assert all(torch.equal(single[name], sharded[name]) for name in single)


def test_a_tied_head_is_the_embedding(tiny_sdar):
    directory = tiny_sdar(tied=True)
    assert "lm_head.weight" not in load_file(directory / "model.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weights = load(directory)
        assert weights["lm_head.weight"] is weights["model.embed_tokens.weight"]
        load(patch_weights(directory, **{"lm_head.weight": torch.zeros(67, 48)}))  # a redundant copy: no warning


def test_saving_leaves_no_temporary_file_and_fails_in_one_line(tiny_sdar, tmp_path):
    weights = load(tiny_sdar())
    save_checkpoint(tmp_path / "new", weights, {"a": 1})
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["config.json", "model.safetensors"]
    (tmp_path / "file").write_text("")
    assert "cannot write" in refusal(save_checkpoint, tmp_path / "file", weights, {})


def test_the_aligned_length_must_fit_the_context(tiny_sdar):
    target = Target.from_directory(patch_config(tiny_sdar(block_length=16), max_position_embeddings=40))
    assert target.new_cache(32).max_length == 32
    message = refusal(target.new_cache, 33)
    assert all(word in message for word in ("33", "48", "40"))
    assert "0 tokens" in refusal(target.new_cache, 0)
