"""The promise: every drafter, at every budget, gives the ids of the plain loop, under every rule and temperature.

Catches: a node taken for the true successor that is none, noise of the wrong step, KV of an unfinished or wrong
block kept, prompts overwritten, masks or tokens behind a stop returned, passes miscounted, lookahead under the wrong
ancestors. Everything runs on small random targets in fp32 and fp64, on ragged prompts and block lengths.
"""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dlmspec.config import DecodeConfig
from dlmspec.decode import decode, reference_decode
from dlmspec.drafters import UNTRAINED
from dlmspec.drafters.base import DraftContext, NothingKnown
from dlmspec.drafters.oracle import Replaying
from dlmspec.drafters.spot import SpotDrafter
from dlmspec.models.row_invariance import row_invariant
from dlmspec.order.calibration import EDGES, TokenTable
from dlmspec.order.model import OrderConfig, OrderModel
from dlmspec.request import Request
from dlmspec.rules import EntropyBounded, Factor, LowConfidenceDynamic, LowConfidenceStatic, Sequential
from dlmspec.state import BlockState
from dlmspec.step import Sampling
from dlmspec.tree import DraftNode, DraftTree

MASK, STOP = 0, 1


RULES = [
    LowConfidenceStatic(),
    LowConfidenceStatic(denoising_steps=3),
    LowConfidenceDynamic(threshold=0.3),
    Sequential(),
    EntropyBounded(gamma=1.5),
    Factor(factor=1.5),
]


def rule_name(rule) -> str:
    return f"{rule.name}-{getattr(rule, 'denoising_steps', None)}"


class CrowdedDrafter:
    """Two completions of every block, each with the next block's start, duplicates, and a chain under each."""

    name = "crowded"

    def begin(self, target, prompt_ids, config):
        return self

    def propose(self, context: DraftContext, budget: int) -> DraftTree:
        tree = DraftTree.from_root(context.root)
        evidence = context.evidence.get(context.block)
        for shift in (0, 1, 0):
            if len(tree) + 2 > budget or context.block + 1 >= context.num_blocks:
                break
            tokens = list(context.root.tokens)
            for position in context.root.masked_positions(MASK):
                ids = evidence.candidates(context.root.step).ids[position] if evidence else [7, 8]
                tokens[position] = ids[min(shift, len(ids) - 1)]
            final = tree.add(DraftNode(BlockState(tuple(tokens), context.root.step + 1), 0, (), 0.4, True))
            start = context.fresh_state(context.block + 1)
            tree.add(DraftNode(start, 1, (final,), 0.4, False))
        return tree


def untrained_spot(kind: type[SpotDrafter] = SpotDrafter) -> SpotDrafter:
    """Random orders and a table that gives alternatives a place: what it proposes is wrong, not what it decides."""
    torch.manual_seed(1)
    table = [[[0.4] * (len(EDGES) + 1)] * 8] * 3
    return kind(OrderModel(OrderConfig()).eval().requires_grad_(False), TokenTable(table, table))


def drafters() -> list:
    return [make() for make in UNTRAINED.values()] + [CrowdedDrafter(), untrained_spot()]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rule", RULES, ids=rule_name)
