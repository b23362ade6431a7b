"""Recording and drafter training: rows must be what a drafter could have read, and labels what was committed.

Catches: commits of the wrong step, candidates under the wrong noise, pairs across blocks or prompts, held-out prompts
in training, recordings that lose or repeat prompts when interrupted, half-written shards, mixed-up configurations, a
training that goes on from another recording's checkpoint.
"""

import json
import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from dlmspec.config import DecodeConfig
from dlmspec.decode import decode, reference_decode
from dlmspec.drafters.spot import SpotDrafter
from dlmspec.grid import Grid
from dlmspec.law import DenoisingLaw
from dlmspec.models.target import Target
from dlmspec.order.calibration import log_prob_bin
from dlmspec.order.features import TOP_K
from dlmspec.order.model import MAX_STALENESS, FrozenOrderModel, OrderConfig, OrderModel
from dlmspec.step import Sampling
from dlmspec.training import record
from dlmspec.training.drafter import DrafterPlan, Examples, Labels, fit_token_table, losses, train_drafter
from dlmspec.training.record import RecordJob, read_records, record_prompt
from dlmspec.training.replay import RecordedEvidence, successors

CONFIGS = [
    DecodeConfig(max_new_tokens=10, sampling=Sampling(temperature=t), seed=5, early_stop=False) for t in (0.0, 1.0)
]
LEFT_FEATURE = TOP_K + 3  # behind the top, the coupled token and two doubts: what the read step left undecided
PROMPTS = [[3 + i, 7, 9 + i, 11, 2 + i][: 2 + i % 4] for i in range(12)]


@pytest.fixture(scope="module")
def target(tiny_sdar):
    return Target.from_directory(tiny_sdar(block_length=6))


@pytest.fixture(scope="module")
def records(target, tmp_path_factory):
    directory = tmp_path_factory.mktemp("records")
    RecordJob(target, PROMPTS, CONFIGS, directory).run()
    return read_records(directory)


@pytest.mark.parametrize("config", CONFIGS, ids=["greedy", "sampled"])
def test_rows_replay_the_decode(target, config):
    """The commits of the rows, written in order, give the reference's ids."""
    rows = record_prompt(target, PROMPTS[2], config, prompt=0)
    output = reference_decode(target, PROMPTS[2], config)
    tokens = {}
    for committed, (_, block, _) in zip(rows["committed"].tolist(), rows["place"].tolist(), strict=True):
        for position, token in enumerate(committed):
            if token >= 0:
                assert tokens.setdefault(6 * block + position, token) == token, "a position is committed once"
    start = len(PROMPTS[2])
    replayed = [tokens[position] for position in range(start, start + len(output.token_ids))]
    assert tuple(replayed) == output.token_ids


def test_the_candidate_of_staleness_d_uses_the_noise_of_step_t_plus_d(target):
    config = CONFIGS[1]
    rows = record_prompt(target, PROMPTS[0], config, prompt=0)
    law = DenoisingLaw(target.spec, config, Grid(0, target.spec.block_length))
    checked = 0
    for row in range(len(rows["place"])):
        block, step = rows["place"][row, 1:].tolist()
        masked = rows["masked"][row].nonzero().squeeze(-1).tolist()
        known = {
            int(i): float(p) for i, p in zip(rows["top_ids"][row, masked[0]], rows["top"][row, masked[0]], strict=True)
        }
        for depth in range(MAX_STALENESS):
            noise = law.gumbel(block, step + depth + 1, masked)
            assert noise is not None
            token = int(rows["candidate_ids"][row, depth, masked[0], 0])
            best = max(known, key=lambda i: known[i] + float(noise[0, i]))
            value = float(rows["candidate_log_probs"][row, depth, masked[0], 0]) + float(noise[0, token])
            assert value >= known[best] + float(noise[0, best]) - 0.02, "fp16 rounding at most"
            checked += 1
    assert checked > 20


