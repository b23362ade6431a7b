"""Where the blocks of one request lie."""

from dataclasses import dataclass

from dlmspec.models.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class Grid:
    """Block `b` covers the positions from `anchor + b · block_length` on; before the anchor there is only prompt."""

    anchor: int
    block_length: int

    @classmethod
    def of(cls, spec: ModelSpec, prompt_length: int) -> "Grid":
        """The family's grid: anchored at the text's first token, or at the prompt's end."""
        return cls(prompt_length if spec.grid == "prompt" else 0, spec.block_length)

    def start(self, block: int) -> int:
        """The first position of a block."""
        return self.anchor + block * self.block_length

    def num_blocks(self, end: int) -> int:
        """How many blocks it takes to reach position `end`; at least 0."""
        return -(-(end - self.anchor) // self.block_length)

    def block_of(self, position: int) -> int:
        """The block that holds a position behind the anchor."""
        return (position - self.anchor) // self.block_length
