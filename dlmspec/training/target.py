"""Trains a block-diffusion target, fresh or from other weights: data, optimiser, schedule, checkpoints, export.

Checkpoints hold everything that the next step depends on, so an interrupted run goes on where it stopped; the
batches are a pure function of the step. Tokens are counted as noised tokens: every token of text is noised twice,
with complementary masks.
"""

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from tokenizers import Tokenizer
from torch import Tensor

from dlmspec.atomic import replacing, write_text
from dlmspec.models.loader import load_weights, save_checkpoint
from dlmspec.models.spec import ModelSpec
from dlmspec.training.batches import TRAINED_DOMAINS, Batch, RowPacker, TokenStream
from dlmspec.training.corpus import Document
from dlmspec.training.dialogues import Dialogue
from dlmspec.training.network import BlockDiffusionNetwork
from dlmspec.training.tokenizer import save_tokenizer

CHECKPOINT_NAME = "checkpoint.pt"
EVALUATION_SEED = 2**40  # far from the seeds of training steps


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """One training run. `tokens` counts noised tokens; the rate decays linearly over the last `decay_share`."""

    tokens: int = 20_000_000
    rows: int = 12
    row_length: int = 256
    math_share: float = 0.45  # of the rows; what is too short for a problem holds a drill
    arithmetic_share: float = 0.30
    chat_share: float = 0.0
    matrix_rate: float = 4e-3
    other_rate: float = 4e-3
    weight_decay: float = 0.05
    warmup_steps: int = 60
    decay_share: float = 0.3
    first_step: int = 0  # a resumed run starts its data and its warm-up here
    checkpoint_seconds: float = 240.0
    evaluation_batches: int = 6
    compile: bool = True

    @property
    def tokens_per_step(self) -> int:
        return 2 * self.rows * self.row_length

    def __post_init__(self) -> None:
        if min(self.shares.values()) < 0:
            raise ValueError(
                f"math_share {self.math_share}, arithmetic_share {self.arithmetic_share} and chat_share "
                f"{self.chat_share} must be at least 0 and leave the rest to code and prose"
            )

    @property
    def shares(self) -> dict[str, float]:
        """Share of the rows per trained domain."""
        text = 1.0 - self.math_share - self.arithmetic_share - self.chat_share
        return {
            "math": self.math_share,
            "code": text / 2,
            "prose": text / 2,
            "arithmetic": self.arithmetic_share,
            "chat": self.chat_share,
        }

    @property
    def num_steps(self) -> int:
        return -(-self.tokens // self.tokens_per_step)

    def rate(self, step: int) -> float:
        """Share of the peak learning rate at `step`: warm-up, plateau, linear decay to 2 %."""
        warm = min(1.0, (step - self.first_step + 1) / self.warmup_steps)
        left = (self.num_steps - step) / max(1.0, self.decay_share * self.num_steps)
        return warm * max(0.02, min(1.0, left))


class Corpus:
    """Packed token streams of the documents."""

    def __init__(self, documents: list[Document], tokenizer: Tokenizer, spec: ModelSpec,
                 dialogues: Sequence[Dialogue] = ()) -> None:  # fmt: skip
        self.tokenizer = tokenizer
        self.dialogues = dialogues
        self.spec = spec
        self.streams = {
            held_out: {
                domain: TokenStream(
                    [d for d in documents if d.domain == domain and d.held_out == held_out],
                    tokenizer,
                    spec.stop_ids[0],
                )
                for domain in ("code", "prose")
            }
            for held_out in (False, True)
        }

    def packer(self, plan: TrainingPlan, *, held_out: bool = False) -> RowPacker:
        """Rows of the training part or of the held-out one. Raises ValueError if the plan wants dialogues it lacks."""
        dialogues = [dialogue for dialogue in self.dialogues if dialogue.held_out == held_out]
        if plan.chat_share and not dialogues:
            part = "held-out" if held_out else "training"
            raise ValueError(f"chat_share is {plan.chat_share} but there are no {part} dialogues; record more of them")
        return RowPacker(
            self.streams[held_out],
            dialogues,
            self.tokenizer,
            self.spec,
            row_length=plan.row_length,
            shares=plan.shares,
            held_out=held_out,
        )


@dataclass(frozen=True, slots=True)
class Trainee:
    """What a run trains: a network, its optimisers with their peak rates, and how to write it as a model."""

    network: BlockDiffusionNetwork
    optimizers: tuple[tuple[torch.optim.Optimizer, float], ...]
    export: Callable[[Path], None]
    autocast: bool  # to bf16

    def trained_parameters(self) -> list[Tensor]:
        return [p for p in self.network.parameters() if p.requires_grad]

    def trained(self) -> dict[str, Tensor]:
        """The tensors that change, by name."""
        return {name: p.detach() for name, p in self.network.named_parameters() if p.requires_grad}


def from_scratch(spec: ModelSpec, plan: TrainingPlan, tokenizer: Tokenizer) -> Trainee:
    """A fresh network, all of it trained: Muon for the matrices of the layers, AdamW for embeddings and norms."""
    torch.manual_seed(0)
    network = BlockDiffusionNetwork(spec)
    named = list(network.named_parameters())
    matrices = [p for name, p in named if p.dim() == 2 and "embed" not in name]
    others = [p for name, p in named if p.dim() != 2 or "embed" in name]
    muon = torch.optim.Muon(
        matrices, lr=plan.matrix_rate, weight_decay=plan.weight_decay, adjust_lr_fn="match_rms_adamw"
    )
    adam = torch.optim.AdamW(others, lr=plan.other_rate, betas=(0.9, 0.95), weight_decay=0.0)
    return Trainee(
        network,
        ((muon, plan.matrix_rate), (adam, plan.other_rate)),
        lambda directory: export(network, directory, tokenizer),
        autocast=True,
    )


@torch.no_grad()
def evaluate(trainee: Trainee, batches: list[Batch]) -> dict[str, dict[str, float]]:
    """Per domain: mean loss (nats) and accuracy per masked token, unweighted, fill tokens left out.

    Tokens with full weight only: no questions of `math`, only the results of `arithmetic` (new draws, but of the same
    equations as in training).
    """
    sums = {domain: torch.zeros(3) for domain in TRAINED_DOMAINS}
    for batch in batches:
        with torch.autocast("cpu", torch.bfloat16, enabled=trainee.autocast):
            logits = trainee.network.logits(batch)
        losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), batch.tokens, reduction="none")
        hits = logits.argmax(-1) == batch.tokens
        for number, domain in enumerate(TRAINED_DOMAINS):
            rows = (batch.domains == number) & (batch.weights >= 1.0)
            sums[domain] += torch.tensor([losses[rows].sum(), hits[rows].sum(), rows.sum()])
    return {
        domain: {"loss": (s[0] / s[2]).item(), "accuracy": (s[1] / s[2]).item()} for domain, s in sums.items() if s[2]
    }


