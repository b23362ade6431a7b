"""Every family's forward pass against an independent one, from checkpoints under the public names.

Catches: tensors under another name or packed in another order, biases or rotations left out, a router that ranks
without its bias or weighs with it, shifted rows, rows of a pass that depend on the other rows an expert is given,
checkpoints that would be decoded wrongly and are not refused.
"""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dlmspec.models.experts import ExpertsMlp, best
from dlmspec.models.read_spec import spec_from_directory
from dlmspec.models.target import Target
from dlmspec.models.target_pass import BlockCopy
from dlmspec.models.transformer import rope_table

from .families import LLADA, VOCAB, as_llada, oracle, plain_llada2, saved, saved_llada2

IDS = [(7 * i * i + 3 * i + 4) % (VOCAB - 1) for i in range(24)]
BLOCK = 8
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-5}


def block_causal(length: int, block_length: int) -> Tensor:
    block = torch.arange(length) // block_length
    return block[:, None] >= block


def final_states(target: Target) -> Tensor:
    """Final normed states of all rows, block after block over a cache, or of one whole canvas."""
    length, cache, states = target.spec.block_length, target.new_cache(len(IDS)), []
    for start in range(0, len(IDS), length):
        output = target.forward(cache, [BlockCopy(tuple(IDS[start : start + length]), 0, ())])
        states.append(output.hidden[0])
        output.store(cache, 0)
    return torch.cat(states)


def logits(target: Target) -> Tensor:
    return final_states(target) @ target.transformer.lm_head.T


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])
@pytest.mark.parametrize("sharded", [False, True], ids=["single", "sharded"])
@pytest.mark.parametrize("family", ["sdar", "sdar_moe", "Dream", "Fast_dLLM_Qwen"])
def test_logits_equal_transformers(tmp_path, family, sharded, dtype):
    directory = saved(tmp_path / family, family, sharded=sharded, tie_word_embeddings=sharded)
    full = family == "Dream"
    block_length = len(IDS) if full else BLOCK
    target = Target.from_directory(directory, dtype=dtype, block_length=block_length)
    assert (target.spec.attention == "full") == full
    expected = oracle(directory, IDS, block_causal(len(IDS), block_length), dtype)
    assert expected.std() > 0.5
    torch.testing.assert_close(logits(target), expected, atol=TOLERANCE[dtype], rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])
@pytest.mark.parametrize("family", ["qwen3", "qwen3_moe", "qwen2", "llama"])
def test_a_plain_decoder_is_causal(tmp_path, family, dtype):
    directory = saved(tmp_path / family, family)
    target = Target.from_directory(directory, dtype=dtype)
    assert target.spec.is_autoregressive
    expected = oracle(directory, IDS, block_causal(len(IDS), 1), dtype)
    torch.testing.assert_close(logits(target), expected, atol=TOLERANCE[dtype], rtol=0)
    cache = target.new_cache(len(IDS) + 1)
    target.prefill(cache, IDS)
    output = target.forward(cache, [BlockCopy((0,), 0, (), (0,))])
    torch.testing.assert_close(output.logits(0, [0])[0].double(), expected[-1].double(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])
def test_llada_is_llama_without_a_mask(tmp_path, dtype):
    changes = {"hidden_size": 40, "num_key_value_heads": 4, "num_attention_heads": 4, "head_dim": 10, "rope_theta": 5e5}
    source = saved(tmp_path / "llama", "llama", rms_norm_eps=1e-5, **changes)
    directory = as_llada(tmp_path / "llada", source)
    target = Target.from_directory(directory, dtype=dtype, block_length=len(IDS))
    assert (target.spec.attention, target.spec.grid, target.spec.bos_id) == ("full", "prompt", 2)
    everything = torch.ones(len(IDS), len(IDS), dtype=torch.bool)
    expected = oracle(source, IDS, everything, dtype)
    torch.testing.assert_close(logits(target), expected, atol=TOLERANCE[dtype], rtol=0)


@pytest.mark.parametrize(
    "changes", [{}, {"n_group": 1, "topk_group": 1}, {"n_group": 8, "topk_group": 4}, {"partial_rotary_factor": 1.0},
                {"first_k_dense_replace": 0, "routed_scaling_factor": 1.0}],
    ids=["public", "one group", "groups of one", "whole heads turned", "no dense layer"],
)  # fmt: skip
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-10)], ids=["fp32", "fp64"])
def test_llada2_equals_a_plain_forward(tmp_path, dtype, tolerance, changes):
    directory = saved_llada2(tmp_path / "LLaDA2.0-mini", **changes)
    target = Target.from_directory(directory, dtype=dtype)
    expected = plain_llada2(directory, IDS, block_causal(len(IDS), BLOCK), dtype, rope_table)
    torch.testing.assert_close(final_states(target), expected, atol=tolerance, rtol=0)


