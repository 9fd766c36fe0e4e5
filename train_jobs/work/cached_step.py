"""A cached step: a directory of results that is tied to its inputs, resumed after an interruption, and made once."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import msgspec

from core.atomic_files import grant, replace
from core.settings import Section

_MADE_FOR, _DONE = ".made-for", ".done"


class CachedStep:
    """One directory. `key` is the hash of its inputs; results for other inputs are deleted when the step starts."""

    def __init__(self, directory: Path, *inputs: Any) -> None:
        self.directory = directory
        self.key = hashlib.sha256(msgspec.json.encode(inputs, order="sorted")).hexdigest()

    @property
    def done(self) -> bool:
        """True if the step was finished for these inputs."""
        return (self.directory / _DONE).exists() and self._has_these_inputs()

    @property
    def seconds(self) -> float:
        """Duration of the run that finished the step."""
        return float((self.directory / _DONE).read_text())

    def start(self) -> Path:
        """Return the directory. It holds only what an earlier run for the same inputs left."""
        if self.directory.exists() and not self._has_these_inputs():
            (self.directory / _MADE_FOR).unlink(missing_ok=True)  # first: what is half deleted is of no inputs
            shutil.rmtree(self.directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        replace(self.directory / _MADE_FOR, self.key.encode())
        return self.directory

    def finish(self, seconds: float) -> None:
        """Mark the step as done. Its files are readable for whom the umask lets read new files."""
        grant(self.directory)
        replace(self.directory / _DONE, f"{seconds:.3f}\n".encode())

    def _has_these_inputs(self) -> bool:
        made_for = self.directory / _MADE_FOR
        return made_for.exists() and made_for.read_text() == self.key


def settings_of(section: Section, *names: str) -> dict[str, Any]:
    """The settings that a result depends on, by default all but the resources of a worker."""
    return section.model_dump(mode="json", include=set(names) or None, exclude={"worker"})


def fingerprint(path: Path | None) -> list[tuple[str, int, int]]:
    """Name, size and mtime of every file at `path`, if there is one: stands for gigabytes without reading them."""
    if path is None:
        return []
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]
