"""Records exact decodes: what a drafter could have read at every step, and what the target then committed.

One row is one denoising step. Shards are safetensors files of a few prompts each; the manifest names what is done,
so an interrupted recording goes on with the next prompt and a finished one is never half-written.
"""

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dlmspec import __version__
from dlmspec.atomic import replacing, write_text
from dlmspec.config import DecodeConfig
from dlmspec.decode import reference_decode
from dlmspec.evidence import NEVER, NUM_RANKS, TOP_K, Evidence
from dlmspec.grid import Grid
from dlmspec.json_object import is_integer, read_json_object
from dlmspec.law import DenoisingLaw
from dlmspec.models.target import Target
from dlmspec.order.model import MAX_STALENESS
from dlmspec.state import BlockState

PROMPTS_PER_SHARD = 16
COLUMNS = {
    "masked", "committed", "top", "top_ids", "candidate_ids", "candidate_log_probs", "place", "sampled",
}  # fmt: skip


@dataclass(slots=True)
class StepRecorder:
    """A step observer that keeps, per step, the stale inputs and the commits.

    Rows: `masked` `[B]`, `committed` `[B]` (the committed token id, −1 elsewhere), `top` and `top_ids` `[B, 32]`,
    `candidate_ids` and `candidate_log_probs` `[8, B, rank]` (under the noise of step t + d), `place` = prompt, block,
    step.
    """

    law: DenoisingLaw
    prompt: int
    rows: list[dict[str, Tensor]] = field(default_factory=list)

    def __call__(self, block: int, state: BlockState, logits: Tensor, successor: BlockState) -> None:
        evidence = Evidence(block, state, logits, self.law)
        length = len(state.tokens)
        top_ids = torch.full((length, TOP_K), -1, dtype=torch.int32)
        top_ids[evidence.positions, : evidence.top_ids.shape[-1]] = evidence.top_ids.int()
        ids = torch.full((MAX_STALENESS, length, NUM_RANKS), -1, dtype=torch.int32)
        log_probs = torch.full((MAX_STALENESS, length, NUM_RANKS), NEVER)
        for depth in range(MAX_STALENESS):
            found, values = evidence.ranked(state.step + depth + 1)
            ids[depth, evidence.positions, : found.shape[-1]] = found.int()
            log_probs[depth, evidence.positions, : found.shape[-1]] = values.float()
        before, after = torch.tensor(state.tokens), torch.tensor(successor.tokens)
        self.rows.append(
            {
                "masked": before == self.law.spec.mask_id,
                "committed": torch.where(before != after, after, -1).int(),
                "top": evidence.top.half(),
                "top_ids": top_ids,
                "candidate_ids": ids,
                "candidate_log_probs": log_probs.clamp_min(NEVER).half(),
                "place": torch.tensor([self.prompt, block, state.step], dtype=torch.int32),
            }
        )


def record_prompt(target: Target, prompt_ids: list[int], config: DecodeConfig, prompt: int) -> dict[str, Tensor]:
    """All steps of one exact decode, stacked; one more row-wise tensor `sampled` tells T > 0."""
    recorder = StepRecorder(DenoisingLaw(target.spec, config, Grid.of(target.spec, len(prompt_ids))), prompt)
    reference_decode(target, prompt_ids, config, observer=recorder)
    rows = {name: torch.stack([row[name] for row in recorder.rows]) for name in recorder.rows[0]}
    rows["sampled"] = torch.full((len(recorder.rows),), config.sampling.temperature > 0)
    return rows