def test_experts_in_one_tensor_are_the_experts_one_by_one(tmp_path):
    directory = saved(tmp_path / "sdar_moe", "sdar_moe")
    before = logits(Target.from_directory(directory, block_length=BLOCK))
    file = directory / "model.safetensors"
    weights = load_file(file)
    for layer in range(2):
        name = f"model.layers.{layer}.mlp.experts"
        one = {
            part: [weights.pop(f"{name}.{e}.{part}_proj.weight") for e in range(6)] for part in ("gate", "up", "down")
        }
        pairs = zip(one["gate"], one["up"], strict=True)
        weights[f"{name}.gate_up_proj"] = torch.stack([torch.cat(pair) for pair in pairs])
        weights[f"{name}.down_proj"] = torch.stack(one["down"])
    save_file(weights, file)
    assert torch.equal(logits(Target.from_directory(directory, block_length=BLOCK)), before)


@pytest.mark.parametrize("family", ["sdar_moe", "llada2"])
def test_a_row_does_not_depend_on_what_else_an_expert_is_given(tmp_path, family):
    make = saved_llada2 if family == "llada2" else lambda path: saved(path, "sdar_moe")
    target = Target.from_directory(make(tmp_path / "LLaDA2.0"), block_length=BLOCK)
    cache = target.new_cache(len(IDS))
    target.prefill(cache, IDS[:BLOCK])
    copies = [BlockCopy(tuple((token + n) % VOCAB for token in IDS[8:16]), 0, ()) for n in range(7)]
    together = target.forward(cache, copies)
    for index, copy in enumerate(copies):
        alone = target.forward(cache, [copy])
        assert torch.equal(alone.hidden[0], together.hidden[index])
        assert torch.equal(alone.keys[:, 0], together.keys[:, index])


def test_the_lowest_expert_wins_ties(tmp_path):
    directory = saved_llada2(tmp_path / "LLaDA2.0")
    mlp = Target.from_directory(directory).transformer.layers[1].mlp
    assert isinstance(mlp, ExpertsMlp)
    flat = mlp.__class__(mlp.moe, torch.zeros_like(mlp.router), None, mlp.experts, mlp.shared)
    chosen, weights = flat.route(torch.ones(1, 40))
    assert chosen.tolist() == [[0, 1, 2]]
    torch.testing.assert_close(weights, torch.full((1, 3), 2.5 / 3))
    assert best(torch.tensor([[1.0, 3.0, 3.0, 2.0]]), 3).tolist() == [[1, 2, 3]]


def patched(directory: Path, **changes) -> Path:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, **changes}))
    return directory


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"block_type": "sequential"}, "block_type 'sequential'"),
        ({"layer_norm_type": "default"}, "layer_norm_type 'default'"),
        ({"attention_layer_norm": True}, "attention_layer_norm"),
        ({"scale_logits": True}, "scale_logits"),
        ({"include_qkv_bias": True}, "attention_bias"),
        ({"activation_type": "gelu"}, "hidden_act 'gelu'"),
        ({"d_model": None, "hidden_size": 40}, "d_model is None"),
        ({"rms_norm_eps": None}, "rms_norm_eps"),
    ],
)
def test_a_llada_that_would_be_decoded_wrongly_is_refused(tmp_path, changes, word):
    (tmp_path / "config.json").write_text(json.dumps(LLADA))
    assert spec_from_directory(tmp_path).hidden_size == 40
    with pytest.raises(ValueError, match=word if word != "d_model is None" else "hidden_size|d_model") as caught:
        spec_from_directory(patched(tmp_path, **changes))
    assert "\n" not in str(caught.value)


def test_models_under_a_known_name_that_decode_otherwise_are_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llada", "hidden_size": 8}))
    with pytest.raises(ValueError, match="LLaDA-MoE is another model"):
        spec_from_directory(tmp_path)
    sdlm = saved(tmp_path / "sdlm", "qwen2")
    with pytest.raises(ValueError, match="SDLM decodes by prefixes"):
        spec_from_directory(patched(sdlm, architectures=["SDLMQwen2ForCausalLM"]))
    editing = saved_llada2(tmp_path / "LLaDA2.1-mini")
    with pytest.raises(ValueError, match=r"LLaDA2.1 and 2.2 edit"):
        spec_from_directory(editing)


def test_missing_tensors_are_named_as_the_files_name_them(tmp_path):
    directory = saved_llada2(tmp_path / "LLaDA2.0")
    file = directory / "model.safetensors"
    weights = load_file(file)
    del weights["model.word_embeddings.weight"]
    save_file(weights, file)
    with pytest.raises(ValueError, match=r"1 tensors are missing: model.word_embeddings.weight"):
        Target.from_directory(directory)
