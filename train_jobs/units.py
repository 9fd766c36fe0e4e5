"""Pieces of work on disk: each a directory that is made for its inputs, resumed where it was cut off, and done once.

Enters: a name and everything the work depends on. Leaves: a directory, and whether what it holds is whole.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import msgspec

from core.durable import replace

_MADE_FOR, _DONE = ".made-for", ".done"


class Unit:
    """One piece of work. `key` is the hash of its inputs; a unit made for others is begun again."""

    def __init__(self, directory: Path, *inputs: Any) -> None:
        self.directory = directory
        self.key = hashlib.sha256(msgspec.json.encode(inputs, order="sorted")).hexdigest()

    @property
    def done(self) -> bool:
        """Whether it was finished for these very inputs."""
        done = self.directory / _DONE
        return done.exists() and self._made_for_this()

    @property
    def seconds(self) -> float:
        """How long the run took that finished it."""
        return float((self.directory / _DONE).read_text())

    def start(self) -> Path:
        """The directory, with what an earlier run for the same inputs left in it and nothing else."""
        if self.directory.exists() and not self._made_for_this():
            shutil.rmtree(self.directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        replace(self.directory / _MADE_FOR, self.key.encode())
        return self.directory

    def finish(self, seconds: float) -> None:
        """Everything is written."""
        replace(self.directory / _DONE, f"{seconds:.3f}\n".encode())

    def _made_for_this(self) -> bool:
        made_for = self.directory / _MADE_FOR
        return made_for.exists() and made_for.read_text() == self.key


def fingerprint(path: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of every file at `path`: changes when the content does, without reading 26 GB of it."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]
