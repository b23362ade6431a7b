"""Trains the order model on recorded steps, fits the token table, and reports next-commit accuracy per staleness.

An example is what was read at step t; its labels are the commits of steps t + 1 … t + 8, as far as the block goes and
each commits exactly one position. Where noise is drawn per step, the input holds the coupled tokens of one step only,
and so does the example.
"""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from dlmspec.atomic import replacing
from dlmspec.drafters.confidence import ConfidenceTreeDrafter
from dlmspec.drafters.spot import SpotDrafter
from dlmspec.evidence import NUM_RANKS
from dlmspec.order.calibration import EDGES, TokenTable, calibration_text, log_prob_bin
from dlmspec.order.features import order_features, position_code
from dlmspec.order.model import MAX_STALENESS, OrderConfig, OrderModel, num_parameters, order_config_dict
from dlmspec.training.checkpoint import Checkpoint
from dlmspec.training.replay import replay, sample_rows

REPLAYED_STEPS = 200


@dataclass(frozen=True, slots=True)
class DrafterPlan:
    """One training run over recorded steps."""

    steps: int = 3000
    batch: int = 256
    rate: float = 1.5e-3
    weight_decay: float = 0.02
    warmup: int = 100
    dropout: float = 0.05
    token_weight: float = 0.5  # of the token loss beside the order loss
    held_out_share: int = 20  # one prompt in so many is held out
    seed: int = 0
    checkpoint_every: int = 500

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "warmup", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.held_out_share < 2:
            raise ValueError(f"held_out_share must be at least 2 (one prompt in two), got {self.held_out_share}")
        if not 0 < self.rate < math.inf:
            raise ValueError(f"rate must be a number above 0, got {self.rate}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {self.dropout}")
        for name in ("weight_decay", "token_weight"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be a number of at least 0, got {getattr(self, name)}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must lie in [0, 2**32), got {self.seed}")

    def rate_at(self, step: int) -> float:
        """Warm-up, then a cosine to zero."""
        warm = min(1.0, (step + 1) / self.warmup)
        return self.rate * warm * 0.5 * (1 + math.cos(math.pi * step / self.steps))


@dataclass(frozen=True, slots=True)
class Labels:
    """What followed the read steps, by staleness − 1."""

    masked: Tensor  # bool [N, 8, B]: positions undecided before the commit; all where there is no label
    position: Tensor  # [N, 8]: the one that was committed
    right: Tensor  # bool [N, 8]: with its coupled token
    counted: Tensor  # bool [N, 8]: whether there is a label that the input can tell of


class Examples:
    """Read steps and what followed: `pairs` `[P, 2]` are (row of the read step, a staleness with a label)."""

    def __init__(self, records: dict[str, Tensor], plan: DrafterPlan, *, held_out: bool) -> None:
        self.records = records
        place, committed = records["place"].long(), records["committed"]
        chosen = (place[:, 0] % plan.held_out_share == 0) == held_out
        single = (committed >= 0).sum(-1) == 1
        index = torch.arange(len(place))
        self.followed = torch.zeros(len(place), MAX_STALENESS, dtype=torch.bool)
        for staleness in range(1, min(MAX_STALENESS, len(place) - 1) + 1):
            source, label = index[:-staleness], index[staleness:]
            same = (place[source, :2] == place[label, :2]).all(-1)
            follows = place[label, 2] - place[source, 2] == staleness
            self.followed[source, staleness - 1] = same & follows & single[label] & chosen[source]
        self.pairs = self.followed.nonzero() + torch.tensor([0, 1])

    def __len__(self) -> int:
        return len(self.pairs)

    def inputs(self, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """The model's inputs for pairs `[N, 2]`: features `[N, B, F]` and present `[N, B]`."""
        source, staleness = pairs.unbind(-1)
        present, masked = self.records["masked"][source], self.records["masked"][source + 1]
        coupled = self.records["candidate_log_probs"][source, staleness - 1, :, 0].float()
        top = self.records["top"][source].float()
        return order_features(top, coupled, masked, position_code(present.shape[-1])), present

    def labels(self, pairs: Tensor) -> Labels:
        """All labels of the read steps; of sampled ones only that of the pair's staleness."""
        source, staleness = pairs.unbind(-1)
        depths = torch.arange(MAX_STALENESS)
        counted = self.followed[source]
        own = depths == staleness[:, None] - 1
        counted = counted & (own | ~self.records["sampled"][source, None])
        rows = (source[:, None] + depths + 1).clamp_max(len(self.followed) - 1)
        committed = self.records["committed"][rows]  # [N, 8, B]
        position = (committed >= 0).int().argmax(-1)
        ids = self.records["candidate_ids"][source[:, None], depths, position, 0]
        token = committed.gather(-1, position[..., None]).squeeze(-1)
        masked = self.records["masked"][rows] | ~counted[..., None]
        return Labels(masked, position, ids == token, counted)


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


def losses(scores: tuple[Tensor, Tensor], labels: Labels) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the committed position, and of whether its coupled token held: means over the examples.

    An example is the mean over its labels. Pairs are drawn evenly, and a read step is drawn once per label it has, so
    all labels weigh the same, those under noise too.
    """
    order, token = scores
    log_probs = order.masked_fill(~labels.masked, float("-inf")).log_softmax(-1)
    place = labels.position[..., None]
    of_position = -log_probs.gather(-1, place).squeeze(-1)
    of_token = torch.nn.functional.binary_cross_entropy_with_logits(
        token.gather(-1, place).squeeze(-1), labels.right.float(), reduction="none"
    )
    weights = labels.counted / labels.counted.sum(-1, keepdim=True) / len(labels.counted)
    return (of_position * weights).sum(), (of_token * weights).sum()


@torch.no_grad()
def next_commit_report(model: OrderModel, examples: Examples, table: TokenTable) -> dict[str, dict[str, float]]:
    """Per staleness: accuracy of the model's order and of the stale-confidence order, the share of right tokens, and
    the log loss (nats) of the model's and of the table's word on whether the token is right."""
    model.eval()
    names = ("model", "confidence", "token", "token_loss", "token_loss_table")
    report = {}
    for staleness in range(1, MAX_STALENESS + 1):
        pairs = examples.pairs[examples.pairs[:, 1] == staleness]
        sums = torch.zeros(len(names))
        for chunk in pairs.split(1024) if len(pairs) else ():
            sums += _report_chunk(model, examples, table, chunk)
        shares = (sums / max(1, len(pairs))).tolist()
        report[str(staleness)] = {
            **{name: round(share, 4) for name, share in zip(names, shares, strict=True)},
            "examples": len(pairs),
        }
    return report


def _report_chunk(model: OrderModel, examples: Examples, table: TokenTable, pairs: Tensor) -> Tensor:
    """Sums over pairs of one staleness of what `next_commit_report` lists."""
    source, staleness = pairs.unbind(-1)
    depth = int(staleness[0]) - 1
    labels = examples.labels(pairs)
    position, masked, right = labels.position[:, depth], labels.masked[:, depth], labels.right[:, depth].float()
    order, token = (scores[:, depth].masked_fill(~masked, float("-inf")) for scores in model(*examples.inputs(pairs)))
    coupled = examples.records["candidate_log_probs"][source, depth, :, 0].float()
    confidence = coupled.masked_fill(~masked, float("-inf"))
    rows = torch.arange(len(pairs))
    sampled = examples.records["sampled"][source].tolist()
    by_table = [
        table.probabilities(s, depth + 1, [log_prob_bin(p)])[0]
        for s, p in zip(sampled, coupled[rows, position].tolist(), strict=True)
    ]
    log_loss = torch.nn.functional.binary_cross_entropy
    return torch.stack(
        [
            (order.argmax(-1) == position).sum(),
            (confidence.argmax(-1) == position).sum(),
            right.sum(),
            log_loss(token[rows, position].sigmoid(), right, reduction="sum"),
            log_loss(torch.tensor(by_table).clamp(1e-4, 1 - 1e-4), right, reduction="sum"),
        ]
    )


def steps_per_pass(model: OrderModel, table: TokenTable, examples: Examples) -> list[dict]:
    """Steps that a pass would advance on recorded decodes, within a block, for this drafter and `confidence-tree`."""
    rows = []
    for sampled in (False, True):
        chosen = examples.followed.any(-1) & (examples.records["sampled"] == sampled)
        picked = sample_rows(chosen, REPLAYED_STEPS)
        spot = SpotDrafter(model, table)
        for drafter in (spot, ConfidenceTreeDrafter()) if picked else ():
            for budget in (4, 8, 16, 32):
                replayed = replay(drafter, examples.records, picked, budget)
                rows.append({"drafter": drafter.name, "sampled": sampled, **asdict(replayed)})
    return rows


def train_drafter(records: dict[str, Tensor], directory: Path, plan: DrafterPlan, *,
                  start: OrderModel | None = None,
                  progress: Callable[[int, int, float], None] | None = None) -> dict:  # fmt: skip
    """Train (from `start`, if given), write the drafter into `directory`, return the held-out report.

    Resumes from `directory/checkpoint.pt` when plan, recording and start are the same.
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
    checkpoint = Checkpoint(directory / "checkpoint.pt", plan, records, model)
    for step in range(checkpoint.resume(model, optimizer), plan.steps):
        loss = _train_step(model, optimizer, examples, plan, step)
        if progress is not None:
            progress(step + 1, plan.steps, loss)
        if (step + 1) % plan.checkpoint_every == 0:
            checkpoint.save(step + 1, model, optimizer)
    table = fit_token_table(examples)
    report = {
        "parameters": num_parameters(model),
        "recorded_steps": len(records["place"]),
        "examples": len(examples),
        "next_commit": next_commit_report(model, held_out, table),
        "steps_per_pass": steps_per_pass(model, table, held_out),
    }
    save_drafter(model, table, directory)
    checkpoint.remove()
    return report


def _train_step(model: OrderModel, optimizer: torch.optim.Optimizer, examples: Examples, plan: DrafterPlan,
                step: int) -> float:  # fmt: skip
    model.train()
    torch.manual_seed(plan.seed * 1_000_003 + step)  # choice and dropout: a resumed run takes the same step
    chosen = torch.randint(len(examples), (plan.batch,))
    pairs = examples.pairs[chosen]
    with torch.autocast("cpu", torch.bfloat16):
        scores = model(*examples.inputs(pairs))
    loss, token_loss = losses(scores, examples.labels(pairs))
    (loss + plan.token_weight * token_loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for group in optimizer.param_groups:
        group["lr"] = plan.rate_at(step)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def save_drafter(model: OrderModel, table: TokenTable, directory: Path) -> None:
    """Write config, calibration and bf16 weights; without weights no drafter loads, so a crash shows."""
    weights = {name: tensor.detach().to(torch.bfloat16).contiguous() for name, tensor in model.state_dict().items()}
    names = ("config.json", "calibration.json", "model.safetensors")
    with replacing(*(directory / name for name in names)) as (config, calibration, tensors):
        config.write_text(json.dumps(order_config_dict(model.config), indent=2) + "\n")
        calibration.write_text(calibration_text(table))
        save_file(weights, tensors)
