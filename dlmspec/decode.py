"""The two decoders: the plain loop that defines the output, and the speculative loop that must equal it."""

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence

import torch

from dlmspec.config import DecodeConfig
from dlmspec.drafters.base import DraftContext, Drafter
from dlmspec.evidence_book import EvidenceBook
from dlmspec.memory import ScoredRows
from dlmspec.models.target import Target
from dlmspec.models.target_pass import read_logits
from dlmspec.request import DecodeOutput, Request, StepObserver, prefill, run_trees, store_pass
from dlmspec.scored import ScoredStates
from dlmspec.state import BlockState
from dlmspec.tree import DraftTree
from dlmspec.verify import verify


def reference_decode(target: Target, prompt_ids: list[int], config: DecodeConfig, *, store_passes: bool = False,
                     observer: StepObserver | None = None) -> DecodeOutput:  # fmt: skip
    """One state per pass, one step per pass: the decoder that defines the output.

    `store_passes` runs a pass of its own over the prompt and over every finished block, the last one included, as the
    families' own loops do; without it those rows ride in the next pass over a block (folded). Ids are the same.
    """
    started = time.perf_counter()
    request = Request(target, prompt_ids, config)
    store_passes = store_passes and not request.spec.is_autoregressive  # its loops have none
    prefill(request, whole=store_passes)
    while not request.is_finished:
        (successor,) = reference_step([request], observer)
        if store_passes and request.law.is_final(successor):
            if request.is_finished:  # these loops store the last block too
                request.memory.finish(successor.tokens, None, 0)
            store_pass(request)
    request.stats.seconds = time.perf_counter() - started
    return request.output()


def reference_decode_batch(target: Target, prompts: Sequence[list[int]],
                           configs: Sequence[DecodeConfig]) -> Iterator[tuple[int, DecodeOutput]]:  # fmt: skip
    """`reference_decode` (folded) of several prompts of any lengths at once: yields (index, output) as they end.

    Each pass takes one step of every prompt that has not ended; a prompt's ids do not depend on the others. Seconds are
    those until its end, shared with the others.
    """
    started = time.perf_counter()
    requests = {
        index: Request(target, prompt, config)
        for index, (prompt, config) in enumerate(zip(prompts, configs, strict=True))
    }
    for request in requests.values():
        prefill(request, whole=False)
    while requests:
        reference_step(list(requests.values()))
        for index in [index for index, request in requests.items() if request.is_finished]:
            request = requests.pop(index)
            request.stats.seconds = time.perf_counter() - started
            yield index, request.output()


@torch.inference_mode()
def reference_step(requests: Sequence[Request], observer: StepObserver | None = None) -> list[BlockState]:
    """One pass that takes one denoising step of every request; returns the states they came to."""
    roots = [request.root for request in requests]
    scored = run_trees(requests, [DraftTree.from_root(root) for root in roots])
    wanted = [
        (rows.output, rows.rows(0, root.masked_positions(request.spec.mask_id)))
        for request, root, rows in zip(requests, roots, scored, strict=True)
    ]
    successors = []
    for request, root, logits in zip(requests, roots, read_logits(wanted), strict=True):
        block = request.block
        successor = request.law.denoise([root], logits, block)[0]
        request.stats.record(1, 1, 1.0)
        if observer is not None:
            observer(block, root, logits, successor)
        request.move_to(successor, block)
        successors.append(successor)
    return successors


def decode(target: Target, prompt_ids: list[int], config: DecodeConfig, *, drafter: Drafter,
           budget: int = 16) -> DecodeOutput:  # fmt: skip
    """Speculative decoding by state equality: the ids of `reference_decode`, in fewer passes.

    `budget` counts the block states of one pass, the root included. Raises ValueError if it is below 1.
    """
    *_, request = decode_passes(target, prompt_ids, config, drafter=drafter, budget=budget)
    return request.output()


def decode_passes(target: Target, prompt_ids: list[int], config: DecodeConfig, *, drafter: Drafter,
                  budget: int) -> Iterator[Request]:  # fmt: skip
    """The speculative loop, pass by pass: yields the request as each verified pass leaves it."""
    for (job,) in run_jobs([Job(target, prompt_ids, config, drafter, budget)], 1):
        yield job.request