def test_pairs_stay_within_one_block_and_prompt(records):
    plan = DrafterPlan(held_out_share=3)
    train, held_out = Examples(records, plan, held_out=False), Examples(records, plan, held_out=True)
    place = records["place"].long()
    for examples, is_held_out in ((train, False), (held_out, True)):
        source, staleness = examples.pairs.unbind(-1)
        label = source + staleness
        assert torch.equal(place[source, :2], place[label, :2])
        assert torch.equal(place[label, 2] - place[source, 2], staleness)
        assert ((place[source, 0] % 3 == 0) == is_held_out).all()
    greedy, sampled = (set(place[records["sampled"] == s, 0].tolist()) for s in (False, True))
    assert greedy == sampled == set(range(len(PROMPTS))), "a prompt is held out at every temperature or at none"
    # 6 steps in a full block: 5 + 4 + 3 + 2 + 1 pairs
    assert len(train) + len(held_out) > 2 * len(PROMPTS) * 15


def test_labels_are_the_commits_that_followed(records):
    examples = Examples(records, DrafterPlan(held_out_share=3), held_out=False)
    features, present = examples.inputs(examples.pairs)
    labels = examples.labels(examples.pairs)
    source, staleness = examples.pairs.unbind(-1)
    left = features[..., LEFT_FEATURE] > 0
    assert torch.equal((present & ~left).sum(-1), torch.ones_like(source)), "the commit of the read step is flagged"
    sampled = records["sampled"][source]
    assert torch.equal(labels.counted[sampled].sum(-1), torch.ones(int(sampled.sum()), dtype=torch.long))
    assert labels.counted.gather(-1, staleness[:, None] - 1).all()
    assert (labels.counted[~sampled].sum(-1) > 1).any(), "at T = 0 one read step has the labels of all that follow"
    for row, depth in labels.counted.nonzero().tolist():
        committed = records["committed"][int(source[row]) + depth + 1]
        position = int(labels.position[row, depth])
        assert int(committed[position]) >= 0
        coupled = int(records["candidate_ids"][int(source[row]), depth, position, 0])
        assert bool(labels.right[row, depth]) == (coupled == int(committed[position]))
        masked = labels.masked[row, depth]
        assert masked[position]
        assert not (masked & ~present[row]).any()
        assert int((present[row] & ~masked).sum()) == depth + 1, "one commit per step since the distributions were read"