@pytest.mark.parametrize("shift", [False, True], ids=["plain", "shifted"])
@pytest.mark.parametrize("block_length", [1, 3, 8])
def test_every_drafter_gives_the_reference_ids(make_target, block_length, shift, rule, temperature):
    target = make_target(block_length, shift=shift)
    for prompt_length, early_stop in ((1, True), (block_length, False), (2 * block_length + 1, True)):
        prompt = [2 + (7 * i) % 26 for i in range(prompt_length)]
        config = DecodeConfig(
            max_new_tokens=block_length + 3, rule=rule, early_stop=early_stop, seed=3,
            sampling=Sampling(temperature=temperature),
        )  # fmt: skip
        reference = reference_decode(target, prompt, config)
        stored = reference_decode(target, prompt, config, store_passes=True)
        assert stored.token_ids == reference.token_ids
        assert stored.stats.num_denoising_passes == reference.stats.num_denoising_passes
        for drafter in drafters():
            for budget in (2, 7):
                output = decode(target, prompt, config, drafter=drafter, budget=budget)
                assert output.token_ids == reference.token_ids, (drafter.name, budget, prompt_length)
                assert output.finish_reason == reference.finish_reason
                assert output.stats.num_passes <= reference.stats.num_passes
                assert output.stats.num_steps == reference.stats.num_steps


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**64 - 1),
    prompt=st.lists(st.integers(2, 28), min_size=1, max_size=14),
    new=st.integers(1, 20),
    block_length=st.sampled_from([2, 5, 6]),
    shift=st.booleans(),
    drafter=st.sampled_from(["confidence-tree", "random", "oracle-order"]),
    budget=st.integers(1, 20),
    sampling=st.sampled_from(
        [
            Sampling(),
            Sampling(temperature=0.7, top_k=5, top_p=0.9),
            Sampling(temperature=1.3, confidence="margin"),
            Sampling(temperature=1.0, confidence="filtered_token_prob", top_p=0.8, suppress_tokens=(5, 6)),
            Sampling(confidence="entropy"),
        ]
    ),
    noise=st.sampled_from(["step", "position"]),
)
def test_random_requests_are_decoded_exactly(
    make_target, seed, prompt, new, block_length, shift, drafter, budget, sampling, noise
):
    target = make_target(block_length, dtype=torch.float64, shift=shift)
    config = DecodeConfig(max_new_tokens=new, sampling=sampling, seed=seed, noise=noise)
    reference = reference_decode(target, prompt, config)
    output = decode(target, prompt, config, drafter=UNTRAINED[drafter](), budget=budget)
    assert output.token_ids == reference.token_ids
    assert output.finish_reason == reference.finish_reason
    assert not set(output.token_ids) & {MASK, *sampling.suppress_tokens}
    assert len(output.token_ids) <= new
    stops = [i for i, token in enumerate(output.token_ids) if token == STOP]
    assert (output.finish_reason == "stop") == bool(stops)
    assert stops in ([], [len(output.token_ids) - 1])


def test_the_oracle_needs_no_pass_more_than_the_budget_allows(make_target):
    target = make_target(4)
    config = DecodeConfig(max_new_tokens=16, early_stop=False)
    stats = decode(target, [5] * 4, config, drafter=UNTRAINED["oracle"](), budget=64).stats
    assert stats.num_denoising_passes == 1
    assert stats.accepted == {16: 1}


class SkippingDrafter(Replaying):
    """Beside the root only the state two steps on: it is reached one pass later, if passes are remembered."""

    name = "skipping"

    def propose(self, context: DraftContext, budget: int) -> DraftTree:
        tree, successors = DraftTree.from_root(context.root), self.trajectory.successors
        following = successors.get((context.block, context.root.step + 1))
        if following is not None and MASK in following.tokens:
            tree.add(DraftNode(following, 0, (), 0.5, False))
        return tree


class EarlyDrafter(Replaying):
    """In a block's first passes its true end with the next block's start, then nothing."""

    name = "early"

    def propose(self, context: DraftContext, budget: int) -> DraftTree:
        tree, steps = DraftTree.from_root(context.root), self.trajectory.successors
        if context.root.step < 2 and context.block + 1 < context.num_blocks:
            end = max(step for block, step in steps if block == context.block)
            final = tree.add(DraftNode(steps[context.block, end], 0, (), 0.5, True))
            tree.add(DraftNode(context.fresh_state(context.block + 1), 1, (final,), 0.5, False))
        return tree


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_states_scored_by_earlier_passes_are_walked_without_another(make_target, temperature):
    target = make_target(8, stop=-1)
    config = DecodeConfig(max_new_tokens=23, sampling=Sampling(temperature=temperature), early_stop=False)
    reference = reference_decode(target, [5], config)
    assert reference.stats.num_passes == 23
    skipping = decode(target, [5], config, drafter=SkippingDrafter(), budget=2)
    assert skipping.token_ids == reference.token_ids
    assert skipping.stats.num_passes < 0.6 * 23, "every second pass walks over the state that the one before scored"
    early = decode(target, [5], config, drafter=EarlyDrafter(), budget=3)
    assert early.token_ids == reference.token_ids
    assert early.stats.num_passes == 23 - 2, "two blocks' ends and the next ones' first steps are known"


