"""Where a result comes from: versions, machine, command."""

import platform
import subprocess
import sys
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from dlmspec import __version__

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy")


def package_versions() -> dict[str, str | None]:
    """Installed versions; None where a package is missing."""
    versions: dict[str, str | None] = {"dlmspec": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return versions


def git_commit() -> str | None:
    """The checkout's commit, with `+` behind it if files differ; None outside a checkout."""
    root = Path(__file__).parent.parent
    if not (root / ".git").exists():  # an installed package may lie inside somebody else's checkout
        return None
    try:
        commit = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "--short", "HEAD"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        changed = subprocess.run(
            ["git", "-C", str(root), "status", "--porcelain", "-uno"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + ("+" if changed else "")


def device_name(device: torch.device) -> str:
    """What a device is: the GPU's model, or the processor's architecture."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu"


def build_meta(device: torch.device | None = None, load: dict | None = None) -> dict:
    """The `meta` of a machine-readable result; `device` is the one that was used, by default the CPU."""
    return {
        "versions": package_versions(),
        "device": device_name(device or torch.device("cpu")),
        "threads": torch.get_num_threads(),
        "load": load,
        "commit": git_commit(),
        "argv": sys.argv[1:],
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
