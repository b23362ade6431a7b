"""Every family's forward pass against an independent one, from checkpoints under the public names.

Catches: tensors under another name or packed in another order, biases or rotations left out, a router that ranks
without its bias or weighs with it, shifted rows, rows of a pass that depend on the other rows an expert is given,
checkpoints that would be decoded wrongly and are not refused.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dlmspec.models.experts import ExpertsMlp, sigmoid
from dlmspec.models.families import FAMILIES
from dlmspec.models.read_spec import spec_from_directory
from dlmspec.models.spec import MoeSpec
from dlmspec.models.target import Target
from dlmspec.models.target_pass import BlockCopy

from .families import (
    IDS,
    LLADA2_CONFIG,
    LLADA_CONFIG,
    PLAIN,
    SHAPES,
    oracle,
    plain_llada2,
    plain_route,
    run,
    saved,
    saved_llada,
    saved_llada2,
)
from .test_transformer import check_every_number, set_threads  # noqa: F401 (a fixture, sets them back)

BLOCK = 8
# transformers keeps norms, rotations and routers in fp32 whatever the model's dtype
BOUNDS = pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float32, 1e-4), (torch.float64, 1e-5)], ids=["fp32", "fp64"]
)
ROUNDING = 1e-6  # of logits, which are fp32 in every dtype


def block_causal(block_length: int) -> Tensor:
    block = torch.arange(len(IDS)) // block_length
    return block[:, None] >= block


def check(target: Target, expected: tuple[Tensor, Tensor], bound: float) -> None:
    states, logits = run(target)
    assert expected[1].std() > 0.5  # flat logits would hide errors
    assert states.dtype == target.dtype
    torch.testing.assert_close(states, expected[0], atol=bound, rtol=0)
    read, rows = (logits[1:], expected[1][:-1]) if target.spec.logit_shift else (logits, expected[1])
    torch.testing.assert_close(read, rows.float(), atol=max(bound, ROUNDING), rtol=0)


def test_every_family_is_here():
    assert set(FAMILIES) == {*SHAPES, "llada2_moe"}


@BOUNDS
@pytest.mark.parametrize("sharded", [False, True], ids=["single", "sharded"])
@pytest.mark.parametrize("family", [name for name in SHAPES if name not in (*PLAIN, "llada")])
def test_logits_equal_transformers(tmp_path, family, sharded, dtype, bound):
    """Once one file, a head of its own and shared key heads; once shards, a tied head and none shared."""
    changes: dict[str, Any] = {"tie_word_embeddings": True, "num_key_value_heads": 6} if sharded else {}
    if family.endswith("moe"):
        changes["norm_topk_prob"] = not sharded
    model = saved(tmp_path / family, family, sharded=sharded, **changes)
    block_length = len(IDS) if family == "Dream" else BLOCK
    target = Target.from_directory(tmp_path / family, dtype=dtype, block_length=block_length)
    assert (target.spec.attention, target.spec.logit_shift) == (
        "full" if family == "Dream" else "block_causal",
        family in ("Dream", "Fast_dLLM_Qwen"),
    )
    check(target, oracle(model, block_causal(block_length), dtype), bound)


@BOUNDS
@pytest.mark.parametrize("family", PLAIN)
def test_a_plain_decoder_is_causal(tmp_path, family, dtype, bound):
    model = saved(tmp_path / family, family)
    target = Target.from_directory(tmp_path / family, dtype=dtype)
    assert target.spec.is_autoregressive
    expected = oracle(model, block_causal(1), dtype)
    check(target, expected, bound)
    for length in (1, 2, 17, len(IDS)):  # the token behind a prompt
        cache = target.new_cache(length + 1)
        output = target.forward(cache, [BlockCopy((0,), 0, (), (0,))], IDS[:length])
        next_logits = output.logits(0, [0])[0]
        torch.testing.assert_close(next_logits, expected[1][length - 1].float(), atol=bound, rtol=0)


@BOUNDS
@pytest.mark.parametrize(("tied", "kv_heads"), [(False, 6), (True, 2)], ids=["public", "tied"])
def test_llada_is_llama_without_a_mask(tmp_path, tied, kv_heads, dtype, bound):
    model = saved_llada(tmp_path / "llada", tied=tied, kv_heads=kv_heads)
    target = Target.from_directory(tmp_path / "llada", dtype=dtype, block_length=len(IDS))
    assert (target.spec.attention, target.spec.grid, target.spec.bos_id) == ("full", "prompt", 2)
    check(target, oracle(model, block_causal(len(IDS)), dtype), bound)


LLADA2_VARIANTS: dict[str, dict[str, Any]] = {
    "public": {},
    "one group": {"n_group": 1, "topk_group": 1},
    "groups of one": {"n_group": 8, "topk_group": 4},
    "two shared": {"num_shared_experts": 2, "num_key_value_heads": 6, "tie_word_embeddings": True},
    "none shared": {"num_shared_experts": 0, "norm_topk_prob": False, "partial_rotary_factor": 1.0},
    "no dense layer": {"first_k_dense_replace": 0, "routed_scaling_factor": 0.7, "num_experts_per_tok": 1},
}


@pytest.mark.parametrize("changes", LLADA2_VARIANTS.values(), ids=LLADA2_VARIANTS)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-4), (torch.float64, 1e-10)], ids=["fp32", "fp64"])
def test_llada2_equals_a_plain_forward(tmp_path, dtype, bound, changes):
    directory = saved_llada2(tmp_path / "LLaDA2.0-mini", **changes)
    target = Target.from_directory(directory, dtype=dtype)
    assert (target.spec.family, target.spec.block_length) == ("llada2", BLOCK)
    check(target, plain_llada2(directory, block_causal(BLOCK), dtype), bound)


def patch_weights(directory: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    weights = load_file(directory / "model.safetensors")
    change(weights)
    save_file(weights, directory / "model.safetensors")


def test_experts_in_one_tensor_are_the_experts_one_by_one(tmp_path):
    saved(tmp_path, "sdar_moe")
    one_by_one = run(Target.from_directory(tmp_path))

    def fuse(weights: dict[str, Tensor]) -> None:
        for layer in range(2):
            name = f"model.layers.{layer}.mlp.experts"
            gate, up, down = (
                torch.stack([weights.pop(f"{name}.{expert}.{part}_proj.weight") for expert in range(7)])
                for part in ("gate", "up", "down")
            )
            weights |= {f"{name}.gate_up_proj": torch.cat((gate, up), 1), f"{name}.down_proj": down}

    patch_weights(tmp_path, fuse)
    fused = run(Target.from_directory(tmp_path))
    assert all(map(torch.equal, one_by_one, fused))


@pytest.mark.parametrize("family", ["sdar_moe", "llada2_moe"])
def test_bits_do_not_depend_on_the_other_copies(tmp_path, family):
    """Nor the number of rows that any product runs on, where kernels happen to agree."""
    if family == "sdar_moe":
        saved(tmp_path / "tiny", family)
    else:
        saved_llada2(tmp_path / "tiny")
    target, seen = Target.from_directory(tmp_path / "tiny", block_length=BLOCK), []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if getattr(func, "__name__", "") in ("linear", "matmul", "__matmul__", "bmm", "mm"):
                seen.append(args[0].shape[-2])
            return func(*args, **(kwargs or {}))

    with Watch():
        check_every_number(target, 2, (1, 2, 3, 7, 16, 29, 40))
    assert len(seen) > 1000
    assert not [number for number in seen if number % 16]


@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize("width", [5, 257])
def test_a_sigmoid_does_not_depend_on_the_rows_beside_it(width, num_threads):
    x = torch.randn(720, width, generator=torch.Generator().manual_seed(0))
    torch.set_num_threads(num_threads)
    whole = sigmoid(x)
    torch.testing.assert_close(whole, x.double().sigmoid().float())
    for number in range(16, 720, 16):
        assert torch.equal(sigmoid(x[:number].clone()), whole[:number]), f"{number} rows"


ROUTES = [(1, 1, 3), (2, 1, 3), (3, 2, 5), (4, 2, 1), (4, 4, 12), (6, 3, 4), (12, 5, 4)]


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize(("groups", "kept", "top_k"), ROUTES)
def test_the_router_chooses_within_groups_and_breaks_ties_by_number(groups, kept, top_k, normalise):
    """Coarse scores and biases: most rows hold equal experts and equal groups."""
    moe = MoeSpec(12, top_k, 4, "grouped_sigmoid", normalise and top_k > 1, 0, groups, kept, 2.5, True)
    config = {"n_group": groups, "topk_group": kept, "num_experts_per_tok": top_k, "norm_topk_prob": normalise,
              "routed_scaling_factor": 2.5}  # fmt: skip
    rng = random.Random(groups)
    logits = torch.tensor([[rng.randrange(-2, 3) for _ in range(12)] for _ in range(64)]).double()
    bias = torch.tensor([rng.choice([-0.75, 0.0, 0.25]) for _ in range(12)]).double()
    mlp = ExpertsMlp(moe, torch.eye(12).double(), bias, (), None)
    chosen, weights = mlp.route(logits)
    for row in range(64):
        expected = plain_route(torch.sigmoid(logits[row]).tolist(), bias.tolist(), config)
        assert chosen[row].tolist() == list(expected)
        assert weights[row].tolist() == pytest.approx(list(expected.values()), abs=1e-12)


def test_a_softmax_router_breaks_ties_by_number():
    moe = MoeSpec(6, 4, 4, "softmax", normalise=False)
    logits = torch.tensor([[1.0, 2.0, 1.0, 2.0, 1.0, 0.0], [0.0] * 6, [0.0, 0.0, 0.0, 0.0, 0.0, 3.0]])
    chosen, weights = ExpertsMlp(moe, torch.eye(6), None, (), None).route(logits)
    assert chosen.tolist() == [[1, 3, 0, 2], [0, 1, 2, 3], [5, 0, 1, 2]]
    torch.testing.assert_close(weights, logits.softmax(-1).gather(-1, chosen))


def test_llada2_routes_and_mixes_in_fp32_whatever_the_dtype(tmp_path):
    target = Target.from_directory(saved_llada2(tmp_path / "tiny"), dtype="bfloat16")
    mlp = target.transformer.layers[1].mlp
    assert isinstance(mlp, ExpertsMlp)
    assert mlp.shared is not None
    x = torch.randn(32, target.spec.hidden_size, generator=torch.Generator().manual_seed(2)).bfloat16()
    chosen, weights = mlp.route(x)
    assert weights.dtype == torch.float32
    assert all(map(torch.equal, (chosen, weights), mlp.route(x.float())))
    answers = torch.stack([expert(x) for expert in mlp.experts], 1)  # [rows, E, d]
    slots = [answers[torch.arange(32), chosen[:, slot]].float() * weights[:, slot, None] for slot in range(3)]
    assert torch.equal(mlp(x), (slots[0] + slots[1] + slots[2]).bfloat16() + mlp.shared(x))


def written(directory: Path, config: dict[str, Any], **changes: Any) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps({**config, **changes}))
    return directory


def refusal(directory: Path) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the callers look at the message)
        Target.from_directory(directory)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("config", "changes", "word"),
    [
        (LLADA_CONFIG, {"block_type": "sequential"}, "block_type 'sequential'"),
        (LLADA_CONFIG, {"layer_norm_type": "default"}, "layer_norm_type 'default'"),
        (LLADA_CONFIG, {"attention_layer_norm": True}, "attention_layer_norm"),
        (LLADA_CONFIG, {"scale_logits": True}, "scale_logits"),
        (LLADA_CONFIG, {"input_emb_norm": True}, "input_emb_norm"),
        (LLADA_CONFIG, {"rope": False}, "rope false"),
        (LLADA_CONFIG, {"alibi": True}, "alibi true"),
        (LLADA_CONFIG, {"include_qkv_bias": True}, "attention_bias"),
        (LLADA_CONFIG, {"include_bias": True}, "mlp_bias"),
        (LLADA_CONFIG, {"activation_type": "gelu"}, "hidden_act 'gelu'"),
        (LLADA_CONFIG, {"d_model": None}, "hidden_size is None"),
        (LLADA_CONFIG, {"rms_norm_eps": None}, "rms_norm_eps is None"),
        (LLADA2_CONFIG, {"score_function": "softmax"}, "score_function 'softmax'"),
        (LLADA2_CONFIG, {"n_group": None}, "n_group is None"),
        (LLADA2_CONFIG, {"topk_group": None}, "topk_group is None"),
        (LLADA2_CONFIG, {"routed_scaling_factor": None}, "routed_scaling_factor is None"),
        (LLADA2_CONFIG, {"partial_rotary_factor": None}, "partial_rotary_factor is None"),
        (LLADA2_CONFIG, {"n_group": 3}, "3 experts of 8 cannot be chosen from 2 of 3 groups"),
        (LLADA2_CONFIG, {"topk_group": 5}, "from 5 of 4 groups"),
        (LLADA2_CONFIG, {"num_experts_per_tok": 5}, "5 experts of 8"),
        (LLADA2_CONFIG, {"use_bias": True}, "use_bias true"),
        (LLADA2_CONFIG, {"use_qkv_bias": True}, "use_qkv_bias true"),
        (LLADA2_CONFIG, {"editing_threshold": 0.9}, "LLaDA2.1 and 2.2 edit"),
    ],
)
def test_what_would_be_decoded_wrongly_is_refused(tmp_path, config, changes, word):
    spec_from_directory(written(tmp_path, config))
    assert word in refusal(written(tmp_path, config, **changes))


def test_what_a_llada2_config_may_leave_out(tmp_path):
    """Its own code knows none of these, and has the bias and the sum to one."""
    left_out = dict.fromkeys(("moe_router_enable_expert_bias", "norm_topk_prob", "score_function", "block_length"))
    spec = spec_from_directory(written(tmp_path, LLADA2_CONFIG, **left_out))
    assert spec.moe == spec_from_directory(written(tmp_path, LLADA2_CONFIG)).moe
    assert (spec.moe and spec.moe.expert_bias, spec.moe and spec.moe.normalise, spec.block_length) == (True, True, 32)


def test_models_under_a_known_name_that_decode_otherwise_are_refused(tmp_path):
    moe = written(tmp_path / "moe", {"model_type": "llada", "hidden_size": 8, "architectures": ["LLaDAMoEModelLM"]})
    assert "LLaDA-MoE is another model" in refusal(moe)
    qwen2 = {"model_type": "qwen2", "architectures": ["SDLMQwen2ForCausalLM"]}
    assert "SDLM decodes by prefixes" in refusal(written(tmp_path / "sdlm", qwen2))
    for name in ("LLaDA2.1-mini", "hub/models--inclusionAI--LLaDA2.1-mini/snapshots/0a1b"):
        assert "LLaDA2.1 and 2.2 edit" in refusal(written(tmp_path / name, LLADA2_CONFIG))


def test_a_revision_in_the_hubs_cache_has_its_repositorys_name(tmp_path):
    saved(tmp_path / "tiny", "sdar")
    config = json.loads((tmp_path / "tiny" / "config.json").read_text())
    directory = written(tmp_path / "models--JetLM--SDAR-4B-Chat-b16" / "snapshots" / "0a1b", config)
    spec = spec_from_directory(directory)
    assert (spec.name, spec.block_length) == ("SDAR-4B-Chat-b16", 16)


@pytest.mark.parametrize(
    ("config", "end"), [(LLADA_CONFIG, "<|eot_id|>"), (LLADA2_CONFIG, "<|role_end|>")], ids=["llada", "llada2"]
)
def test_the_end_of_a_chat_answer_joins_the_stop_ids(tmp_path, config, end):
    written(tmp_path, config)
    assert spec_from_directory(tmp_path).stop_ids == (3,)
    added = [{"id": 41, "content": end}, {"id": 42, "content": "<|another|>"}]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
    assert spec_from_directory(tmp_path).stop_ids == (3, 41)


@pytest.mark.parametrize(
    "gone",
    [
        "model.transformer.blocks.1.ff_out.weight",
        "model.transformer.ff_out.weight",
        "model.word_embeddings.weight",
        "model.layers.1.attention.query_key_value.weight",
        "model.layers.0.attention.query_layernorm.weight",
        "model.layers.1.mlp.gate.expert_bias",
        "model.layers.1.mlp.experts.5.up_proj.weight",
    ],
)
def test_missing_tensors_are_named_as_the_files_name_them(tmp_path, gone):
    directory = tmp_path / "tiny"
    _ = (saved_llada if "transformer" in gone else saved_llada2)(directory)
    patch_weights(directory, lambda weights: weights.pop(gone))
    assert f"1 tensors are missing: {gone};" in refusal(directory)
