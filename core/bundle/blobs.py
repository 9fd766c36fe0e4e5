"""Blobs: directories of safetensors and JSON files (an adapter, a router), named by the SHA-256 of their content.

A stored blob never changes; `problems` lists the files that differ from what its name promises. In the manifest, whose
format is fixed, a blob is called a part.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from safetensors import SafetensorError, safe_open

from core.atomic_files import aside, sync
from core.errors import ConfigError

Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Files = dict[Annotated[str, Meta(pattern=r"^[^/]+\.(json|safetensors)$")], Digest]
_DIGEST = re.compile("[0-9a-f]{64}")
_BLOCK = 1 << 20  # bytes copied at a time


class Problem(msgspec.Struct, frozen=True):
    """A file with other content than expected."""

    file: str
    expected: str
    actual: str

    def __str__(self) -> str:
        return f"{self.file}: expected {self.expected}, found {self.actual}"


class Blob(msgspec.Struct, frozen=True):
    """A stored directory: the SHA-256 of every file, and that of the table of files, which names the directory."""

    digest: str
    files: Files


def store_blob(parts: Path, source: Path) -> Blob:
    """Copy `source` into `parts`, unless it is there and intact. The digest depends only on its files' names and bytes.

    Raises `ConfigError` if it holds anything but readable safetensors and JSON files.
    """
    temporary = aside(parts)
    temporary.mkdir()
    try:
        blob = _copied(source, temporary)
        stored = parts / blob.digest
        if any(problems(stored, blob.files)):
            if stored.exists():
                stored.rename(aside(parts))
            temporary.rename(stored)
            sync(parts)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return blob


def problems(directory: Path, files: Mapping[str, str]) -> Iterator[Problem]:
    """Missing, extra and changed files of a stored directory."""
    present = {file.name for file in directory.iterdir()} if directory.is_dir() else set()
    for name in sorted(present - files.keys()):
        yield Problem(str(directory / name), "no such file", "one")
    for name, digest in files.items():
        actual = _digest_of(directory / name)
        if actual != digest:
            yield Problem(str(directory / name), digest, actual)


def base_part(directory: Path) -> str | None:
    """The digest of the blob that a PEFT adapter is for; None if it is for a model elsewhere, or is no adapter."""
    try:
        base = msgspec.json.decode((directory / "adapter_config.json").read_bytes()).get("base_model_name_or_path")
    except OSError:
        return None
    return base if isinstance(base, str) and _DIGEST.fullmatch(base) else None


def _digest_of(file: Path) -> str:
    """Or why it cannot be read."""
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        return str(error.strerror)


def _copied(source: Path, to: Path) -> Blob:
    if not source.is_dir():
        raise ConfigError(f"{source}: no such directory")
    files = {file.name: _copy(file, to) for file in sorted(source.iterdir())}
    if not files:
        raise ConfigError(f"{source}: an empty directory cannot be part of a bundle")
    sync(to)
    return Blob(hashlib.sha256(msgspec.json.encode(files, order="sorted")).hexdigest(), files)


def _copy(file: Path, to: Path) -> str:
    """Copy a file and return the digest of the bytes written, even if the source changes meanwhile."""
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
