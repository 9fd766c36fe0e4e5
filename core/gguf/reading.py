"""Reads a GGUF file: its metadata by key, and its tensors by name, all of which lie within the file."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from core.errors import ConfigError

if TYPE_CHECKING:
    from gguf import GGUFReader, ReaderTensor

_HEAD = struct.Struct("<4sI")  # the magic, and the version of the format
_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_LONGEST_ARRAY = 4_000_000  # tokens and merges are some hundred thousand


class GgufFile:
    """An open GGUF file; `architecture` is what its metadata calls the kind of model.

    Raises `ConfigError` if the file is no GGUF file, or not a whole one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _check_head(path)
        reader = _read(path)
        self._fields = reader.fields
        self.tensors: dict[str, ReaderTensor] = {tensor.name: tensor for tensor in reader.tensors}
        if int(self.get("split.count") or 1) > 1:
            raise ConfigError(f"{path}: one of several parts; join them with `llama-gguf-split --merge`")
        self.architecture = str(self.require("general.architecture"))

    def get(self, key: str) -> Any:
        """The value of a key: a number, a string, a boolean, or a list of them. None if the file lacks it."""
        if key not in self._fields:
            return None
        try:
            value = self._fields[key].contents()
        except ValueError as error:
            raise ConfigError(f"{self.path}: {key} is damaged ({error}); download the file again") from error
        return _as_written(value) if isinstance(value, float) else value

    def require(self, key: str) -> Any:
        """The value of a key; `ConfigError` if the file lacks it."""
        value = self.get(key)
        if value is None:
            raise ConfigError(f"{self.path}: no {key} in its metadata; use a file that llama.cpp runs")
        return value

    def of_model(self, key: str) -> Any:
        """The value of a key of the architecture, such as `block_count` for `llama.block_count`, or None."""
        return self.get(f"{self.architecture}.{key}")

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number of the architecture that is at least 1 and the same for all layers."""
        value = self.of_model(key) if default is not None else self.require(f"{self.architecture}.{key}")
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or value < 1:
            raise ConfigError(f"{self.path}: {self.architecture}.{key} is {value}; one whole number is supported")
        return value


def _check_head(path: Path) -> None:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD.size)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from error
    magic, version = _HEAD.unpack(head.ljust(_HEAD.size, b"\0"))
    if magic != _MAGIC:
        raise ConfigError(f"{path}: not a GGUF file; it begins with {magic!r} and not with {_MAGIC!r}")
    if version not in _VERSIONS:  # a file for big-endian machines shows here as an impossible version
        raise ConfigError(f"{path}: GGUF of version {version} is not supported; known: {_VERSIONS}, little-endian")


def _read(path: Path) -> GGUFReader:
    from gguf import GGUFReader, GGUFValueType  # brings much along, paid only where a file is converted

    class Reader(GGUFReader):
        """Stops at a length that cannot be true, where its parent would go on until memory is full."""

        def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
            if raw_type == GGUFValueType.ARRAY:
                length = int(self._get(orig_offs + 4, np.uint64)[0])
                if length > min(_LONGEST_ARRAY, len(self.data)):
                    raise ValueError(f"a list of {length} values")
            return super()._get_field_parts(orig_offs, raw_type)

    try:
        return Reader(path)
    except (ValueError, IndexError, KeyError, OverflowError) as error:
        raise ConfigError(
            f"{path}: cut short, damaged, or newer than the package gguf ({error}); download the file again"
        ) from error


def _as_written(value: float) -> float:
    """The shortest number that is this one in 32 bits: 1e-05 and not 9.999999747378752e-06."""
    return float(str(np.float32(value)))
