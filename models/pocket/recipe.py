"""Trains `pocket` from scratch: `python models/pocket/recipe.py --tokens 20e6` (resumes from `.cache/pocket`)."""

import argparse
from pathlib import Path

import torch

from dlmspec.models.spec import ModelSpec
from dlmspec.training.corpus import read_documents
from dlmspec.training.target import Corpus, TargetTrainer, TrainingPlan, from_scratch, start_from
from dlmspec.training.tokenizer import kept_tokenizer

SPEC = ModelSpec(
    name="pocket",
    family="sdar",
    hidden_size=256,
    num_layers=6,
    num_heads=4,
    num_kv_heads=2,
    head_dim=64,
    intermediate_size=768,
    vocab_size=4096,
    rms_norm_eps=1e-6,
    rope_theta=10_000.0,
    max_position_embeddings=512,
    tie_word_embeddings=True,
    block_length=16,
    mask_id=0,
    stop_ids=(1,),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=float, default=20e6, help="noised tokens in all")
    parser.add_argument("--math-share", type=float, default=0.45)
    parser.add_argument("--arithmetic-share", type=float, default=0.30)
    parser.add_argument("--decay-share", type=float, default=0.3, help="of the steps, with a falling rate")
    parser.add_argument("--work", type=Path, default=Path(".cache/pocket"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--start", type=Path, help="exported model to go on from, where no checkpoint is left")
    parser.add_argument("--first-step", type=int, default=0, help="the step that --start had reached")
    parser.add_argument("--no-compile", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    plan = TrainingPlan(
        tokens=int(arguments.tokens),
        math_share=arguments.math_share,
        arithmetic_share=arguments.arithmetic_share,
        decay_share=arguments.decay_share,
        first_step=arguments.first_step,
        compile=not arguments.no_compile,
    )
    documents = read_documents()
    tokenizer = kept_tokenizer(arguments.work, documents, vocab_size=SPEC.vocab_size)
    trainee = from_scratch(SPEC, plan, tokenizer)
    trainer = TargetTrainer(trainee, plan, Corpus(documents, tokenizer, SPEC), arguments.work)
    if not trainer.resume() and arguments.start:
        start_from(trainee.network, arguments.start)
    trainer.run()


if __name__ == "__main__":
    main()