def test_the_model_is_trained_on_what_a_drafter_hands_it(records, monkeypatch):
    monkeypatch.setattr("dlmspec.drafters.spot.CLEAR", 1.0)  # it is always asked
    asked = []

    class Asked(FrozenOrderModel):
        def __call__(self, features):
            asked.append(features)
            return super().__call__(features)

    model = OrderModel(OrderConfig()).requires_grad_(False)
    table = fit_token_table(Examples(records, DrafterPlan(held_out_share=10**6), held_out=False))
    examples = Examples(records, DrafterPlan(held_out_share=3), held_out=False)
    features, present = examples.inputs(examples.pairs)
    for sampled in (False, True):
        chosen = (records["sampled"][examples.pairs[:, 0]] == sampled).nonzero().squeeze(-1)
        for pair in chosen[:: max(1, len(chosen) // 25)].tolist():
            row, staleness = examples.pairs[pair].tolist()
            drafter = SpotDrafter(model, table)
            drafter.model = Asked(model)
            evidence = RecordedEvidence(records, row, next(successors(records, row)))
            drafter.forecast(evidence, evidence.state.step + staleness)  # type: ignore[arg-type]
            torch.testing.assert_close(asked[-1], features[pair][present[pair]])
    assert len(asked) > 40


def test_losses_are_means_over_examples_of_their_labels():
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(2, 4, 8, 6, generator=generator)
    counted = torch.rand(4, 8, generator=generator) < 0.5
    counted[:, 0] = True
    masked = (torch.rand(4, 8, 6, generator=generator) < 0.7) | ~counted[..., None]
    position = torch.randint(6, (4, 8), generator=generator)
    masked.scatter_(-1, position[..., None], True)
    right = torch.rand(4, 8, generator=generator) < 0.5
    got = losses((scores[0], scores[1]), Labels(masked, position, right, counted))
    rows = counted.nonzero().tolist()
    of_position, of_token = 0.0, 0.0
    for row, depth in rows:
        weight = 1 / int(counted[row].sum()) / 4
        order, place = scores[0, row, depth], int(position[row, depth])
        of_position += weight * float(order[masked[row, depth]].logsumexp(0) - order[place])
        probability = float(scores[1, row, depth, place].sigmoid())
        of_token -= weight * math.log(probability if right[row, depth] else 1 - probability)
    assert float(got[0]) == pytest.approx(of_position, rel=1e-5)
    assert float(got[1]) == pytest.approx(of_token, rel=1e-5)


def test_the_token_table_counts_hits(records):
    table = fit_token_table(Examples(records, DrafterPlan(held_out_share=10**6), held_out=False))
    for regime in (table.greedy, table.sampled):
        flat = torch.tensor(regime)
        assert ((flat >= 0) & (flat <= 1)).all()
        assert flat[0].mean() > flat[1].mean(), "the coupled token is the likeliest"
    examples, rank, staleness = Examples(records, DrafterPlan(held_out_share=10**6), held_out=False), 1, 2
    everywhere, by_cell = [], {}
    for row, depth in examples.pairs.tolist():
        if records["sampled"][row]:
            continue
        position = int((records["committed"][row + depth] >= 0).int().argmax())
        hit = records["candidate_ids"][row, depth - 1, position, rank] == records["committed"][row + depth, position]
        everywhere.append(int(hit))
        log_prob = float(records["candidate_log_probs"][row, depth - 1, position, rank])
        if depth == staleness:
            by_cell.setdefault(log_prob_bin(log_prob), []).append(int(hit))
    cell, here = max(by_cell.items(), key=lambda item: len(item[1]))
    assert len(here) > 5
    expected = (sum(here) + 4 * sum(everywhere) / len(everywhere)) / (len(here) + 4)
    assert table.greedy[rank][staleness - 1][cell] == pytest.approx(expected, abs=1e-4)


def test_an_interrupted_recording_resumes(target, tmp_path, monkeypatch):
    monkeypatch.setattr(record, "PROMPTS_PER_SHARD", 5)
    whole = tmp_path / "whole"
    RecordJob(target, PROMPTS, CONFIGS, whole).run()
    broken = tmp_path / "broken"

    def stop_at(done: int, total: int) -> None:
        if done == 13:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        RecordJob(target, PROMPTS, CONFIGS, broken, progress=stop_at).run()
    assert json.loads((broken / "manifest.json").read_text())["done"] == 10
    RecordJob(target, PROMPTS, CONFIGS, broken).run()
    expected, got = read_records(whole), read_records(broken)
    assert all(torch.equal(expected[name], got[name]) for name in expected)
    assert not list(broken.glob("*.tmp"))


def test_another_recording_is_not_mixed_in(target, tmp_path):
    RecordJob(target, PROMPTS[:2], CONFIGS[:1], tmp_path).run()
    with pytest.raises(ValueError, match="another recording"):
        RecordJob(target, PROMPTS[:2], CONFIGS[1:], tmp_path).run()
    with pytest.raises(ValueError, match="another recording"):
        RecordJob(target, PROMPTS[1:3], CONFIGS[:1], tmp_path).run()


def test_damaged_recordings_are_refused(target, tmp_path):
    with pytest.raises(ValueError, match="no recording"):
        read_records(tmp_path)
    RecordJob(target, PROMPTS[:2], CONFIGS[:1], tmp_path).run()
    next(tmp_path.glob("shard-*")).write_bytes(b"cut")
    with pytest.raises(ValueError, match="cannot read"):
        read_records(tmp_path)


def test_training_resumes_and_its_drafter_decodes_exactly(target, records, tmp_path):
    plan = DrafterPlan(steps=8, batch=16, warmup=2, held_out_share=3, checkpoint_every=3)
    whole = train_drafter(records, tmp_path / "whole", plan)

    def stop_at(step: int, total: int, loss: float) -> None:
        if step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_drafter(records, tmp_path / "broken", plan, progress=stop_at)
    assert (tmp_path / "broken" / "checkpoint.pt").exists()
    assert not (tmp_path / "broken" / "model.safetensors").exists()
    resumed = train_drafter(records, tmp_path / "broken", plan)
    assert resumed["next_commit"] == whole["next_commit"]
    drafter = SpotDrafter.from_directory(tmp_path / "whole")
    for config in CONFIGS:
        reference = reference_decode(target, PROMPTS[3], config)
        for budget in (2, 5, 16):
            output = decode(target, PROMPTS[3], config, drafter=drafter, budget=budget)
            assert output.token_ids == reference.token_ids
            assert output.stats.num_passes < reference.stats.num_passes


@pytest.mark.parametrize("other", ["nothing", "recording", "plan", "start"])
def test_only_the_same_training_goes_on(records, tmp_path, other):
    plan = DrafterPlan(steps=4, batch=8, warmup=1, held_out_share=3, checkpoint_every=2)
    steps: list[int] = []

    def note(step: int, total: int, loss: float) -> None:
        steps.append(step)
        if len(steps) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_drafter(records, tmp_path, plan, progress=note)
    steps[:] = [0] * 3  # the second run is not interrupted
    committed = records["committed"]
    changed = {**records, "committed": torch.where(committed >= 0, committed + 1, committed)}
    train_drafter(
        changed if other == "recording" else records,
        tmp_path,
        replace(plan, rate=1e-4) if other == "plan" else plan,
        start=OrderModel(OrderConfig()) if other == "start" else None,
        progress=note,
    )
    assert steps[3:] == ([3, 4] if other == "nothing" else [1, 2, 3, 4])
    assert not (tmp_path / "checkpoint.pt").exists()


def test_a_damaged_checkpoint_is_named(records, tmp_path):
    (tmp_path / "checkpoint.pt").write_bytes(b"cut")
    with pytest.raises(ValueError, match=r"checkpoint\.pt.*delete it"):
        train_drafter(records, tmp_path, DrafterPlan(steps=1, batch=8, held_out_share=3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"batch": -5}, "batch must be at least 1, got -5"),
        ({"warmup": 0}, "warmup"),
        ({"checkpoint_every": 0}, "checkpoint_every"),
        ({"held_out_share": 1}, "held_out_share"),
        ({"rate": 0.0}, "rate must be a number above 0"),
        ({"rate": math.nan}, "rate"),
        ({"dropout": 1.0}, "dropout"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"token_weight": math.inf}, "token_weight"),
        ({"seed": -1}, "seed"),
    ],
)
def test_plans_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DrafterPlan(**options)


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"done": 2, "steps": 9, "shards": "all"}', '{"done": "2", "steps": 9, "shards": []}']
)
def test_damaged_manifests_are_named(target, tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    for use in (lambda: read_records(tmp_path), RecordJob(target, PROMPTS[:2], CONFIGS[:1], tmp_path).run):
        with pytest.raises(ValueError, match=r"manifest\.json: .*delete the recording and repeat it"):
            use()


def test_recordings_that_do_not_belong_together_are_refused(target, tiny_sdar, tmp_path):
    other = Target.from_directory(tiny_sdar(block_length=4))
    RecordJob(target, PROMPTS[:2], CONFIGS[:1], tmp_path / "six").run()
    RecordJob(other, PROMPTS[:2], CONFIGS[:1], tmp_path / "four").run()
    with pytest.raises(ValueError, match=r"blocks of \[4, 6\] positions"):
        read_records(tmp_path / "six", tmp_path / "four")
    (shard,) = (tmp_path / "four").glob("shard-*")
    save_file({name: tensor for name, tensor in load_file(shard).items() if name != "top_ids"}, shard)
    with pytest.raises(ValueError, match="another version"):
        read_records(tmp_path / "four")