def test_cached_rows_equal_a_prefill_over_the_final_tokens(make_target):
    """The KV of a block is kept from its final state only (accepted node, or store rows of the next pass)."""
    target = make_target(4, dtype=torch.float64)
    config = DecodeConfig(max_new_tokens=15, early_stop=False)
    for name in ("confidence-tree", "oracle"):
        kept: list[Request] = []
        original = Request.output

        def spy(request, kept=kept, original=original):
            kept.append(request)
            return original(request)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Request, "output", spy)
            decode(target, [5, 9, 3], config, drafter=UNTRAINED[name](), budget=9)
        request = kept[-1]
        length = request.memory.cache.length
        assert length >= 12
        fresh = target.new_cache(18)
        target.prefill(fresh, request.finished[:length])
        torch.testing.assert_close(request.memory.cache.keys[:, :, :length], fresh.keys[:, :, :length])
        torch.testing.assert_close(request.memory.cache.values[:, :, :length], fresh.values[:, :, :length])


class UnfaithfulDrafter:
    """Breaks the contract in one of three ways."""

    name = "unfaithful"

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def begin(self, target, prompt_ids, config):
        return self

    def propose(self, context: DraftContext, budget: int) -> DraftTree:
        root = context.root
        if self.fault == "root":
            return DraftTree.from_root(BlockState((9,) * len(root.tokens), root.step))
        tree = DraftTree.from_root(root)
        if self.fault == "budget":
            for token in range(2, 20):
                tree.add(DraftNode(BlockState((token, *root.tokens[1:]), root.step + 1), 0, (), 0.1, False))
            return tree
        final = tree.add(DraftNode(BlockState((9,) * len(root.tokens), root.step + 1), 0, (), 0.1, True))
        tree.add(DraftNode(context.fresh_state(context.block + 1), 1, (final,), 0.1, False))
        return tree


@pytest.mark.parametrize(
    ("fault", "message"), [("root", "first node"), ("budget", "19 states"), ("block", "last block")]
)
def test_a_drafter_that_breaks_its_contract_is_refused(make_target, fault, message):
    with pytest.raises(ValueError, match=f"unfaithful.*{message}"):
        decode(make_target(4), [5], DecodeConfig(max_new_tokens=3), drafter=UnfaithfulDrafter(fault), budget=6)


@pytest.mark.parametrize("sampling", [Sampling(temperature=1.0, top_k=1), Sampling(temperature=0.8, top_p=0.5)])
def test_filtered_tokens_get_no_nodes(make_target, sampling):
    """A token that the filter excludes can never be committed, so it must not cost a state."""
    seen = []

    class Watched(SpotDrafter):
        def propose(self, context, budget):
            context = replace(context, known=NothingKnown())  # else other distributions are read too
            tree = super().propose(context, budget)
            evidence = context.evidence.get(context.block)
            for node in tree.nodes[1:]:
                if node.block == 0 and evidence is not None:
                    for position in context.root.masked_positions(MASK):
                        token = node.state.tokens[position]
                        row = evidence.positions.index(position)
                        seen.append(token == MASK or bool(evidence.log_probs[row, token] > float("-inf")))
            return tree

    config = DecodeConfig(max_new_tokens=16, sampling=sampling)
    output = decode(make_target(4), [5, 6], config, drafter=untrained_spot(Watched), budget=12)
    assert output.token_ids == reference_decode(make_target(4), [5, 6], config).token_ids
    assert len(seen) > 50
    assert all(seen)


def test_a_budget_below_one_is_refused(make_target):
    with pytest.raises(ValueError, match="budget"):
        decode(make_target(4), [5], DecodeConfig(), drafter=UNTRAINED["none"](), budget=0)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_bf16_passes_give_the_reference_ids_where_its_products_are_row_invariant(make_target, temperature):
    if row_invariant(torch.bfloat16, max_rows=256, width=64):
        pytest.skip("this machine's bf16 products are not row-invariant")
    target = make_target(8, dtype=torch.bfloat16)
    for seed in range(3):
        config = DecodeConfig(max_new_tokens=21, sampling=Sampling(temperature=temperature), seed=seed)
        reference = reference_decode(target, [5, 6, 7], config)
        for drafter in drafters():
            assert decode(target, [5, 6, 7], config, drafter=drafter, budget=9).token_ids == reference.token_ids
