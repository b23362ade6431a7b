"""The library's front: load a model, generate, stream, prove parity."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch

from dlmspec.config import DecodeConfig
from dlmspec.decode import Job, decode_passes, run_jobs
from dlmspec.drafters.base import Drafter
from dlmspec.drafters.registry import fitting_drafter, make_drafter
from dlmspec.models.assembled import assemble
from dlmspec.models.target import Target
from dlmspec.noise import NoiseMode
from dlmspec.parity import ParityCheck, ParityReport
from dlmspec.presets import Preset, find_preset
from dlmspec.request import Request, check_request
from dlmspec.rules import CommitRule, LowConfidenceStatic, make_rule
from dlmspec.shipped import find_model
from dlmspec.stats import DecodeStats
from dlmspec.step import Sampling
from dlmspec.stops import StopSearch

DEFAULT_BUDGET = 4
DEFAULT_BATCH_SIZE = 16
VOCABULARY_FILES = ("tokenizer.json", "vocab.json", "tokenizer.model")
Prompt = str | Sequence[int] | Sequence[Mapping[str, str]]  # text, token ids, or chat messages


@dataclass(frozen=True, slots=True)
class Generation:
    """One answer. `finish_reason` is `stop`, `length` or `stop_string`; `drafter` and `dtype` say what ran."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    stats: DecodeStats
    drafter: str
    dtype: str


@dataclass(frozen=True, slots=True)
class CommitEvent:
    """Tokens that one pass committed for good; `positions` count from the end of the prompt.

    `text` is what can be read so far: the committed tokens up to the first undecided position.
    """

    positions: tuple[int, ...]
    token_ids: tuple[int, ...]
    text: str


def load(name: str | Path, *, dtype: str | torch.dtype | None = None, device: str | None = None,
         block_length: int | None = None, mask_id: int | None = None) -> "LanguageModel":  # fmt: skip
    """Load a target by shipped name, directory or hub id.

    Raises ValueError with the remedy if there is no such model, or its files are missing or damaged.
    """
    directory = assemble(find_model(name))
    target = Target.from_directory(directory, dtype=dtype, device=device, block_length=block_length, mask_id=mask_id)
    return LanguageModel(target)


