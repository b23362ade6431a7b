"""`doctor`: what this machine has, what a directory is recognised as, and whether rows are invariant here."""

import argparse
import math
import platform

import torch
from rich.table import Table

from dlmspec.cli.options import add_resolved, console_for
from dlmspec.models.assembled import assemble
from dlmspec.models.loader import checkpoint_dtype, expected_shapes
from dlmspec.models.read_spec import read_config, spec_from_directory
from dlmspec.models.row_invariance import row_invariant
from dlmspec.models.spec import ModelSpec
from dlmspec.provenance import package_versions
from dlmspec.shipped import find_model, shipped_names


def register(commands) -> None:
    parser = commands.add_parser("doctor", help="check this machine, or what a directory is recognised as")
    parser.add_argument("model", nargs="?", metavar="MODEL", help="shipped name or directory")
    add_resolved(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Exit code 1 if fp32 rows are not invariant here: parity is then reported, not promised."""
    console = console_for()
    table = model_table(arguments) if arguments.model else machine_table()
    failing = {dtype: row_invariant(dtype) for dtype in (torch.float32, torch.bfloat16)}
    for dtype, counts in failing.items():
        verdict = "ok" if not counts else f"FAILS for {counts[:5]} rows: parity is not promised here"
        table.add_row(f"row invariance, {str(dtype).removeprefix('torch.')}", verdict)
    console.print(table)
    return 1 if failing[torch.float32] else 0


def machine_table() -> Table:
    """Versions, processor, GPU, and what is shipped."""
    table = Table(title="this machine", show_header=False)
    for name, value in package_versions().items():
        table.add_row(name, value or "missing")
    table.add_row("processor", f"{platform.machine()}, {torch.get_num_threads()} threads")
    table.add_row("GPU", torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none")
    table.add_row("shipped targets", ", ".join(shipped_names()) or "none")
    table.add_row("shipped drafters", ", ".join(shipped_names(drafters=True)) or "none")
    return table


def model_table(arguments: argparse.Namespace) -> Table:
    """What the directory says and what follows from it."""
    directory = assemble(find_model(arguments.model))
    config = read_config(directory)
    spec = spec_from_directory(directory, block_length=arguments.block_length, mask_id=arguments.mask_id)
    table = Table(title=str(directory), show_header=False)
    table.add_row("family", f"{spec.family} (model_type {config.get('model_type')!r})")
    sees = {"block_causal": "the blocks up to its own", "full": "the whole canvas (cache none or dual)"}
    table.add_row("a row sees", "the rows before it" if spec.is_autoregressive else sees[spec.attention])
    table.add_row("block length", f"{spec.block_length} ({block_length_source(config, spec, arguments.block_length)})")
    mask_id = f"{spec.mask_id} ({mask_id_source(config, arguments.mask_id)})"
    table.add_row("mask id", "none (autoregressive)" if spec.is_autoregressive else mask_id)
    table.add_row("logits", "of the row before" if spec.logit_shift else "of the position itself")
    if spec.grid == "prompt":
        table.add_row("blocks are counted", "from the prompt's end")
    if spec.sub_block_length is not None:
        table.add_row("a step commits", f"in the first {spec.sub_block_length} positions with a mask")
    if spec.moe is not None:
        table.add_row("experts", f"{spec.moe.top_k} of {spec.moe.num_experts}, {spec.moe.router}")
    table.add_row("stop ids", ", ".join(map(str, spec.stop_ids)) or "none")
    table.add_row("dtype of the files", str(checkpoint_dtype(directory)).removeprefix("torch."))
    table.add_row("parameters", f"{sum(map(math.prod, expected_shapes(spec).values())):,}")
    table.add_row("context", f"{spec.max_position_embeddings} positions")
    shape = f"{spec.num_layers} layers, width {spec.hidden_size}, {spec.num_heads}/{spec.num_kv_heads} heads"
    table.add_row("shape", f"{shape}, vocabulary {spec.vocab_size}")
    return table


def block_length_source(config: dict, spec: ModelSpec, explicit: int | None) -> str:
    """Where the block length came from, in the order in which it is looked for."""
    if spec.is_autoregressive:
        return "autoregressive"
    if explicit is not None:
        return "given"
    for key in ("block_size", "block_length"):
        if config.get(key) is not None:
            return f"{key} in config.json"
    suffix = f"-b{spec.block_length}"
    return f"the name's suffix {suffix}" if suffix in spec.name else "the family's default"


def mask_id_source(config: dict, explicit: int | None) -> str:
    """Where the mask id came from."""
    if explicit is not None:
        return "given"
    if config.get("mask_token_id") is not None:
        return "mask_token_id in config.json"
    return "the tokenizer's mask token, or the family's default if it has none"
