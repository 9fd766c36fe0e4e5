"""The file of API keys: a line `NAME:HASH` per key, HASH being its SHA-256 in hexadecimal digits. `#` begins a comment.

The keys are random, so that a plain hash does not give them away.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from core import atomic_files
from core.errors import ConfigError

PREFIX = "tsk-"  # of the keys made here
KEY_BYTES = 32  # random bytes in a key
OWNER_ONLY = 0o600
NAME = r"[A-Za-z0-9._][A-Za-z0-9._-]{0,63}"  # "-" stands for no key in the access log
HASHED = re.compile(rf"({NAME}):([0-9a-fA-F]{{64}})")

Names = dict[bytes, str]
"""The name of each key by its SHA-256, 32 bytes."""


def key_hash(key: bytes) -> bytes:
    """The SHA-256 of a key."""
    return hashlib.sha256(key).digest()


def parse(text: str, origin: str) -> Names:
    """The keys of a file. Raises `ConfigError`, which begins with `origin` and repeats nothing that may be a key."""
    names: Names = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if entry := line.partition("#")[0].strip():
            hashed = HASHED.fullmatch(entry)
            if hashed is None:
                raise ConfigError(f"{origin}: line {number} is not NAME:HASH; make one with `taskspec keys add NAME`")
            names[bytes.fromhex(hashed[2])] = hashed[1]
    return names


def read(file: Path) -> Names:
    """The keys of `file`. Raises `ConfigError`."""
    return parse(_text(file), str(file))


def add(file: Path, name: str) -> str:
    """Make a key, store its hash under `name`, and return the key.

    The file is made if there is none, for its owner alone; one that there is keeps its owner and permissions.

    Raises `ConfigError` if the name is taken or no name, or if the file cannot be read or written.
    """
    if not re.fullmatch(NAME, name):
        raise ConfigError("a name has 1 to 64 ASCII letters, digits, dots, dashes and underscores, and no dash first")
    key = PREFIX + secrets.token_urlsafe(KEY_BYTES)

    def added(text: str) -> str:
        if name in parse(text, str(file)).values():
            raise ConfigError(f"{file} has a key named {name}; revoke it first, or write another name")
        end = "\n" if text and not text.endswith("\n") else ""
        return f"{text}{end}{name}:{key_hash(key.encode()).hex()}\n"

    _edit(file, added, may_be_missing=True)
    return key


def revoke(file: Path, name: str) -> None:
    """Take the key of that name from the file; everything else in it stays. Raises `ConfigError` if there is none."""

    def without(text: str) -> str:
        names = parse(text, str(file)).values()
        if name not in names:
            raise ConfigError(f"{file} has no key named {name}; it has {', '.join(sorted(names)) or 'none'}")
        return "".join(line for line in text.splitlines(keepends=True) if line.partition(":")[0].strip() != name)

    _edit(file, without)


def _edit(file: Path, change: Callable[[str], str], *, may_be_missing: bool = False) -> None:
    file = file.resolve()  # a link goes on pointing to it
    try:
        with _alone_in(file.parent):
            text = "" if may_be_missing and not file.exists() else _text(file)
            atomic_files.replace(file, change(text).encode(), OWNER_ONLY, keep=True)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}; choose another --file") from error


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(
            f"cannot read {file}: {reason}; make a file of keys with `taskspec keys add NAME --file {file}`"
        ) from error


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Other editors of files of keys in this directory wait."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)  # the kernel releases it however the process ends
        yield
    finally:
        os.close(opened)
