"""The trainable network and the decoder that serves it must be the same function of the same weights.

Catches: a wrong two-stream mask (a noised block that sees noised neighbours, its own clean copy, or another piece of
the row), positions that do not restart with a piece, masks that are not complementary, a drifted norm or rotation.
"""

from dataclasses import replace

import pytest
import torch

from dlmspec.cache import BlockCache
from dlmspec.models.loader import EMBEDDING_NAME
from dlmspec.models.low_rank import merge
from dlmspec.models.spec import ModelSpec
from dlmspec.models.target_pass import BlockCopy
from dlmspec.models.transformer import BlockDiffusionTransformer
from dlmspec.training.batches import Batch, sample_masks
from dlmspec.training.low_rank import LowRankProduct, adapt, delta_of, take_delta
from dlmspec.training.network import BlockDiffusionNetwork

SPEC = ModelSpec(
    name="tiny", family="sdar", hidden_size=24, num_layers=3, num_heads=6, num_kv_heads=3, head_dim=8,
    intermediate_size=40, vocab_size=61, rms_norm_eps=1e-6, rope_theta=10_000.0, max_position_embeddings=96,
    tie_word_embeddings=True, block_length=8, mask_id=3, stop_ids=(1,),
)  # fmt: skip


SHIFTED = replace(SPEC, qk_norm=False, logit_shift=True)


def random_network(spec: ModelSpec) -> BlockDiffusionNetwork:
    torch.manual_seed(0)
    network = BlockDiffusionNetwork(spec)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3) if parameter.dim() == 2 else torch.nn.init.uniform_(
            parameter, 0.5, 1.5
        )
    return network


def packed_batch(lengths: list[list[int]]) -> Batch:
    """Rows of pieces with these lengths; ids avoid the mask."""
    tokens = torch.randint(4, SPEC.vocab_size, (len(lengths), sum(lengths[0])))
    segments = torch.stack([torch.repeat_interleave(torch.arange(len(row)), torch.tensor(row)) for row in lengths])
    positions = torch.stack([torch.cat([torch.arange(n) for n in row]) for row in lengths])
    masked = sample_masks(torch.zeros(tokens.shape, dtype=torch.bool), SPEC.block_length, seed=5)
    return Batch(tokens, positions, segments, torch.ones(tokens.shape), torch.zeros_like(tokens), masked)


def assert_trained_as_decoded(network: BlockDiffusionNetwork, transformer: BlockDiffusionTransformer, batch: Batch,
                              masked: torch.Tensor) -> None:  # fmt: skip
    """Logits of the network's noised blocks against decoding passes over the same blocks."""
    spec = network.spec
    with torch.no_grad():
        trained = network.logits(batch)
    compared = 0
    for row in range(2):
        for segment in range(3):
            places = (batch.segments[row] == segment).nonzero().squeeze(-1)
            for start in range(0, len(places), spec.block_length):
                here = places[start : start + spec.block_length]
                cache = BlockCache(spec, 96, dtype=torch.float32, device=torch.device("cpu"))
                if start:
                    transformer.prefill(cache, batch.tokens[row, places[:start]].tolist())
                noised = batch.tokens[row, here].masked_fill(masked[row, here], spec.mask_id)
                rows = masked[row, here].nonzero().squeeze(-1).tolist()
                if spec.logit_shift and not start:
                    rows = [i for i in rows if i]  # nothing predicts a text's first token
                if not rows:
                    continue
                output = transformer.forward(cache, [BlockCopy(tuple(noised.tolist()), 0, ())])
                expected = output.logits(0, rows)
                got = trained[row, here][rows]
                kept = torch.arange(spec.vocab_size) != spec.mask_id
                torch.testing.assert_close(got[:, kept], expected[:, kept], atol=2e-4, rtol=1e-4)
                compared += len(rows)
    assert compared > 40


@pytest.mark.parametrize("spec", [SPEC, SHIFTED], ids=["plain", "shifted"])
@pytest.mark.parametrize("first_copy", [True, False], ids=["mask", "complement"])
def test_every_noised_block_equals_a_decoding_pass(first_copy, spec):
    network = random_network(spec)
    batch = packed_batch([[32, 16, 24], [24, 40, 8]])
    weights = {name: tensor.detach() for name, tensor in network.state_dict().items()}
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    masked = batch.masked if first_copy else ~batch.masked
    assert_trained_as_decoded(network, BlockDiffusionTransformer(spec, weights), batch, masked)


def test_a_trained_change_is_what_the_merged_weights_decode():
    """Catches factors the wrong way round, a forgotten layer, a mask's row that is not put back, frozen weights hit."""
    network = random_network(SHIFTED)
    base = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    adapt(network, rank=3)
    batch = packed_batch([[32, 16, 24], [24, 40, 8]])
    optimizer = torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=0.2)
    for _ in range(2):
        network(batch)[batch.positions > 0].mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    delta = {name: tensor.clone() for name, tensor in delta_of(network).items()}
    assert len(delta) == 2 * 7 * SHIFTED.num_layers + 1
    assert all(tensor.any() for tensor in delta.values())
    again = random_network(SHIFTED)
    adapt(again, rank=3)
    take_delta(again, delta)
    merged = {name: tensor.clone() for name, tensor in base.items()}
    merge(merged, delta, SHIFTED.mask_id)
    assert all(not torch.equal(merged[name], base[name]) for name in base if "norm" not in name)
    merged["lm_head.weight"] = merged["model.embed_tokens.weight"]
    transformer = BlockDiffusionTransformer(SHIFTED, merged)
    for trained in (network, again):
        assert_trained_as_decoded(trained, transformer, batch, batch.masked)