def start_from(network: BlockDiffusionNetwork, directory: Path) -> None:
    """Take the weights of an exported model."""
    weights = load_weights(directory, network.spec, torch.float32, torch.device("cpu"))
    network.load_state_dict({name: weights[name] for name in network.state_dict()})


def export(network: BlockDiffusionNetwork, directory: Path, tokenizer: Tokenizer) -> None:
    """Write the model in SDAR's layout: bf16 weights, config, generation config and tokenizer."""
    spec = network.spec
    config = {
        "architectures": ["SDARForCausalLM"],
        "model_type": "sdar",
        "block_size": spec.block_length,
        "mask_token_id": spec.mask_id,
        "eos_token_id": spec.stop_ids[0],
        "bos_token_id": spec.stop_ids[0],
        "hidden_act": "silu",
        "attention_bias": False,
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "max_position_embeddings": spec.max_position_embeddings,
        "rms_norm_eps": spec.rms_norm_eps,
        "rope_theta": spec.rope_theta,
        "rope_scaling": None,
        "tie_word_embeddings": spec.tie_word_embeddings,
        "vocab_size": spec.vocab_size,
        "torch_dtype": "bfloat16",
    }
    weights = {name: p.detach().to(torch.bfloat16).contiguous() for name, p in network.named_parameters()}
    save_checkpoint(directory, weights, config)
    generation = {"eos_token_id": list(spec.stop_ids), "pad_token_id": spec.stop_ids[0]}
    write_text(directory / "generation_config.json", json.dumps(generation, indent=2) + "\n")
    save_tokenizer(tokenizer, directory)


