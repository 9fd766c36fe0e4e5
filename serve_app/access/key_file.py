"""The file of API keys: a line `NAME:HASH` per key, HASH being its SHA-256 in hexadecimal digits. `#` begins a comment.

An admin key, which may also change the service, has `NAME:HASH:admin`. The keys are random, so that a plain hash does
not give them away.
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
from serve_app.http.owners import KeyHolder

PREFIX = "tsk-"  # of the keys made here
KEY_BYTES = 32  # random bytes in a key
OWNER_ONLY = 0o600
NAME = r"[A-Za-z0-9._][A-Za-z0-9._-]{0,63}"  # "-" stands for no key in the access log
ADMIN = ":admin"  # at the end of a line
HASHED = re.compile(rf"({NAME}):([0-9a-fA-F]{{64}})({ADMIN})?")

KeyHolders = dict[bytes, KeyHolder]
"""That of each key by its SHA-256, 32 bytes."""


def key_hash(key: bytes) -> bytes:
    """The SHA-256 of a key."""
    return hashlib.sha256(key).digest()


def hashed_key(entry: str) -> KeyHolders:
    """The key of an entry such as `NAME:HASH`; none if it is no such entry."""
    hashed = HASHED.fullmatch(entry)
    return {} if hashed is None else {bytes.fromhex(hashed[2]): KeyHolder(hashed[1], admin=hashed[3] is not None)}


def parse(text: str, origin: str) -> KeyHolders:
    """The keys of a file. Raises `ConfigError`, which begins with `origin` and repeats nothing that may be a key."""
    holders: KeyHolders = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if entry := line.partition("#")[0].strip():
            key = hashed_key(entry)
            if not key:
                raise ConfigError(f"{origin}: line {number} is not NAME:HASH; make one with `taskspec keys add NAME`")
            holders |= key
    return holders


def read(file: Path) -> KeyHolders:
    """The keys of `file`. Raises `ConfigError`."""
    return parse(_text(file), str(file))


def add(file: Path, name: str, *, admin: bool = False) -> str:
    """Make a key, an admin's if so asked, store its hash under `name`, and return the key.

    The file is made if there is none, for its owner alone; one that there is keeps its owner and permissions.

    Raises `ConfigError` if the name is taken or no name, or if the file cannot be read or written.
    """
    if not re.fullmatch(NAME, name):
        raise ConfigError("a name has 1 to 64 ASCII letters, digits, dots, dashes and underscores, and no dash first")
    key = PREFIX + secrets.token_urlsafe(KEY_BYTES)

    def added(text: str) -> str:
        if name in _names(text, file):
            raise ConfigError(f"{file} has a key named {name}; revoke it first, or write another name")
        end = "\n" if text and not text.endswith("\n") else ""
        return f"{text}{end}{name}:{key_hash(key.encode()).hex()}{ADMIN if admin else ''}\n"

    _edit(file, added, may_be_missing=True)
    return key


def revoke(file: Path, name: str) -> None:
    """Take the key of that name from the file; everything else in it stays. Raises `ConfigError` if there is none."""

    def without(text: str) -> str:
        names = _names(text, file)
        if name not in names:
            raise ConfigError(f"{file} has no key named {name}; it has {', '.join(sorted(names)) or 'none'}")
        return "".join(line for line in text.splitlines(keepends=True) if line.partition(":")[0].strip() != name)

    _edit(file, without)


def _names(text: str, file: Path) -> list[str]:
    return [holder.name for holder in parse(text, str(file)).values()]


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
