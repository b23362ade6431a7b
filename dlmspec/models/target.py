"""A target: one loaded model with what is needed to run and describe it.

Knows nothing of rules, trees or text; the tokenizer is only a path here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from dlmspec.cache import BlockCache, align_length
from dlmspec.models.loader import checkpoint_dtype, load_weights, parse_dtype
from dlmspec.models.read_spec import spec_from_directory
from dlmspec.models.spec import ModelSpec
from dlmspec.models.target_pass import BlockCopy, PassOutput, PassPart
from dlmspec.models.transformer import BlockDiffusionTransformer


@dataclass(frozen=True, slots=True)
class Target:
    """The model whose decoder defines the output. `tokenizer_path` is the directory it was loaded from."""

    spec: ModelSpec
    transformer: BlockDiffusionTransformer
    tokenizer_path: Path
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def from_directory(
        cls,
        path: str | Path,
        *,
        dtype: torch.dtype | str | None = None,
        device: torch.device | str | None = None,
        block_length: int | None = None,
        mask_id: int | None = None,
    ) -> "Target":
        """Load a checkpoint directory, by default to the CPU; dtype: fp32 on a CPU, else the checkpoint's.

        Raises ValueError as `spec_from_directory`, `load_weights`, `parse_dtype` and `parse_device` do.
        """
        directory = Path(path)
        spec = spec_from_directory(directory, block_length=block_length, mask_id=mask_id)
        found_device = parse_device("cpu" if device is None else device)
        if dtype is None:
            found_dtype = torch.float32 if found_device.type == "cpu" else checkpoint_dtype(directory)
        else:
            found_dtype = parse_dtype(dtype)
        weights = load_weights(directory, spec, found_dtype, found_device)
        return cls(spec, BlockDiffusionTransformer(spec, weights), directory, found_dtype, found_device)

    def check_length(self, num_tokens: int, aligned: int) -> None:
        """Raises ValueError if the `aligned` length of a request, prompt included, exceeds the context."""
        limit = self.spec.max_position_embeddings
        if num_tokens < 1 or aligned > limit:
            raise ValueError(
                f"{num_tokens} tokens (aligned to blocks of {self.spec.block_length}: {aligned}) do not fit "
                f"the context of {limit} of {self.spec.name}; shorten the prompt or lower max_new_tokens"
            )

    def new_cache(self, num_tokens: int) -> BlockCache:
        """A cache for a request of `num_tokens` in all; raises ValueError as `check_length` does."""
        self.check_length(num_tokens, align_length(num_tokens, self.spec.block_length))
        return BlockCache(self.spec, num_tokens, dtype=self.dtype, device=self.device)

    def prefill(self, cache: BlockCache, token_ids: Sequence[int]) -> None:
        self.transformer.prefill(cache, token_ids)

    def forward(self, cache: BlockCache, copies: Sequence[BlockCopy], prompt: Sequence[int] = ()) -> PassOutput:
        return self.transformer.forward(cache, copies, prompt)

    def forward_parts(self, parts: Sequence[PassPart]) -> list[PassOutput]:
        return self.transformer.forward_parts(parts)


def parse_device(device: torch.device | str) -> torch.device:
    """A torch device from itself or its name. Raises ValueError if it is unknown or this machine has none."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"unknown device {device!r}; use cpu, or cuda where there is a GPU") from error
    if found.type not in ("cpu", "cuda"):
        raise ValueError(f"device {str(found)!r} is not supported; use cpu, or cuda where there is a GPU")
    if found.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if not count:
            raise ValueError(f"device {str(found)!r} is not to be had: torch {torch.__version__} sees no GPU; use cpu")
        if (found.index or 0) >= count:
            raise ValueError(f"device {str(found)!r} is not to be had: this machine has {count} GPUs, counted from 0")
    return found
