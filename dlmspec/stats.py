"""What a decode cost: passes, accepted steps, time. Written by the decode loops, read by people and benchmarks."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class DecodeStats:
    """Counts of one decode. `num_passes` counts every target pass: prefill, denoising and store passes."""

    num_prefill_passes: int = 0
    num_store_passes: int = 0
    num_denoising_passes: int = 0
    num_steps: int = 0
    num_nodes: int = 0
    num_rows: int = 0  # of all passes: a whole canvas has as many as it has positions
    accepted: Counter[int] = field(default_factory=Counter)  # steps advanced by a pass → passes that did
    expected_steps: float = 0.0  # what the drafter expected of all denoising passes
    seconds: float = 0.0
    draft_seconds: float = 0.0
    pass_seconds: float = 0.0  # of the target's passes, without the output embedding; the rest is the walk

    @property
    def num_passes(self) -> int:
        return self.num_prefill_passes + self.num_store_passes + self.num_denoising_passes

    @property
    def mat(self) -> float:
        """Mean accepted steps per denoising pass."""
        return self.num_steps / max(1, self.num_denoising_passes)

    def record(self, accepted_steps: int, num_nodes: int, expected_steps: float) -> None:
        """Count one denoising pass."""
        self.num_denoising_passes += 1
        self.num_steps += accepted_steps
        self.num_nodes += num_nodes
        self.accepted[accepted_steps] += 1
        self.expected_steps += expected_steps

    def as_dict(self) -> dict:
        """The figures for a JSON report."""
        return {
            "num_passes": self.num_passes,
            "num_prefill_passes": self.num_prefill_passes,
            "num_store_passes": self.num_store_passes,
            "num_denoising_passes": self.num_denoising_passes,
            "num_steps": self.num_steps,
            "num_nodes": self.num_nodes,
            "num_rows": self.num_rows,
            "mat": self.mat,
            "accepted_histogram": {str(k): v for k, v in sorted(self.accepted.items())},
            "expected_steps": self.expected_steps,
            "seconds": self.seconds,
            "draft_seconds": self.draft_seconds,
            "pass_seconds": self.pass_seconds,
        }
