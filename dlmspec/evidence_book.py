"""Which evidence a drafter starts from: the freshest of every block that is still being drafted."""

from dlmspec.evidence import Evidence
from dlmspec.request import Request
from dlmspec.scored import Scored
from dlmspec.state import new_commits
from dlmspec.tree import DraftTree
from dlmspec.verify import Visit


class EvidenceBook:
    """The freshest evidence of every block that is still being drafted."""

    def __init__(self) -> None:
        self.by_block: dict[int, Evidence] = {}

    def update(self, request: Request, tree: DraftTree, scored: list[Scored], visits: list[Visit]) -> None:
        """Keep the last visited state of the current block, or a look at the next one under a guessed final.

        `scored` are the nodes of `tree`, the pass that was just walked in `visits`.
        """
        for block in [block for block in self.by_block if block < request.block]:
            del self.by_block[block]
        last = visits[-1]
        if last.block == request.block:
            taken = new_commits(last.state, last.successor)
            self.by_block[last.block] = Evidence(last.block, last.state, last.logits, request.law, taken)
        root_block = visits[0].block
        visited = {(visit.block, visit.state) for visit in visits}
        ahead: dict[int, int] = {}
        for index, node in enumerate(tree.nodes):
            if (
                node.block
                and (root_block + node.block, node.state) not in visited
                and node.state.step == 0
                and not node.is_final
            ):
                best = ahead.get(node.block)
                if best is None or node.mass > tree.nodes[best].mass:
                    ahead[node.block] = index
        for relative, index in ahead.items():
            block, node = root_block + relative, tree.nodes[index]
            if block < request.block or (block == request.block and last.block == request.block):
                continue
            self.by_block[block] = Evidence(block, node.state, scored[index].logits, request.law)