class Job:
    """One request on its way through the speculative loop: what has been scored for it, and who drafts.

    Raises ValueError if the budget is below 1, or as `Request` does.
    """

    def __init__(self, target: Target, prompt_ids: list[int], config: DecodeConfig, drafter: Drafter, budget: int,
                 index: int = 0) -> None:  # fmt: skip
        if budget < 1:
            raise ValueError(f"budget must be at least 1 (the current state itself), got {budget}")
        self.budget, self.index = budget, index
        self.proposer = drafter.begin(target, prompt_ids, config)
        started = time.perf_counter()
        self.request = Request(target, prompt_ids, config)
        prefill(self.request, whole=False)
        self.scored, self.book = ScoredStates(self.request), EvidenceBook()
        self.request.stats.seconds = time.perf_counter() - started
        self.is_dropped = False  # a consumer needs no more of it

    @property
    def is_over(self) -> bool:
        return self.is_dropped or self.request.is_finished

    def draft(self) -> DraftTree:
        """The tree of the next pass."""
        started = time.perf_counter()
        budget = self.request.memory.most_nodes(self.budget)
        tree = self.proposer.propose(draft_context(self.request, self.scored, self.book), budget)
        self.request.stats.draft_seconds += time.perf_counter() - started
        check_tree(self.request, tree, self.proposer.name, budget)
        return tree

    def walk(self, tree: DraftTree, rows: ScoredRows) -> None:
        """Take in a pass over the tree: go as far as it reaches, keep what the next draft may read."""
        passed = self.scored.add(tree, rows)
        visits = verify(self.request, self.scored)
        self.request.stats.record(len(visits), len(tree), tree.expected_steps)
        if not self.request.is_finished:
            started = time.perf_counter()
            self.book.update(self.request, tree, passed, visits)
            self.request.stats.draft_seconds += time.perf_counter() - started


def run_jobs(jobs: Iterable[Job], batch_size: int) -> Iterator[list[Job]]:
    """Passes over at most `batch_size` jobs at a time, yielding those of each pass; whoever is over leaves, and the
    next comes in. What a job comes to does not depend on the others."""
    waiting, active = iter(jobs), []
    while True:
        active = [job for job in active if not job.is_over]
        active += itertools.islice(waiting, batch_size - len(active))
        if not active:
            return
        started = time.perf_counter()
        run_pass(active)
        for job in active:  # not what the consumer does between passes
            job.request.stats.seconds += time.perf_counter() - started
        yield active


@torch.inference_mode()
def run_pass(jobs: Sequence[Job]) -> None:
    """Draft a tree for every job, score them all in one target pass, and walk each."""
    trees = [job.draft() for job in jobs]
    scored = run_trees([job.request for job in jobs], trees)
    for job, tree, rows in zip(jobs, trees, scored, strict=True):
        job.walk(tree, rows)


def check_tree(request: Request, tree: DraftTree, drafter: str, budget: int) -> None:
    """Hold a drafter to its contract: the walk starts at node 0, and figures count the budget.

    Raises ValueError naming the drafter.
    """
    if not 1 <= len(tree) <= budget:
        raise ValueError(f"drafter {drafter} proposed {len(tree)} states for a budget of {budget}")
    if tree.nodes[0].state != request.root:
        raise ValueError(f"drafter {drafter} proposed a tree whose first node is not the current state")
    if any(request.block + node.block >= request.horizon for node in tree.nodes):
        raise ValueError(f"drafter {drafter} proposed a state behind the last block")


def draft_context(request: Request, scored: ScoredStates, book: EvidenceBook) -> DraftContext:
    """What a drafter may read: everything known so far, nothing of the target's future."""

    def ends(state: BlockState, block: int) -> bool:
        """Nothing can be scored behind this state."""
        is_last = block + 1 >= request.horizon and request.law.is_final(state)
        return is_last or request.end_of(state, block) is not None

    return DraftContext(
        root=request.root,
        block=request.block,
        num_blocks=request.horizon,
        mask_id=request.spec.mask_id,
        vocab_size=request.spec.vocab_size,
        rule=request.law.rule,
        evidence=book.by_block,
        fresh_state=request.fresh_state,
        ends=ends,
        known=scored,
    )