class LanguageModel:
    """A target with its tokenizer."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._tokenizer: Any = None
        self._drafters: dict[Any, Drafter] = {}  # loaded once

    @property
    def tokenizer(self) -> Any:
        """transformers' tokenizer of the model's directory, loaded at first use."""
        if self._tokenizer is None:
            from transformers import AutoTokenizer, PreTrainedTokenizerFast

            # AutoTokenizer looks the model type up, which transformers does not know for these families
            directory = self.target.tokenizer_path
            try:
                if (directory / "tokenizer.json").exists():
                    self._tokenizer = PreTrainedTokenizerFast.from_pretrained(directory)
                else:
                    self._tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
            except Exception as error:  # both libraries raise many kinds, bare `Exception` among them
                reason = " ".join(str(error).split())
                raise ValueError(
                    f"{directory} has no usable tokenizer ({reason}); pass token ids instead of text"
                ) from error
        return self._tokenizer

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of text, chat messages (by the model's chat template) or ids."""
        if isinstance(prompt, str):
            check_text(prompt)
            ids = self.tokenizer.encode(prompt, add_special_tokens=False)
            begin = self.target.spec.bos_id
            return ids if begin is None or ids[:1] == [begin] else [begin, *ids]
        if prompt and isinstance(prompt[0], Mapping):
            if not self.tokenizer.chat_template:
                raise ValueError(f"{self.target.spec.name} has no chat template; give the prompt as text")
            return self.tokenizer.apply_chat_template(list(prompt), add_generation_prompt=True, return_dict=False)
        return [int(token) for token in prompt]  # type: ignore[arg-type]

    def decode_text(self, token_ids: Sequence[int]) -> str:
        """Text of generated ids; stop ids are left out, a cut character shows as the replacement sign.

        Empty if the model's directory has no vocabulary: then only ids go in and out.
        """
        spec = self.target.spec
        if not any((self.target.tokenizer_path / name).exists() for name in VOCABULARY_FILES):
            return ""
        return self.tokenizer.decode([t for t in token_ids if t not in spec.stop_ids and t != spec.mask_id])

    def config(self, **options: Any) -> DecodeConfig:
        """The decode that these options ask for of this model: `make_config` with its dtype."""
        return make_config(dtype=self.target.dtype, **options)

    def _check_stops(self, stop_strings: str | Sequence[str]) -> None:
        """Raises ValueError if stop strings could never be found because there is no text."""
        if stop_strings:
            _ = self.tokenizer

    def drafter(self, drafter: str | Path | Drafter, rule: CommitRule) -> Drafter:
        """A drafter object from a kind, name, directory or object; `auto` picks the one that fits."""
        spec = self.target.spec
        if not isinstance(drafter, str | Path):
            return drafter
        key = (str(drafter), rule if drafter == "auto" else None)
        if key not in self._drafters:
            self._drafters[key] = (
                fitting_drafter(spec.name, rule, spec.block_length)
                if drafter == "auto"
                else make_drafter(drafter, spec.name)
            )
        return self._drafters[key]

    def generate(
        self,
        prompt: Prompt | Sequence[Prompt],
        *,
        drafter: str | Path | Drafter = "auto",
        budget: int = DEFAULT_BUDGET,
        seed: int | Sequence[int] = 0,
        stop_strings: str | Sequence[str] = (),
        num_samples: int | None = None,
        batch_size: int = DEFAULT_BATCH_SIZE,
        **options: Any,
    ) -> Any:
        """One `Generation`, or a list of them for a list of prompts: `batch_size` at a time share each pass.

        `options` are those of `make_config`. An int seed applies to every prompt, a list gives one for each;
        `num_samples` asks for that many answers to one prompt, with the seeds from `seed` on.
        `stop_strings` (one or several) end the decode once one stands complete in the text without gaps: the text
        ends before it, the ids with the token that completes it, by every drafter alike. What a prompt gets does not
        depend on its batch.
        """
        self._check_stops(stop_strings)
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        prompts, seeds = rows_and_seeds(prompt, seed, num_samples)
        configs = [self.config(seed=row_seed, **options) for row_seed in seeds]
        if not configs:
            return []
        if is_batch(prompt):
            rows = self._encode_all(prompts, configs[0].max_new_tokens)
        else:
            rows = [self.encode(prompts[0])] * len(prompts)
        found = self.drafter(drafter, configs[0].rule)
        jobs = (
            Job(self.target, row, config, found, budget, index)
            for index, (row, config) in enumerate(zip(rows, configs, strict=True))
        )
        answers = dict(self._answers(run_jobs(jobs, batch_size), stop_strings))
        ordered = [answers[index] for index in range(len(rows))]
        return ordered if is_batch(prompt) or num_samples is not None else ordered[0]

    def _encode_all(self, prompts: Sequence[Any], max_new_tokens: int) -> list[list[int]]:
        """Ids of several prompts, all checked before any is decoded; ValueError says which one could not be."""
        rows: list[list[int]] = []
        for number, prompt in enumerate(prompts, 1):
            try:
                rows.append(self.encode(prompt))
                check_request(self.target, rows[-1], max_new_tokens)
            except ValueError as error:
                raise ValueError(f"prompt {number} of {len(prompts)}: {error}") from error
        return rows

    def _answers(self, passes: Iterable[list[Job]],
                 stop_strings: str | Sequence[str]) -> Iterator[tuple[int, Generation]]:  # fmt: skip
        """(index, answer) of every job as it ends; at a stop string it is dropped."""
        searches: dict[int, StopSearch] = {}
        dtype = str(self.target.dtype).removeprefix("torch.")
        for job in itertools.chain.from_iterable(passes):
            request, name = job.request, job.proposer.name
            search = searches.setdefault(job.index, StopSearch(stop_strings, self.decode_text))
            found = search.look(self._readable(request))
            if found is not None:
                job.is_dropped = True
                ids, text = found
                yield job.index, Generation(text, ids, "stop_string", request.stats, name, dtype)
            elif request.is_finished:
                output = request.output()
                text = self.decode_text(output.token_ids)
                yield job.index, Generation(text, output.token_ids, output.finish_reason, output.stats, name, dtype)

    def _readable(self, request: Request) -> tuple[int, ...]:
        """The ids of the answer so far: up to the first undecided position or stop id."""
        tokens = (*request.finished, *request.root.tokens)[len(request.prompt_ids) : request.limit]
        ends = {self.target.spec.mask_id, *self.target.spec.stop_ids}
        return tokens[: next((index for index, token in enumerate(tokens) if token in ends), len(tokens))]

    def stream(self, prompt: Prompt, *, drafter: str | Path | Drafter = "auto", budget: int = DEFAULT_BUDGET,
               stop_strings: str | Sequence[str] = (), **options: Any) -> Iterator[CommitEvent]:  # fmt: skip
        """Commits as passes verify them; options as in `generate`, checked at the call.

        The last event holds the whole text; a complete stop string ends the stream.
        """
        config = self.config(**options)
        self._check_stops(stop_strings)
        passes = decode_passes(
            self.target, self.encode(prompt), config, drafter=self.drafter(drafter, config.rule), budget=budget
        )
        return self._events(passes, config.max_new_tokens, stop_strings)

    def _events(self, passes: Iterator[Request], max_new_tokens: int,
                stop_strings: str | Sequence[str]) -> Iterator[CommitEvent]:  # fmt: skip
        mask_id, search = self.target.spec.mask_id, StopSearch(stop_strings, self.decode_text)
        known = [mask_id] * max_new_tokens
        for request in passes:
            tokens = (*request.finished, *request.root.tokens)[len(request.prompt_ids) : request.limit]
            fresh = [i for i, token in enumerate(tokens) if token != mask_id and known[i] == mask_id]
            known[: len(tokens)] = tokens
            readable = self._readable(request)
            found = search.look(readable)
            text = self.decode_text(readable) if found is None else found[1]
            if fresh:
                yield CommitEvent(tuple(fresh), tuple(known[i] for i in fresh), text)
            if found is not None:
                return

    def verify_parity(self, prompts: Prompt | Sequence[Prompt], *, drafters: Sequence[str | Drafter] = ("auto",),
                      budgets: Sequence[int] = (4, 16), **options: Any) -> ParityReport:  # fmt: skip
        """Compare speculative ids with the reference decoder's; options as in `generate`."""
        config = self.config(**options)
        rows: Any = prompts if is_batch(prompts) else [prompts]
        if not rows:
            raise ValueError("there are no prompts to compare; give at least one")
        found = [self.drafter(drafter, config.rule) for drafter in drafters]
        check = ParityCheck(self.target, found, budgets)
        encoded = self._encode_all(rows, config.max_new_tokens)
        return ParityReport(tuple(check.run("prompts", encoded, [config])))