class TargetTrainer:
    """The state of a run: what is trained, and the step."""

    def __init__(self, trainee: Trainee, plan: TrainingPlan, corpus: Corpus, work: Path) -> None:
        work.mkdir(parents=True, exist_ok=True)
        self.trainee, self.plan, self.work = trainee, plan, work
        self.step = plan.first_step
        self.is_stepping = False  # inside the optimisers' step
        self.packer = corpus.packer(plan)
        held_out = corpus.packer(plan, held_out=True)
        self.held_out = [held_out.batch(EVALUATION_SEED + i, plan.rows) for i in range(plan.evaluation_batches)]

    @property
    def checkpoint(self) -> Path:
        return self.work / CHECKPOINT_NAME

    def save(self) -> None:
        """Write the checkpoint, whole or not at all, and the exported model."""
        state = {
            "step": self.step,
            "plan": dataclasses.asdict(self.plan),
            "network": self.trainee.trained(),
            "optimizers": [optimizer.state_dict() for optimizer, _ in self.trainee.optimizers],
        }
        with replacing(self.checkpoint) as (temporary,):
            torch.save(state, temporary)
        self.trainee.export(self.work / "export")

    def resume(self) -> bool:
        """Continue from the checkpoint, if there is one. Raises ValueError if it is another network's."""
        if not self.checkpoint.exists():
            return False
        state = torch.load(self.checkpoint, weights_only=True)
        shapes = {name: tensor.shape for name, tensor in self.trainee.trained().items()}
        if {name: tensor.shape for name, tensor in state["network"].items()} != shapes:
            raise ValueError(f"{self.checkpoint} is of another network; give another --work, or remove it")
        self.trainee.network.load_state_dict(state["network"], strict=False)
        for (optimizer, _), saved in zip(self.trainee.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step = state["step"]
        return True

    def train_step(self) -> Tensor:
        """One optimiser step; returns the loss per trained domain (NaN where the batch had none)."""
        batch = self.packer.batch(self.step, self.plan.rows)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.trainee.autocast):
            losses = self.trainee.network(batch)
        ((losses * batch.weights).sum() / batch.weights.sum()).backward()
        torch.nn.utils.clip_grad_norm_(self.trainee.trained_parameters(), 1.0)
        self.is_stepping = True
        for optimizer, peak in self.trainee.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = peak * self.plan.rate(self.step)
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        self.is_stepping = False
        counted = batch.weights >= 1.0
        rows = [counted & (batch.domains == number) for number in range(len(TRAINED_DOMAINS))]
        return torch.stack([losses.detach()[row].mean() for row in rows])

    def run(self) -> None:
        """Train to the plan's number of tokens with a progress bar, a log and regular checkpoints.

        An interrupt between two optimiser steps keeps the step that was reached, one within falls back to the last
        checkpoint.
        """
        if self.plan.compile:
            self.trainee.network.compile_layers()
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        saved, average = time.monotonic(), torch.full((len(TRAINED_DOMAINS),), float("nan"))
        with Progress(*columns, console=Console(stderr=True)) as progress:
            task = progress.add_task("training", total=self.plan.num_steps, completed=self.step)
            try:
                while self.step < self.plan.num_steps:
                    average = running_average(average, self.train_step())
                    text = "/".join(f"{x:.2f}" for x in average.tolist())
                    tokens = self.step * self.plan.tokens_per_step / 1e6
                    progress.update(task, completed=self.step, description=f"{tokens:.2f} M tokens, loss {text}")
                    if time.monotonic() - saved > self.plan.checkpoint_seconds:
                        self._checkpoint(progress, average)
                        saved = time.monotonic()
            except KeyboardInterrupt:
                if not self.is_stepping:  # a half-taken step must not replace the last checkpoint
                    self._checkpoint(progress, average)
                raise
            self._checkpoint(progress, average)

    def _checkpoint(self, progress: Progress, average: Tensor) -> None:
        self.save()
        row = {
            "step": self.step,
            "tokens": self.step * self.plan.tokens_per_step,
            "train_loss": dict(zip(TRAINED_DOMAINS, average.tolist(), strict=True)),
            "held_out": evaluate(self.trainee, self.held_out),
            "time": time.time(),
        }
        with (self.work / "log.jsonl").open("a") as log:
            log.write(json.dumps(row) + "\n")
        progress.console.print(json.dumps(row))


def running_average(average: Tensor, losses: Tensor) -> Tensor:
    """Exponential average that passes over NaN: a batch need not hold every domain."""
    mixed = torch.where(average.isnan(), losses, average.lerp(losses, 0.03))
    return torch.where(losses.isnan(), average, mixed)
