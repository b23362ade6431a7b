"""Shared fixtures: tiny random SDAR checkpoints under the public tensor names."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

from dlmspec.models.loader import EMBEDDING_NAME, HEAD_NAME, expected_shapes, save_checkpoint
from dlmspec.models.spec import ModelSpec
from dlmspec.models.target import Target
from dlmspec.models.transformer import BlockDiffusionTransformer
from dlmspec.training.network import BlockDiffusionNetwork

# a shared machine may stall at any moment: a slow example is no failure
settings.register_profile("dlmspec", deadline=None)
settings.load_profile("dlmspec")
# tiny products gain nothing from threads, and threads that wait for a busy core cost minutes
torch.set_num_threads(1)


def _config(block_length: int, heads: int, kv_heads: int, layers: int, head_dim: int, vocab: int, tied: bool) -> dict:
    return {
        "architectures": ["SDARForCausalLM"], "model_type": "sdar", "hidden_act": "silu",
        "attention_bias": False,
        "hidden_size": 48, "intermediate_size": 92, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": head_dim, "vocab_size": vocab, "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0, "max_position_embeddings": 512, "tie_word_embeddings": tied,
        "block_size": block_length,
        "mask_token_id": vocab - 1, "eos_token_id": 0, "torch_dtype": "float32", "rope_scaling": None,
        "use_sliding_window": False, "sliding_window": None,
    }  # fmt: skip


def _weights(spec: ModelSpec, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in expected_shapes(spec).items():
        noise = torch.randn(shape, generator=generator)
        if len(shape) == 1:
            weights[name] = 1.0 + 0.2 * noise
        else:
            # an embedding that is also the head must not drown the rest in its own dot product
            is_vocabulary = name in (EMBEDDING_NAME, HEAD_NAME)
            weights[name] = noise * (0.6 if is_vocabulary else 1.4 / shape[1] ** 0.5)
    return weights


def _shard(directory: Path, weights: dict[str, torch.Tensor]) -> None:
    from safetensors.torch import save_file

    (directory / "model.safetensors").unlink()
    names = sorted(weights)
    files = {f"model-0000{i + 1}-of-00003.safetensors": names[i::3] for i in range(3)}
    for file, chosen in files.items():
        save_file({name: weights[name] for name in chosen}, directory / file, metadata={"format": "pt"})
    weight_map = {name: file for file, chosen in files.items() for name in chosen}
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.fixture(scope="session")
def tiny_sdar(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`tiny_sdar(block_length=4, heads=6, kv_heads=2, …) -> directory` of a seeded random SDAR checkpoint."""

    def build(
        *, block_length: int = 4, heads: int = 6, kv_heads: int = 2, layers: int = 2, head_dim: int = 12,
        vocab: int = 67, tied: bool = False, sharded: bool = False, seed: int = 0, name: str = "tiny-sdar",
    ) -> Path:  # fmt: skip
        directory = tmp_path_factory.mktemp("checkpoint") / name
        config = _config(block_length, heads, kv_heads, layers, head_dim, vocab, tied)
        spec = ModelSpec(
            "sdar", 48, layers, heads, kv_heads, head_dim, 92, vocab, 1e-6, 1e4, 512, tied, block_length,
            vocab - 1, (0,), name,
        )  # fmt: skip
        weights = _weights(spec, seed)
        save_checkpoint(directory, weights, config)
        if sharded:
            _shard(directory, weights)
        return directory

    return build


def random_target(block_length: int, *, dtype: torch.dtype = torch.float32, stop: int = 1, seed: int = 0,
                shift: bool = False, mask_id: int = 0, full: bool = False, **spec_options: Any) -> Target:  # fmt: skip
    """A random target whose distributions are sharp enough to have an order and soft enough to change.

    `shift`: of Llama's shape, each position predicted by the row before it. `full`: every row sees all others, and
    blocks are counted from the prompt's end.
    """
    spec = ModelSpec(
        name="tiny", family="sdar", hidden_size=16, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=4,
        intermediate_size=24, vocab_size=29, rms_norm_eps=1e-6, rope_theta=10_000.0, max_position_embeddings=96,
        tie_word_embeddings=True, block_length=block_length, mask_id=mask_id, stop_ids=(stop,),
        qk_norm=not shift, logit_shift=shift, attention="full" if full else "block_causal",
        grid="prompt" if full else "text", **spec_options,
    )  # fmt: skip
    torch.manual_seed(seed)
    network = BlockDiffusionNetwork(spec)
    for parameter in network.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.6)
    weights = {name: tensor.detach().to(dtype) for name, tensor in network.state_dict().items()}
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    return Target(spec, BlockDiffusionTransformer(spec, weights), Path("tiny"), dtype, torch.device("cpu"))


@pytest.fixture(scope="session")
def make_target() -> Callable[..., Target]:
    """`make_target(block_length, dtype=…, shift=False, full=False, …) -> Target`, as `random_target`."""
    return random_target
