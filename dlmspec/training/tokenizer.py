"""Trains the small byte-level BPE tokenizer of `pocket`: single digits, one mask and one end token."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from dlmspec.atomic import replacing
from dlmspec.training.corpus import Document
from dlmspec.training.math_problems import document_text, sample_problem

MASK_TOKEN = "<|mask|>"
EOS_TOKEN = "<|eos|>"


def train_tokenizer(documents: list[Document], *, vocab_size: int = 4096, seed: int = 0) -> Tokenizer:
    """Byte-level BPE over training documents and generated problems; digits never merge (ids 0 mask, 1 end)."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[MASK_TOKEN, EOS_TOKEN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(documents, seed), trainer)
    return tokenizer


def kept_tokenizer(directory: Path, documents: list[Document], *, vocab_size: int = 4096) -> Tokenizer:
    """The tokenizer kept in a directory; trained and put there if there is none."""
    path = directory / "tokenizer.json"
    if not path.exists():
        save_tokenizer(train_tokenizer(documents, vocab_size=vocab_size), directory)
    return Tokenizer.from_file(str(path))


def _texts(documents: list[Document], seed: int) -> Iterator[str]:
    rng = random.Random(seed)
    for document in documents:
        if not document.held_out:
            yield document.text
    for _ in range(20_000):
        yield document_text(sample_problem(rng))


def save_tokenizer(tokenizer: Tokenizer, directory: Path) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` in transformers' layout."""
    directory.mkdir(parents=True, exist_ok=True)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": EOS_TOKEN,
        "pad_token": EOS_TOKEN,
        "mask_token": MASK_TOKEN,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 512,
    }
    with replacing(directory / "tokenizer_config.json", directory / "tokenizer.json") as (settings, vocabulary):
        settings.write_text(json.dumps(config, indent=2) + "\n")
        tokenizer.save(str(vocabulary))
