"""Atomic files: written under a temporary name, forced to disk, renamed. A crash leaves at most an `ASIDE` file."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

ASIDE = ".aside-"


def aside(directory: Path) -> Path:
    """A temporary name in `directory`."""
    return directory / f"{ASIDE}{secrets.token_hex(8)}"


def sync(path: Path) -> None:
    """Force a file, or the names in a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(file: Path, data: bytes) -> None:
    """Write `data` to `file` by one rename. If that fails (`OSError`), `file` is unchanged."""
    temporary = aside(file.parent)
    try:
        temporary.write_bytes(data)
        sync(temporary)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    sync(file.parent)
