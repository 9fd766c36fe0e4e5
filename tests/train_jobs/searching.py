"""A search for texts and token ids in all files of directories, in the forms in which programs write them."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import msgspec
import numpy as np
import pyarrow as pa
from pyarrow import parquet

PATIENCE = 120.0  # seconds for the last search
Needles = Mapping[str, bytes]  # what each is, and its bytes


def of_text(text: str) -> Needles:
    return {f"{text!r} in {coding}": text.encode(coding) for coding in ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le")}


def of_tokens(tokens: Sequence[int]) -> Needles:
    """As numbers of several widths, in JSON, pickle and MessagePack."""
    name = f"tokens {tokens[:3]}..."
    array = {kind: np.array(tokens, kind).tobytes() for kind in ("<u2", "<i4", "<i8", ">i4", ">i8", "<f4")}
    told = {
        "JSON": json.dumps(tokens)[1:-1].encode(),
        "short JSON": msgspec.json.encode(tokens)[1:-1],
        "pickle": b"".join(pickle.dumps(token, 2)[2:-1] for token in tokens),
        "MessagePack": b"".join(msgspec.msgpack.encode(token) for token in tokens),
    }
    return {f"{name} as {form}": content for form, content in (array | told).items()}


def search(roots: Iterable[Path], needles: Needles) -> dict[str, list[Path]]:
    """The files in which each needle is found."""
    found: dict[str, list[Path]] = {}
    for root in roots:
        for file in files(root):
            for name in inside(file, needles):
                found.setdefault(name, []).append(file)
    return found


def files(root: Path) -> Iterator[Path]:
    for directory, _, names in os.walk(root):
        yield from (file for name in names if (file := Path(directory, name)).is_file() and not file.is_symlink())


def inside(file: Path, needles: Needles) -> list[str]:
    """The needles in a file's name, or in its content as it is and unpacked; none if it is gone."""
    try:
        content = file.read_bytes()
    except OSError:
        return []
    layers = [os.fsencode(file), *unpacked(content)]
    return [name for name, needle in needles.items() if any(needle in layer for layer in layers)]


def unpacked(content: bytes) -> Iterator[bytes]:
    """The content, and what is in it if it is compressed or encoded: Parquet, zip (npz, PyTorch), gzip."""
    yield content
    if content[:4] == b"PAR1":
        with suppress(pa.ArrowException):
            yield from _columns(parquet.read_table(pa.BufferReader(content)))
    if content[:2] == b"PK":
        with suppress(zipfile.BadZipFile), zipfile.ZipFile(io.BytesIO(content)) as archive:
            for member in archive.namelist():
                yield from unpacked(archive.read(member))
    if content[:2] == b"\x1f\x8b":
        with suppress(OSError, EOFError):
            yield from unpacked(gzip.decompress(content))


def _columns(table: pa.Table) -> Iterator[bytes]:
    for column in table.columns:
        for chunk in column.chunks:
            yield from (buffer.to_pybytes() for buffer in chunk.buffers() if buffer is not None)


class Lookout:
    """Searches in the block whatever is written to these directories, so that files which come and go are seen too."""

    def __init__(self, roots: Sequence[Path], needles: Needles, every: float = 1.0) -> None:
        self.found: set[tuple[str, Path]] = set()
        self.seen = Event()  # something was found
        self.searched: set[Path] = set()
        self._roots = roots
        self._needles = needles
        self._every = every
        self._seen: dict[Path, tuple[int, int]] = {}
        self._over = Event()
        self._thread = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Lookout:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _watch(self) -> None:
        last = False
        while not last:
            last = self._over.wait(self._every)
            for file in (file for root in self._roots for file in files(root)):
                with suppress(OSError):
                    state = file.stat().st_mtime_ns, file.stat().st_size
                    if self._seen.get(file) != state:
                        self._seen[file] = state
                        self.searched.add(file)
                        self.found.update((name, file) for name in inside(file, self._needles))
            if self.found:
                self.seen.set()
