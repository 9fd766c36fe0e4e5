"""Directories of which no disk has anything: on a memory file system, and open to their owner alone.

A trace directory that a service keeps in memory is marked. So a retraining knows that nothing of it may reach a disk.
"""

from __future__ import annotations

import os
from pathlib import Path

EXAMPLE = "/dev/shm/taskspec"
_KINDS = frozenset({"tmpfs", "ramfs"})
_MARK = ".in-memory"


def disk_at(directory: Path) -> str | None:
    """The type of the file system that a file in this directory would be on; None if that is a memory file system.

    The directory need not exist yet.
    """
    import psutil  # type: ignore[import-untyped]

    # of several at one place, the last one hides the others
    mounted = {partition.mountpoint: partition.fstype for partition in psutil.disk_partitions(all=True)}
    place = directory.resolve()
    kind = next((mounted[str(place)] for place in (place, *place.parents) if str(place) in mounted), "unknown")
    return None if kind in _KINDS else kind


def make_private(directory: Path) -> None:
    """Make a directory, or take one, for this user alone. Raises `OSError`, also for one that is not only ours."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.is_mount() or directory.stat().st_uid != os.geteuid():
        raise PermissionError(f"{directory} is not only ours")
    directory.chmod(0o700)


def mark(directory: Path) -> None:
    (directory / _MARK).touch(0o600)


def marked(directory: Path) -> bool:
    """Whether a service keeps these traces in memory."""
    return (directory / _MARK).exists()
