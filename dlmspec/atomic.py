"""Files that are never half-written: a temporary name beside the place, then a rename."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def temporary_name(path: Path) -> Path:
    """A name beside `path` that is nobody else's."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


@contextmanager
def replacing(*paths: Path) -> Iterator[list[Path]]:
    """Temporary names to write instead of `paths`; renamed in order at the end, removed if the block raises.

    The last of several paths is the one without which nothing loads (the weights). Its old file goes first, so that
    a crash between the renames leaves a directory that lacks it, never one whose files are of different ages.
    """
    temporary = [temporary_name(path) for path in paths]
    try:
        yield temporary
        if len(paths) > 1:
            paths[-1].unlink(missing_ok=True)
        for written, path in zip(temporary, paths, strict=True):
            os.replace(written, path)
    finally:
        for written in temporary:
            if written.is_file():
                written.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file whole or not at all."""
    with replacing(path) as (temporary,):
        temporary.write_text(text, encoding="utf-8")
