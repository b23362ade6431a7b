"""Generates with the shipped model, then proves that speculation changed nothing: `python examples/quickstart.py`."""

import dlmspec

lm = dlmspec.load("pocket")  # a name, a local directory, or a hub id
question = "Question: Mia picks 34 apples and 17 pears. She gives away 6 of them. How many are left?\nAnswer:"
out = lm.generate(question, max_new_tokens=96)
print(out.text)
print(f"{len(out.token_ids)} tokens in {out.stats.num_passes} target passes, drafted by {out.drafter}")
print(f"identical to plain decoding: {lm.verify_parity([question], max_new_tokens=96).exact_match:.0%}")
