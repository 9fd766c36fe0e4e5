"""A directory on a memory file system, for one test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def memory_directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="taskspec-test-", dir="/dev/shm"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
