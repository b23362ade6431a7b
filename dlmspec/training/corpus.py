"""The text that `pocket` is trained on: Python's standard library, the King James Bible, Python's documentation.

Reads what Debian packages and the running Python carry; nothing is downloaded and no GPL text is used. Documents
are split into training and held-out ones by a stable hash of their names, so that every process agrees on the split.
"""

import re
import shutil
import subprocess
import sysconfig
import zlib
from dataclasses import dataclass
from pathlib import Path

DOCUMENTATION = Path("/usr/share/doc/python3.11/html/_sources")
INSTALL_HINT = "apt-get install bible-kjv bible-kjv-text python3.11-doc"
# tests, generated tables and packages that are not the standard library's own source
SKIPPED_FOLDERS = {
    "test",
    "tests",
    "site-packages",
    "idle_test",
    "encodings",
    "pydoc_data",
    "__pycache__",
    "lib2to3",
}
HELD_OUT_SHARE = 25  # one document in so many


@dataclass(frozen=True, slots=True)
class Document:
    """One file or chapter. `domain` is `code` or `prose`; `name` is stable across machines."""

    domain: str
    name: str
    text: str

    @property
    def held_out(self) -> bool:
        return zlib.crc32(self.name.encode()) % HELD_OUT_SHARE == 0


def read_code() -> list[Document]:
    """Python files of the running interpreter's standard library (PSF licence)."""
    root = Path(sysconfig.get_paths()["stdlib"])
    documents = []
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if SKIPPED_FOLDERS.intersection(relative.parts[:-1]):
            continue
        text = path.read_text(encoding="utf-8", errors="ignore")
        if len(text) > 200:
            documents.append(Document("code", f"Lib/{relative.as_posix()}", text))
    return documents


def read_bible() -> list[Document]:
    """Chapters of the King James Bible (public domain) from Debian's `bible-kjv`.

    Raises ValueError if the package is not installed.
    """
    if shutil.which("bible") is None:
        raise ValueError(f"the `bible` command is missing; install the training text with: {INSTALL_HINT}")
    run = subprocess.run(["bible", "-l100000", "gen1:1-rev22:21"], capture_output=True, text=True, check=True)
    documents = []
    for chapter in re.split(r"\n\n(?=\S.* \d+\n\n)", "\n" + run.stdout):
        title, _, body = chapter.strip().partition("\n\n")
        verses = re.sub(r"(?m)^\s*\d+ ", "", body)
        if len(verses) > 200:
            documents.append(Document("prose", f"kjv/{title}", f"{title}\n\n{verses}\n"))
    return documents


def read_documentation() -> list[Document]:
    """Sources of Python's documentation (PSF licence) from Debian's `python3.11-doc`.

    Raises ValueError if the package is not installed.
    """
    if not DOCUMENTATION.is_dir():
        raise ValueError(f"{DOCUMENTATION} is missing; install the training text with: {INSTALL_HINT}")
    paths = sorted(p for p in DOCUMENTATION.rglob("*.txt") if not p.name.startswith("changelog"))
    texts = ((path, path.read_text(encoding="utf-8", errors="ignore")) for path in paths)
    return [
        Document("prose", f"Doc/{path.relative_to(DOCUMENTATION).as_posix()}", text)
        for path, text in texts
        if len(text) > 200
    ]


def read_documents() -> list[Document]:
    """All code and prose documents, in a stable order."""
    return read_code() + read_bible() + read_documentation()
