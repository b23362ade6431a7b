"""Turns SmolLM2-135M-Instruct into a block-diffusion model: `python models/smol/recipe.py --tokens 1e6`.

Goes on from the checkpoint in `.cache/smol`, else from the shipped change. `--dialogues N` records answers of the
unchanged model, which `chat` is trained on.
"""

import argparse
import zlib
from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import Tokenizer

import dlmspec
from dlmspec.models.assembled import assemble
from dlmspec.models.loader import load_weights
from dlmspec.models.low_rank import DELTA_NAME, load_delta
from dlmspec.models.read_spec import spec_from_directory
from dlmspec.shipped import find_model
from dlmspec.training.conversion import from_pretrained
from dlmspec.training.corpus import read_documents
from dlmspec.training.dialogues import read_dialogues, record_dialogues
from dlmspec.training.instructions import all_instructions
from dlmspec.training.low_rank import take_delta
from dlmspec.training.target import CHECKPOINT_NAME, Corpus, TargetTrainer, TrainingPlan

HERE = Path(__file__).parent
DIALOGUES = HERE / "dialogues.jsonl"
RANK = 30
BLOCK_LENGTH = 16
FIRST_SEED = 10**6  # behind those of all steps
MASK_ID = 4  # <reponame>, which the base never uses
FIRST_ROWS = 2
FIRST_BATCHES = 4  # whose gradient gives the change its first directions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=float, default=1e6, help="noised tokens in all")
    parser.add_argument("--first-tokens", type=float, default=0, help="noised tokens that the shipped change has seen")
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--decay-share", type=float, default=0.1, help="of the steps, with a falling rate")
    parser.add_argument("--rows", type=int, default=8, help="of 256 tokens per step")
    parser.add_argument("--bf16", action="store_true", help="compute in bf16, where the processor has it")
    parser.add_argument("--work", type=Path, default=Path(".cache/smol"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dialogues", type=int, metavar="N", help="record dialogues until there are N, and stop")
    parser.add_argument("--no-compile", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.dialogues:
        # all kinds and topics in any first part: the order of a checksum
        instructions = sorted(all_instructions(), key=lambda instruction: zlib.crc32(instruction.name.encode()))
        record_dialogues(dlmspec.load("smol-ar"), instructions[: arguments.dialogues], DIALOGUES)
        return
    plan = TrainingPlan(
        tokens=int(arguments.tokens),
        rows=arguments.rows,
        math_share=0.35,
        arithmetic_share=0.0,
        chat_share=0.2,
        other_rate=arguments.rate,
        warmup_steps=8,
        decay_share=arguments.decay_share,
        first_step=int(arguments.first_tokens) // (2 * arguments.rows * 256),
        checkpoint_seconds=600,
        evaluation_batches=8,
        compile=not arguments.no_compile,
    )
    directory = assemble(find_model("smol-ar"))
    base = spec_from_directory(directory)
    spec = replace(base, name="smol", family="block_llama", block_length=BLOCK_LENGTH, mask_id=MASK_ID)
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    corpus = Corpus(read_documents(), tokenizer, spec, read_dialogues(DIALOGUES))
    weights = load_weights(directory, base, torch.float32, "cpu")
    packer = corpus.packer(plan)
    is_new = not (arguments.work / CHECKPOINT_NAME).exists() and not (HERE / DELTA_NAME).exists()
    batches = [packer.batch(FIRST_SEED + number, FIRST_ROWS) for number in range(FIRST_BATCHES if is_new else 0)]
    trainee = from_pretrained(weights, spec, plan, rank=RANK, batches=batches, autocast=arguments.bf16)
    trainer = TargetTrainer(trainee, plan, corpus, arguments.work)
    if not trainer.resume() and not is_new:
        take_delta(trainee.network, load_delta(HERE))
    trainer.run()


if __name__ == "__main__":
    main()
