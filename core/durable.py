"""Files that appear whole or not at all: written aside, forced to disk, shown by one rename.

In: bytes and the name they are to have. Out: that name, or, after a crash, at most a leftover beginning with `ASIDE`.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

ASIDE = ".aside-"


def aside(directory: Path) -> Path:
    """A name in `directory` that nobody reads."""
    return directory / f"{ASIDE}{secrets.token_hex(8)}"


def sync(path: Path) -> None:
    """Force a file, or the names in a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(file: Path, data: bytes) -> None:
    """Let `file` hold `data`, by one rename; where that fails (`OSError`), `file` is as it was."""
    temporary = aside(file.parent)
    try:
        temporary.write_bytes(data)
        sync(temporary)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    sync(file.parent)
