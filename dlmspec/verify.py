"""Verification by state equality: how far the target's own trajectory runs through states that have been scored.

Walks from the root: the target's successor of a state is computed by the one denoising step of the package, and the
walk goes on only if that very state has been scored under the same committed text. So it visits reference states only,
whatever the drafter proposed, and the last successor is a free step.
"""

from dataclasses import dataclass

from torch import Tensor

from dlmspec.request import Request
from dlmspec.scored import ScoredStates
from dlmspec.state import BlockState


@dataclass(frozen=True, slots=True)
class Visit:
    """One step of the walk: a reference state that is not final, its logits `[M, V]` (masked rows), its successor."""

    block: int  # absolute
    state: BlockState
    logits: Tensor
    successor: BlockState


def verify(request: Request, scored: ScoredStates) -> list[Visit]:
    """Walk as far as states are scored, at least from the root; moves `request` along.

    Stores the KV rows of accepted final states in the request's cache (commit folding).
    """
    visits: list[Visit] = []
    here = scored.find(request.root)
    assert here is not None, "the pass scored the root"
    while here is not None and not request.is_finished:
        block, successor = request.block, scored.denoise(here)
        visits.append(Visit(block, here.state, here.logits, successor))
        final = scored.find(successor) if request.law.is_final(successor) else None
        rows, node = (None, 0) if final is None else (final.reader.scored, final.node)
        request.move_to(successor, block, rows, node)
        if request.block != block:
            scored.finish_block(successor.tokens)
        here = scored.find(request.root)
    scored.prune()
    return visits