def is_batch(prompt: Any) -> bool:
    """A list of texts, of id lists or of chats; not one text, id list or chat."""
    if isinstance(prompt, str):
        return False
    return not prompt or isinstance(prompt[0], str) or (isinstance(prompt[0], Sequence) and not isinstance(prompt, str))


def rows_and_seeds(prompt: Prompt | Sequence[Prompt], seed: int | Sequence[int],
                   num_samples: int | None) -> tuple[list[Prompt], list[int]]:  # fmt: skip
    """A prompt and a seed for every answer. Raises ValueError if their numbers do not fit."""
    if is_batch(prompt):
        if num_samples is not None:
            raise ValueError("num_samples needs one prompt; give a list in which prompts stand several times")
        prompts = cast("list[Prompt]", list(prompt))
        seeds = [seed] * len(prompts) if isinstance(seed, int) else list(seed)
        if len(seeds) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts need {len(prompts)} seeds, got {len(seeds)}")
        return prompts, seeds
    if not isinstance(seed, int):
        raise ValueError("a list of seeds needs a list of prompts")
    number = 1 if num_samples is None else num_samples
    if number < 1:
        raise ValueError(f"num_samples must be at least 1, got {number}")
    return [cast(Prompt, prompt)] * number, list(range(seed, seed + number))


def check_text(text: str) -> None:
    """Raises ValueError for what is no Unicode text: the tokenizer would call it a wrong type."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"the prompt holds half a character at position {error.start}; give valid text") from error


def make_config(
    *,
    preset: str | None = None,
    dtype: torch.dtype = torch.float32,
    max_new_tokens: int = 128,
    rule: str | CommitRule | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    confidence: str | None = None,
    suppress_tokens: Sequence[int] = (),
    noise: NoiseMode = "step",
    seed: int = 0,
    early_stop: bool = True,
    cache: str | None = None,
) -> DecodeConfig:
    """A decode config from plain options, checked.

    A `preset` (`presets.py`) is another engine's decoder; what is given beside it goes first. `dtype` is the model's.
    Without one: `low_confidence_static` by `token_prob` at T = 0.
    """
    base = Preset("default", LowConfidenceStatic(), Sampling()) if preset is None else find_preset(preset)
    base = base.for_dtype(dtype)
    given = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "confidence": confidence}
    sampling = replace(
        base.sampling,
        suppress_tokens=tuple(suppress_tokens),
        **{name: value for name, value in given.items() if value is not None},
    )
    return DecodeConfig(
        max_new_tokens=max_new_tokens,
        rule=base.rule if rule is None else make_rule(rule) if isinstance(rule, str) else rule,
        sampling=sampling,
        noise=noise,
        seed=seed,
        early_stop=early_stop,
        cache=cache,
    )