@dataclass(frozen=True, slots=True)
class RecordJob:
    """Decode every prompt once per config; a prompt has one number under all of them, so none is split in training."""

    target: Target
    prompts: Sequence[list[int]]
    configs: Sequence[DecodeConfig]
    directory: Path
    progress: Callable[[int, int], None] | None = None

    def run(self) -> int:
        """Record what the manifest does not list yet; returns the number of steps on disk.

        Raises ValueError if the directory holds a recording of other prompts or configs, or a damaged one.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        manifest = self._manifest()
        tasks = [(prompt, config) for config in self.configs for prompt in self.prompts]
        for start in range(manifest["done"], len(tasks), PROMPTS_PER_SHARD):
            rows = []
            for number, (prompt, config) in enumerate(tasks[start : start + PROMPTS_PER_SHARD], start):
                rows.append(record_prompt(self.target, prompt, config, number % len(self.prompts)))
                if self.progress is not None:
                    self.progress(number + 1, len(tasks))
            self._write_shard(manifest, rows, start)
        return manifest["steps"]

    def _manifest(self) -> dict:
        path = self.directory / "manifest.json"
        described = {
            "target": self.target.spec.name,
            "block_length": self.target.spec.block_length,
            "num_prompts": len(self.prompts),
            "prompts_crc32": zlib.crc32(repr(self.prompts).encode()),
            "target_crc32": weights_checksum(self.target),
            "configs": [repr(config) for config in self.configs],
        }
        if path.exists():
            manifest = read_manifest(path)
            differing = [name for name, value in described.items() if manifest.get(name) != value]
            if differing:
                raise ValueError(
                    f"{self.directory} holds another recording ({', '.join(differing)} differ); give an empty directory"
                )
            return manifest
        return {
            **described,
            "version": __version__,
            "torch": torch.__version__,
            "done": 0,
            "steps": 0,
            "shards": [],
        }

    def _write_shard(self, manifest: dict, rows: list[dict[str, Tensor]], start: int) -> None:
        shard = {name: torch.cat([row[name] for row in rows]) for name in rows[0]}
        name = f"shard-{start:06d}.safetensors"
        with replacing(self.directory / name) as (temporary,):
            save_file(shard, temporary)
        manifest["shards"].append(name)
        manifest["done"] = start + len(rows)
        manifest["steps"] += len(shard["place"])
        write_text(self.directory / "manifest.json", json.dumps(manifest, indent=2) + "\n")


def weights_checksum(target: Target) -> int:
    """Tells two targets of one name apart: CRC-32 of the dtype, the embedding and the last layer's attention."""
    transformer = target.transformer
    checksum = zlib.crc32(str(target.dtype).encode())
    for weight in (transformer.embedding, transformer.layers[-1].qkv, transformer.layers[-1].output):
        checksum = zlib.crc32(weight.float().cpu().numpy().tobytes(), checksum)
    return checksum


def read_records(*directories: Path) -> dict[str, Tensor]:
    """All recorded steps of the directories, stacked in order.

    Raises ValueError if one holds no recording, a damaged one, or one of another block length.
    """
    columns: dict[str, list[Tensor]] = {}
    for directory in directories:
        path = directory / "manifest.json"
        if not path.is_file():
            raise ValueError(f"{directory} holds no recording: manifest.json is missing; run `dlmspec record` first")
        names = read_manifest(path)["shards"]
        if not names:
            raise ValueError(f"the recording in {directory} has no steps yet; run `dlmspec record` again")
        for shard in _shards(directory, names):
            for name, tensor in shard.items():
                columns.setdefault(name, []).append(tensor)
    lengths = sorted({part.shape[-1] for part in columns["masked"]})
    if len(lengths) > 1:
        raise ValueError(f"the recordings have blocks of {lengths} positions; give recordings of one block length")
    return {name: torch.cat(parts) for name, parts in columns.items()}


def read_manifest(path: Path) -> dict:
    """Raises ValueError if it is damaged."""
    remedy = "delete the recording and repeat it"
    manifest = read_json_object(path, remedy)
    shards = manifest.get("shards")
    fits = {
        "done": is_integer(manifest.get("done")) and manifest["done"] >= 0,
        "steps": is_integer(manifest.get("steps")) and manifest["steps"] >= 0,
        "shards": isinstance(shards, list) and all(isinstance(name, str) for name in shards),
    }
    for key, is_right in fits.items():
        if not is_right:
            raise ValueError(f"{path}: {key} is {manifest.get(key)!r}, which no recording has; {remedy}")
    return manifest


def _shards(directory: Path, names: list[str]) -> Iterator[dict[str, Tensor]]:
    for name in names:
        try:
            shard = load_file(directory / name)
        except Exception as error:  # safetensors raises its own kinds; each means a damaged shard
            raise ValueError(f"cannot read {directory / name}: {error}; delete the recording and repeat it") from error
        if shard.keys() != COLUMNS:
            raise ValueError(f"{directory / name} was recorded by another version; delete the recording and repeat it")
        yield shard
