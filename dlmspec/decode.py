"""The two decoders: the plain loop that defines the output, and the speculative loop that must equal it."""

import time
from collections.abc import Iterator, Sequence

import torch

from dlmspec.config import DecodeConfig
from dlmspec.drafters.base import DraftContext, Drafter
from dlmspec.evidence_book import EvidenceBook
from dlmspec.models.target import Target
from dlmspec.models.target_pass import BlockCopy, read_logits
from dlmspec.request import DecodeOutput, Request, StepObserver, run_together
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
    if store_passes and request.uncached:
        request.prefill()
    while not request.is_finished:
        (successor,) = reference_step([request], observer)
        if store_passes and request.law.is_final(successor):
            store_pass(request, successor.tokens)
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
    while requests:
        reference_step(list(requests.values()))
        for index in [index for index, request in requests.items() if request.is_finished]:
            request = requests.pop(index)
            request.stats.seconds = time.perf_counter() - started
            yield index, request.output()


@torch.inference_mode()
def reference_step(requests: Sequence[Request], observer: StepObserver | None = None) -> list[BlockState]:
    """One pass that takes one denoising step of every request; returns the states they came to."""
    copies = [[*request.pending_copies(), root_copy(request)] for request in requests]
    outputs = run_together(requests, copies)
    masked = [request.root.masked_positions(request.spec.mask_id) for request in requests]
    wanted = [
        (output, [(len(own) - 1, position) for position in positions])
        for output, own, positions in zip(outputs, copies, masked, strict=True)
    ]
    successors = []
    for request, output, logits in zip(requests, outputs, read_logits(wanted), strict=True):
        if request.pending is not None:
            output.store(request.cache, 0)
            request.pending = None
        root, block = request.root, request.block
        successor = request.law.denoise([root], logits, block)[0]
        request.stats.record(1, 1, 1.0)
        if observer is not None:
            observer(block, root, logits, successor)
        request.move_to(successor, block)
        successors.append(successor)
    return successors


def root_copy(request: Request) -> BlockCopy:
    """The root's copy; it sees the pending copy, if there is one, as copy 0 of the pass."""
    ancestors = () if request.pending is None else (0,)
    root = request.root
    return BlockCopy(root.tokens, len(ancestors), ancestors, root.masked_positions(request.spec.mask_id))


def store_pass(request: Request, tokens: tuple[int, ...]) -> None:
    """One pass that only stores the KV of a finished block."""
    output = request.run([BlockCopy(tokens, 0, (), ())])
    output.store(request.cache, 0)
    request.pending = None
    request.stats.num_store_passes += 1


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
    if budget < 1:
        raise ValueError(f"budget must be at least 1 (the current state itself), got {budget}")
    drafter.begin(target, prompt_ids, config)
    started = time.perf_counter()
    request = Request(target, prompt_ids, config)
    scored, book = ScoredStates(request), EvidenceBook()
    while not request.is_finished:
        run_pass(request, scored, book, drafter, budget)
        request.stats.seconds += time.perf_counter() - started
        yield request
        started = time.perf_counter()  # what the consumer does between passes is not the decode's time


@torch.inference_mode()
def run_pass(request: Request, scored: ScoredStates, book: EvidenceBook, drafter: Drafter, budget: int) -> None:
    """Draft a tree, score it in one target pass, walk it, and keep what was read for the next draft."""
    stats = request.stats
    drafted = time.perf_counter()
    tree = drafter.propose(draft_context(request, scored, book), budget)
    stats.draft_seconds += time.perf_counter() - drafted
    check_tree(request, tree, drafter, budget)
    copies = tree_copies(request, tree)
    output = request.run(copies)
    offset = len(copies) - len(tree)
    if offset:
        output.store(request.cache, 0)
        request.pending = None
    passed = scored.add(tree, output, offset)
    visits = verify(request, scored)
    stats.record(len(visits), len(tree), tree.expected_steps)
    if not request.is_finished:
        drafted = time.perf_counter()
        book.update(request, tree, passed, visits)
        stats.draft_seconds += time.perf_counter() - drafted


def check_tree(request: Request, tree: DraftTree, drafter: Drafter, budget: int) -> None:
    """Hold a drafter to its contract: the walk starts at node 0, and figures count the budget.

    Raises ValueError naming the drafter.
    """
    if not 1 <= len(tree) <= budget:
        raise ValueError(f"drafter {drafter.name} proposed {len(tree)} states for a budget of {budget}")
    if tree.nodes[0].state != request.root:
        raise ValueError(f"drafter {drafter.name} proposed a tree whose first node is not the current state")
    if any(request.block + node.block >= request.num_blocks for node in tree.nodes):
        raise ValueError(f"drafter {drafter.name} proposed a state behind the last block")


def draft_context(request: Request, scored: ScoredStates, book: EvidenceBook) -> DraftContext:
    """What a drafter may read: everything known so far, nothing of the target's future."""
    return DraftContext(
        root=request.root,
        block=request.block,
        num_blocks=request.num_blocks,
        mask_id=request.spec.mask_id,
        vocab_size=request.spec.vocab_size,
        rule=request.config.rule,
        evidence=book.by_block,
        fresh_state=request.fresh_state,
        ends=lambda state, block: request.end_of(state, block) is not None,
        known=scored,
    )


def tree_copies(request: Request, tree: DraftTree) -> list[BlockCopy]:
    """The copies of one pass: the pending block, if any, seen by all nodes; then the nodes in tree order."""
    pending = request.pending_copies()
    offset = len(pending)
    return pending + [
        BlockCopy(
            node.state.tokens,
            node.block + offset,
            (*range(offset), *(ancestor + offset for ancestor in node.ancestors)),
            node.state.masked_positions(request.spec.mask_id),
        )
        for node in tree.nodes
    ]
