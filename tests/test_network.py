"""The trainable network and the decoder that serves it must be the same function of the same weights.

Catches: a wrong two-stream mask (a noised block that sees noised neighbours, its own clean copy, or another piece of
the row), positions that do not restart with a piece, masks that are not complementary, a drifted norm or rotation.
"""

import pytest
import torch

from dlmspec.cache import BlockCache
from dlmspec.models.spec import ModelSpec
from dlmspec.models.target_pass import BlockCopy
from dlmspec.models.transformer import BlockDiffusionTransformer
from dlmspec.training.batches import Batch, sample_masks
from dlmspec.training.network import BlockDiffusionNetwork

SPEC = ModelSpec(
    name="tiny", family="sdar", hidden_size=24, num_layers=3, num_heads=6, num_kv_heads=3, head_dim=8,
    intermediate_size=40, vocab_size=61, rms_norm_eps=1e-6, rope_theta=10_000.0, max_position_embeddings=96,
    tie_word_embeddings=True, block_length=8, mask_id=3, stop_ids=(1,),
)  # fmt: skip


def random_network() -> BlockDiffusionNetwork:
    torch.manual_seed(0)
    network = BlockDiffusionNetwork(SPEC)
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


@pytest.mark.parametrize("first_copy", [True, False], ids=["mask", "complement"])
def test_every_noised_block_equals_a_decoding_pass(first_copy):
    network = random_network()
    batch = packed_batch([[32, 16, 24], [24, 40, 8]])
    with torch.no_grad():
        trained = network.logits(batch)
    weights = {name: tensor.detach() for name, tensor in network.state_dict().items()}
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    transformer = BlockDiffusionTransformer(SPEC, weights)
    masked = batch.masked if first_copy else ~batch.masked
    compared = 0
    for row in range(2):
        for segment in range(3):
            places = (batch.segments[row] == segment).nonzero().squeeze(-1)
            for start in range(0, len(places), SPEC.block_length):
                here = places[start : start + SPEC.block_length]
                cache = BlockCache(SPEC, 96, dtype=torch.float32, device=torch.device("cpu"))
                if start:
                    transformer.prefill(cache, batch.tokens[row, places[:start]].tolist())
                noised = batch.tokens[row, here].masked_fill(masked[row, here], SPEC.mask_id)
                rows = masked[row, here].nonzero().squeeze(-1).tolist()
                if not rows:
                    continue
                output = transformer.forward(cache, [BlockCopy(tuple(noised.tolist()), 0, ())])
                expected = output.logits(0, rows)
                got = trained[row, here][rows]
                kept = torch.arange(SPEC.vocab_size) != SPEC.mask_id
                torch.testing.assert_close(got[:, kept], expected[:, kept], atol=2e-4, rtol=1e-4)
                compared += len(rows)
    assert compared > 40


def test_masks_are_uniform_in_number_and_ragged_blocks_complement():
    nothing = torch.zeros(64, 96, dtype=torch.bool)
    masks = sample_masks(nothing, 8, seed=1)
    counts = masks.view(64, 12, 8).sum(-1).flatten()
    assert set(counts.tolist()) == set(range(9))
    assert not torch.equal(masks, sample_masks(nothing, 8, seed=2))
