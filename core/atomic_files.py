"""Atomic files: written under a temporary name, forced to disk, renamed. A crash leaves at most an `ASIDE` file.

Their permissions are those that the umask gives. Libraries that write to a temporary file first, such as safetensors,
leave it to its owner alone; `grant` mends that.
"""

from __future__ import annotations

import os
import secrets
import stat
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


def replace(file: Path, data: bytes, mode: int = 0o666, *, keep: bool = False) -> None:
    """Write `data` to `file` by one rename. If that fails (`OSError`), `file` is unchanged.

    `mode` has the permissions that the umask may take from. With `keep` they are those of the file that there is, and
    so is its owner.
    """
    temporary = aside(file.parent)
    try:
        temporary.touch(mode)
        temporary.write_bytes(data)
        if keep and file.exists():
            _give_alike(temporary, file.stat())
        sync(temporary)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    sync(file.parent)


def _give_alike(file: Path, other: os.stat_result) -> None:
    """Give `file` the owner and permissions of the other."""
    own = file.stat()
    if (own.st_uid, own.st_gid) != (other.st_uid, other.st_gid):
        os.chown(file, other.st_uid, other.st_gid)
    file.chmod(stat.S_IMODE(other.st_mode))


def grant(directory: Path) -> None:
    """Give the files anywhere in `directory` the permissions of a new file there, as far as they lack them."""
    probe = aside(directory)
    probe.touch()  # to ask the process for its umask, one has to change it, for all threads
    usual = probe.stat().st_mode
    probe.unlink()
    for file in directory.rglob("*"):
        status = file.lstat()
        if stat.S_ISREG(status.st_mode) and usual & ~status.st_mode and status.st_uid == os.geteuid():
            file.chmod(stat.S_IMODE(status.st_mode | usual))
