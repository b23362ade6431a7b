"""One target's shapes and ids, and how its family attends, predicts and decodes. Holds values; reads nothing."""

from dataclasses import dataclass
from typing import Literal

NO_MASK = -1  # the mask id of an autoregressive model, which has none


@dataclass(frozen=True, slots=True)
class MoeSpec:
    """Experts of a mixture-of-experts MLP. A layer before `first_layer` has a dense one.

    `router`: `softmax` (Qwen3-MoE: softmax over all experts, then the top k) or `grouped_sigmoid` (LLaDA2: sigmoid,
    expert bias in the selection only, the `topk_group` best of `num_groups`, weights times `scaling`).
    """

    num_experts: int
    top_k: int
    intermediate_size: int
    router: Literal["softmax", "grouped_sigmoid"]
    normalise: bool = True  # the chosen weights sum to 1
    shared_intermediate_size: int = 0  # of the expert that every row takes; 0: there is none
    num_groups: int = 1
    topk_group: int = 1
    scaling: float = 1.0
    expert_bias: bool = False
    first_layer: int = 0


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Shapes and ids of one target. `stop_ids` is the union of generation_config's and config's end ids.

    `logit_shift`: position i reads the logits of row i−1, a block's first position those of the row before it.
    `attention`: `block_causal` (a row sees the blocks up to its own) or `full` (it sees the whole canvas: prompt and
    all that is to be written). `grid`: blocks are counted from the text's first token, or from the prompt's end.
    """

    family: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    tie_word_embeddings: bool
    block_length: int
    mask_id: int
    stop_ids: tuple[int, ...]
    name: str
    qk_norm: bool = True
    logit_shift: bool = False
    qkv_bias: bool = False
    rotary_dim: int | None = None  # of a head; None: all of it
    moe: MoeSpec | None = None
    attention: Literal["block_causal", "full"] = "block_causal"
    grid: Literal["text", "prompt"] = "text"
    sub_block_length: int | None = None  # a step commits within the first such part of the block that has a mask
    leads_with_first: bool = False  # a block's first position is committed before, and without, all others
    bos_id: int | None = None  # what every text has to begin with

    @property
    def is_autoregressive(self) -> bool:
        """A block is one token, predicted by the one before it: no mask is ever run."""
        return self.block_length == 1 and self.logit_shift

    def has_experts(self, layer: int) -> bool:
        """Whether a layer's MLP is a mixture of experts."""
        return self.moe is not None and layer >= self.moe.first_layer
