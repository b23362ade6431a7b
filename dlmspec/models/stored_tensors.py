"""How a family's files name and pack the tensors that the model calls by Llama's names.

Two packings are known: fused query, key and value rows (LLaDA2), and experts stacked in one tensor (transformers 5 in
memory) beside one file entry per expert.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from dlmspec.models.families import BY_NAME
from dlmspec.models.spec import ModelSpec

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of the files: its shape, and the model's tensors that lie in it, row behind row."""

    shape: Shape
    parts: tuple[str, ...]


def stored_tensors(spec: ModelSpec, shapes: Mapping[str, Shape]) -> dict[str, StoredTensor]:
    """What the files may hold, by their names, for a model that needs tensors of these `shapes`.

    A tensor of the model may lie in several of them; one is enough, and the published name comes first.
    """
    family = BY_NAME[spec.family]
    packed: dict[str, StoredTensor] = {}
    for layer in range(spec.num_layers):
        packed.update(packed_tensors(spec, f"model.layers.{layer}", shapes))
    fused = {part for name, tensor in packed.items() if name.endswith("qkv_proj.weight") for part in tensor.parts}
    single = {name: StoredTensor(shape, (name,)) for name, shape in shapes.items() if name not in fused}
    return {family.tensor_name(name): tensor for name, tensor in (single | packed).items()}


def names_of(parts: Collection[str], stored: Mapping[str, StoredTensor]) -> list[str]:
    """The files' own names of what holds these tensors of the model."""
    first: dict[str, str] = {}
    for name, tensor in stored.items():
        for part in tensor.parts:
            first.setdefault(part, name)
    return list(dict.fromkeys(first[part] for part in parts))


def packed_tensors(spec: ModelSpec, layer: str, shapes: Mapping[str, Shape]) -> Iterator[tuple[str, StoredTensor]]:
    """The tensors of one layer that hold several of the model's."""
    if BY_NAME[spec.family].fused_qkv:
        parts = tuple(f"{layer}.self_attn.{name}_proj.weight" for name in "qkv")
        rows = sum(shapes[part][0] for part in parts)
        yield f"{layer}.self_attn.qkv_proj.weight", StoredTensor((rows, spec.hidden_size), parts)
    if spec.moe is not None and f"{layer}.mlp.gate.weight" in shapes:
        names = [f"{layer}.mlp.experts.{expert}" for expert in range(spec.moe.num_experts)]
        width, hidden = spec.moe.intermediate_size, spec.hidden_size
        gate_up = tuple(f"{name}.{half}_proj.weight" for name in names for half in ("gate", "up"))
        yield f"{layer}.mlp.experts.gate_up_proj", StoredTensor((len(names), 2 * width, hidden), gate_up)
        down = tuple(f"{name}.down_proj.weight" for name in names)
        yield f"{layer}.mlp.experts.down_proj", StoredTensor((len(names), hidden, width), down)
