"""Finds a model or drafter by name, directory or hub id."""

import json
import re
from pathlib import Path

from dlmspec.order.model import MODEL_TYPE

PACKAGE = Path(__file__).parent
PLACES = (PACKAGE / "_shipped", PACKAGE.parent / "models")  # of a wheel, of a checkout
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def model_type(directory: Path) -> str | None:
    """`model_type` of a directory's config.json; None if there is none to read."""
    try:
        return json.loads((directory / "config.json").read_text()).get("model_type")
    except (OSError, ValueError, AttributeError):
        return None


def shipped_names(*, drafters: bool = False) -> list[str]:
    """Names of the shipped targets, or of the shipped drafters."""
    found = {path.name: model_type(path) for place in PLACES if place.is_dir() for path in place.iterdir()}
    return sorted(name for name, kind in found.items() if kind and (kind == MODEL_TYPE) == drafters)


def find_model(name: str | Path, *, drafter: bool = False) -> Path:
    """The directory behind a name, a local path, or a hub id (downloaded if there is a network).

    Raises ValueError with what is shipped if nothing fits.
    """
    path = Path(name)
    if path.is_dir():
        return path
    for place in PLACES:
        if str(name) in shipped_names(drafters=drafter) and (place / name).is_dir():
            return place / name
    kind = "drafter" if drafter else "model"
    shipped = ", ".join(shipped_names(drafters=drafter)) or "none"
    known = f"shipped {kind}s: {shipped}; or give a directory"
    if not HUB_ID.fullmatch(str(name)):
        raise ValueError(f"no {kind} is called {str(name)!r}; {known} or a hub id")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(str(name)))
    except Exception as error:  # the hub client raises many kinds, all of them "not to be had"
        raise ValueError(
            f"{name} is no local directory and could not be fetched from the hub ({type(error).__name__}); {known}"
        ) from error


def drafter_for(target: str) -> Path | None:
    """The shipped drafter that was trained for this target."""
    name = f"{target}-spot"
    return find_model(name, drafter=True) if name in shipped_names(drafters=True) else None
