"""Trains the order model on recorded steps, fits the token table, and reports next-commit accuracy per staleness."""

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from dlmspec.evidence import NUM_RANKS
from dlmspec.order.calibration import EDGES, MAX_STALENESS, TokenTable, save_calibration
from dlmspec.order.features import order_features, position_code
from dlmspec.order.model import OrderConfig, OrderModel, num_parameters, order_config_dict


@dataclass(frozen=True, slots=True)
class DrafterPlan:
    """One training run over recorded steps."""

    steps: int = 3000
    batch: int = 256
    rate: float = 1.5e-3
    weight_decay: float = 0.02
    warmup: int = 100
    dropout: float = 0.05
    held_out_share: int = 20  # one prompt in so many is held out
    seed: int = 0
    checkpoint_every: int = 500

    def rate_at(self, step: int) -> float:
        """Warm-up, then a cosine to zero."""
        warm = min(1.0, (step + 1) / self.warmup)
        return self.rate * warm * 0.5 * (1 + math.cos(math.pi * step / self.steps))


class Examples:
    """Pairs (step t, staleness d) of one block in which step t + d commits exactly one position.

    The input is what was read at t with the commits of t … t+d−1 flagged; the label is the commit of t + d.
    """

    def __init__(self, records: dict[str, Tensor], plan: DrafterPlan, *, held_out: bool) -> None:
        self.records = records
        place = records["place"].long()
        chosen = (place[:, 0] % plan.held_out_share == 0) == held_out
        index = torch.arange(len(place))
        pairs = []
        for staleness in range(1, MAX_STALENESS + 1):
            source, label = index[:-staleness], index[staleness:]
            same = (place[source, :2] == place[label, :2]).all(-1)
            follows = place[label, 2] - place[source, 2] == staleness
            single = (records["committed"][label] >= 0).sum(-1) == 1
            keep = same & follows & single & chosen[source]
            pairs.append(torch.stack([source[keep], torch.full((int(keep.sum()),), staleness)], -1))
        self.pairs = torch.cat(pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def inputs(self, pairs: Tensor) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
        """The model's inputs (features `[N, B, F]`, masked and present `[N, B]`) and labels `[N]` of pairs `[N, 2]`."""
        source, staleness = pairs.unbind(-1)
        label = source + staleness
        masked = self.records["masked"][label]
        present = self.records["masked"][source]
        coupled = self.records["candidate_log_probs"][source, staleness - 1, :, 0].float()
        top = self.records["top"][source].float()
        depth = (present & ~masked) * staleness[:, None].float()
        features = order_features(top, coupled, masked, depth, position_code(masked.shape[-1]))
        return (features, masked, present), (self.records["committed"][label] >= 0).int().argmax(-1)


def fit_token_table(examples: Examples) -> TokenTable:
    """Counts, with a weak pull to the token's own probability: is the candidate of this rank the committed token?"""
    records, (source, staleness) = examples.records, examples.pairs.unbind(-1)
    label = source + staleness
    position = (records["committed"][label] >= 0).int().argmax(-1)
    token = records["committed"][label].gather(-1, position[:, None]).squeeze(-1)
    rows = torch.arange(len(source))
    ids = records["candidate_ids"][source, staleness - 1][rows, position]  # [N, rank]
    log_probs = records["candidate_log_probs"][source, staleness - 1][rows, position].float()
    bins = torch.bucketize(-log_probs, torch.tensor(EDGES))
    tables = []
    for sampled in (False, True):
        chosen = records["sampled"][source] == sampled
        table = torch.zeros(NUM_RANKS, MAX_STALENESS, len(EDGES) + 1)
        for rank in range(NUM_RANKS):
            cell = (staleness[chosen] - 1) * (len(EDGES) + 1) + bins[chosen, rank]
            hits = (ids[chosen, rank] == token[chosen]).float()
            count = torch.zeros(table[0].numel()).index_add_(0, cell, torch.ones_like(hits))
            hit = torch.zeros(table[0].numel()).index_add_(0, cell, hits)
            prior = hits.mean() if len(hits) else torch.tensor(1.0 if rank == 0 else 0.05)
            table[rank] = ((hit + 4 * prior) / (count + 4)).view_as(table[rank])
        tables.append([[[round(x, 4) for x in row] for row in rank] for rank in table.tolist()])
    return TokenTable(*tables)


@torch.no_grad()
def next_commit_accuracy(model: OrderModel, examples: Examples) -> dict[str, dict[str, float]]:
    """Per staleness: accuracy of the model and of the stale-confidence order, and the share of right tokens."""
    model.eval()
    report = {}
    for staleness in range(1, MAX_STALENESS + 1):
        pairs = examples.pairs[examples.pairs[:, 1] == staleness]
        hits = torch.zeros(3)
        for chunk in pairs.split(1024):
            inputs, label = examples.inputs(chunk)
            source = chunk[:, 0]
            coupled = examples.records["candidate_log_probs"][source, staleness - 1, :, 0].float()
            confidence = coupled.masked_fill(~inputs[1], float("-inf"))
            rows = torch.arange(len(chunk))
            ids = examples.records["candidate_ids"][source, staleness - 1][rows, label, 0]
            token = examples.records["committed"][source + staleness][rows, label]
            hits += torch.tensor(
                [
                    (model(*inputs).argmax(-1) == label).sum(),
                    (confidence.argmax(-1) == label).sum(),
                    (ids == token).sum(),
                ]
            )
        total = max(1, len(pairs))
        names = ("model", "confidence", "token")
        report[str(staleness)] = {
            **{name: round(hit / total, 4) for name, hit in zip(names, hits.tolist(), strict=True)},
            "examples": len(pairs),
        }
    return report


def train_drafter(records: dict[str, Tensor], directory: Path, plan: DrafterPlan, *,
                  start: OrderModel | None = None,
                  progress: Callable[[int, int, float], None] | None = None) -> dict:  # fmt: skip
    """Train (from `start`, if given), write the drafter into `directory`, return the held-out report.

    Resumes from `directory/checkpoint.pt` when the plan is the same.
    """
    torch.manual_seed(plan.seed)
    examples, held_out = Examples(records, plan, held_out=False), Examples(records, plan, held_out=True)
    if not len(examples) or not len(held_out):
        raise ValueError("the recording has too few steps to train on; record more prompts")
    model = OrderModel(OrderConfig(), plan.dropout)
    if start is not None:
        model.load_state_dict(start.state_dict())
    optimizer = torch.optim.AdamW(model.parameters(), lr=plan.rate, weight_decay=plan.weight_decay)
    directory.mkdir(parents=True, exist_ok=True)
    checkpoint = directory / "checkpoint.pt"
    first = _resume(checkpoint, plan, model, optimizer)
    for step in range(first, plan.steps):
        loss = _train_step(model, optimizer, examples, plan, step)
        if progress is not None:
            progress(step + 1, plan.steps, loss)
        if (step + 1) % plan.checkpoint_every == 0:
            state = {"plan": repr(plan), "step": step + 1, "model": model.state_dict(),
                     "optimizer": optimizer.state_dict()}  # fmt: skip
            torch.save(state, checkpoint.with_suffix(".tmp"))
            os.replace(checkpoint.with_suffix(".tmp"), checkpoint)
    report = {
        "parameters": num_parameters(model),
        "recorded_steps": len(records["place"]),
        "examples": len(examples),
        "next_commit": next_commit_accuracy(model, held_out),
    }
    save_drafter(model, fit_token_table(examples), directory)
    checkpoint.unlink(missing_ok=True)
    return report


def _train_step(model: OrderModel, optimizer: torch.optim.Optimizer, examples: Examples, plan: DrafterPlan,
                step: int) -> float:  # fmt: skip
    model.train()
    generator = torch.Generator().manual_seed(plan.seed * 1_000_003 + step)
    chosen = torch.randint(len(examples), (plan.batch,), generator=generator)
    inputs, label = examples.inputs(examples.pairs[chosen])
    with torch.autocast("cpu", torch.bfloat16):
        log_probs = model(*inputs)
    loss = torch.nn.functional.nll_loss(log_probs, label)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for group in optimizer.param_groups:
        group["lr"] = plan.rate_at(step)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def _resume(checkpoint: Path, plan: DrafterPlan, model: OrderModel, optimizer: torch.optim.Optimizer) -> int:
    if not checkpoint.exists():
        return 0
    state = torch.load(checkpoint, weights_only=True)
    if state["plan"] != repr(plan):
        return 0
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


def save_drafter(model: OrderModel, table: TokenTable, directory: Path) -> None:
    """Write config, bf16 weights and calibration; the weights last, by rename."""
    (directory / "config.json").write_text(json.dumps(order_config_dict(model.config), indent=2) + "\n")
    save_calibration(directory, table)
    weights = {name: tensor.detach().to(torch.bfloat16).contiguous() for name, tensor in model.state_dict().items()}
    temporary = directory / "model.safetensors.tmp"
    save_file(weights, temporary)
    os.replace(temporary, directory / "model.safetensors")
