"""Directories of safetensors and JSON, stored once under the SHA-256 of their content.

In: a directory that someone wrote (a PEFT adapter, a router, a model). Out: its copy, named by its digest, which never
changes; and later, where it is not what its name says any more, the file at fault.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from safetensors import SafetensorError, safe_open

from core.durable import aside, sync
from core.errors import ConfigError

Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Files = dict[Annotated[str, Meta(pattern=r"^[^/]+\.(json|safetensors)$")], Digest]
_BLOCK = 1 << 20  # bytes copied at a time


class Problem(msgspec.Struct, frozen=True):
    """A file that is not what it should be."""

    file: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.file}: expected {self.expected}, found {self.found}"


class Part(msgspec.Struct, frozen=True):
    """A stored directory: the SHA-256 of every file, and of that table, which names the directory."""

    digest: str
    files: Files


def store_part(parts: Path, source: Path) -> Part:
    """Copy `source` to `parts`, unless it is there and sound; its digest depends on names and bytes of its files only.

    Raises `ConfigError` where it holds anything but readable safetensors and JSON files.
    """
    temporary = aside(parts)
    temporary.mkdir()
    try:
        part = _copied(source, temporary)
        stored = parts / part.digest
        if any(problems(stored, part.files)):
            if stored.exists():
                stored.rename(aside(parts))
            temporary.rename(stored)
            sync(parts)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return part


def problems(directory: Path, files: Mapping[str, str]) -> Iterator[Problem]:
    """What a stored directory lacks, has too much or has changed."""
    present = {file.name for file in directory.iterdir()} if directory.is_dir() else set()
    for name in sorted(present - files.keys()):
        yield Problem(str(directory / name), "no such file", "one")
    for name, digest in files.items():
        found = _found(directory / name)
        if found != digest:
            yield Problem(str(directory / name), digest, found)


def _found(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        return str(error.strerror)


def _copied(source: Path, to: Path) -> Part:
    if not source.is_dir():
        raise ConfigError(f"{source}: no such directory")
    files = {file.name: _copy(file, to) for file in sorted(source.iterdir())}
    if not files:
        raise ConfigError(f"{source}: an empty directory is no part of a bundle")
    sync(to)
    return Part(hashlib.sha256(msgspec.json.encode(files, order="sorted")).hexdigest(), files)


def _copy(file: Path, to: Path) -> str:
    """The digest of what was written, so that a source that changes meanwhile does no harm."""
    if file.suffix not in (".json", ".safetensors") or file.is_symlink() or not file.is_file():
        raise ConfigError(f"{file}: a bundle takes plain .safetensors and .json files and nothing else")
    digest = hashlib.sha256()
    copy = to / file.name
    with file.open("rb") as reader, copy.open("xb") as writer:
        while block := reader.read(_BLOCK):
            digest.update(block)
            writer.write(block)
    sync(copy)
    try:
        _parse(copy)
    except (msgspec.DecodeError, SafetensorError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: not a readable {file.suffix} file ({error})") from error
    return digest.hexdigest()


def _parse(file: Path) -> None:
    if file.suffix == ".json":
        msgspec.json.decode(file.read_bytes())
    else:
        opened: Any = safe_open(file, framework="np")
        with opened:
            pass