def test_the_gradient_of_a_low_rank_product():
    """Catches a factor transposed, the frozen matrix left out of the backward pass, leading dimensions mixed."""
    generator = torch.Generator().manual_seed(0)
    weight, x, inner, outer = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((7, 5), (2, 4, 5), (3, 5), (7, 3))
    )
    for tensor in (x, inner, outer):
        tensor.requires_grad_()
    product = LowRankProduct.apply(x, weight, weight.T.contiguous(), inner, outer)
    torch.testing.assert_close(product, x @ (weight + outer @ inner).T)
    assert torch.autograd.gradcheck(
        lambda *tensors: LowRankProduct.apply(tensors[0], weight, weight.T.contiguous(), *tensors[1:]),
        (x, inner, outer),
    )


def test_a_change_starts_in_the_directions_of_the_gradient():
    """With the mask's first embedding in place, and nothing of the model moved."""
    batch = packed_batch([[32, 16, 24], [24, 40, 8]])
    plain, network = random_network(SHIFTED), random_network(SHIFTED)
    with torch.no_grad():
        plain.model.embed_tokens.weight[SHIFTED.mask_id] = plain.model.embed_tokens.weight.mean(0)
    losses = plain(batch)
    ((losses * batch.weights).sum() / batch.weights.sum()).backward()
    adapt(network, 3, [batch])
    gradient = plain.model.layers[1].mlp.up_proj.weight.grad  # type: ignore[union-attr]
    change = network.model.layers[1].mlp.up_proj  # type: ignore[union-attr]
    found = change.delta_in.detach()  # type: ignore[union-attr]
    torch.testing.assert_close(found @ found.T, torch.eye(3), atol=1e-5, rtol=0)
    largest = torch.linalg.svdvals(gradient)[:3]  # type: ignore[arg-type]
    torch.testing.assert_close((gradient @ found.T).norm(dim=0), largest, atol=0, rtol=1e-3)  # type: ignore[operator]
    assert all(p.grad is None for p in network.parameters())
    torch.testing.assert_close(network.logits(batch), plain.logits(batch), atol=1e-4, rtol=1e-4)


def test_a_change_trained_in_bf16_follows_the_one_in_fp32():
    """Catches a product that keeps fp32 under autocast, or a gradient that loses more than bf16's digits."""
    batch = packed_batch([[32, 16, 24], [24, 40, 8]])
    losses, gradients = [], []
    for dtype in (torch.float32, torch.bfloat16):
        network = random_network(SHIFTED)
        torch.manual_seed(1)
        adapt(network, rank=3, dtype=dtype)
        trained = [p for p in network.parameters() if p.requires_grad]
        with torch.no_grad():
            for parameter in trained:
                parameter.add_(0.05 * torch.randn_like(parameter))
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            loss = network(batch)[batch.positions > 0]
        loss.mean().backward()
        assert network.model.layers[0].mlp.up_proj.weight.dtype == dtype  # type: ignore[union-attr]
        assert all(p.dtype == torch.float32 for p in trained)
        losses.append(loss.detach())
        gradients.append(torch.cat([p.grad.flatten() for p in trained]))  # type: ignore[union-attr]
    assert not torch.equal(*losses)
    torch.testing.assert_close(*losses, atol=0.05, rtol=0.05)
    assert torch.nn.functional.cosine_similarity(*gradients, dim=0) > 0.98


def test_a_change_of_another_model_is_refused():
    weights = {EMBEDDING_NAME: torch.zeros(5, 4), "a.weight": torch.zeros(3, 4)}
    for delta, named in (
        ({"a.delta_out": torch.ones(3, 2)}, "a.delta_in"),
        ({"b.delta_out": torch.ones(3, 2), "b.delta_in": torch.ones(2, 4)}, "b.weight"),
        ({"a.delta_out": torch.ones(4, 2), "a.delta_in": torch.ones(2, 4)}, "a.weight"),
        ({"mask_embedding": torch.ones(3)}, "mask_embedding"),
        ({"a.delta_in": torch.ones(2, 4)}, "a.delta_out"),
        ({"a.delta_out": torch.ones(3, 2), "a.delta_in": torch.ones(3, 4)}, "change of a do not fit"),
        ({"foo": torch.ones(3)}, "foo"),
    ):
        with pytest.raises(ValueError, match=named):
            merge(weights, delta, 1)


def test_masks_are_uniform_in_number_and_ragged_blocks_complement():
    nothing = torch.zeros(64, 96, dtype=torch.bool)
    masks = sample_masks(nothing, 8, seed=1)
    counts = masks.view(64, 12, 8).sum(-1).flatten()
    assert set(counts.tolist()) == set(range(9))
    assert not torch.equal(masks, sample_masks(nothing, 8, seed=2))
