"""Reads a GGUF file: its metadata by key, and its tensors by name, all of which lie within the file."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from core.errors import ConfigError

if TYPE_CHECKING:
    from gguf import GGUFReader, ReaderTensor

_HEAD = struct.Struct("<4sI")  # the magic, and the version of the format
_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_LONGEST_ARRAY = 4_000_000  # tokens and merges are some hundred thousand
_LARGEST = 2**32 - 1  # of anything
_KINDS: dict[type, str] = {str: "a text", int: "one whole number", float: "a number", bool: "true or false"}

_Kind = TypeVar("_Kind", str, int, float, bool)
_Any = TypeVar("_Any")


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
        if (self.get("split.count", int) or 1) > 1:
            raise ConfigError(f"{path}: one of several parts; join them with `llama-gguf-split --merge`")
        self.architecture = self.require("general.architecture", str)

    def get(self, key: str, kind: type[_Kind]) -> _Kind | None:
        """The value of a key, if it is of this kind. None if the file lacks it; `ConfigError` if it is of another."""
        value = self._value(key)
        if value is None:
            return None
        if not _is(value, kind):
            raise self.wrong(key, f"must be {_KINDS[kind]}")
        return kind(value)

    def get_list(self, key: str, kind: type[_Kind]) -> list[_Kind] | None:
        """The values of a key, all of this kind. None if the file lacks it; `ConfigError` if it is of another."""
        values = self._value(key)
        if values is None:
            return None
        if not isinstance(values, list) or not all(_is(value, kind) for value in values):
            raise self.wrong(key, f"must be a list, and each of its values {_KINDS[kind]}")
        return [kind(value) for value in values]

    def require(self, key: str, kind: type[_Kind], default: _Kind | None = None) -> _Kind:
        """The value of a key of this kind, else the default. `ConfigError` if the file lacks it, and there is none."""
        value = self.get(key, kind)
        return self._there(key, default if value is None else value)

    def require_list(self, key: str, kind: type[_Kind]) -> list[_Kind]:
        """The values of a key, all of this kind; `ConfigError` if the file lacks it."""
        return self._there(key, self.get_list(key, kind))

    def of_model(self, key: str) -> str:
        """A key of the architecture, such as `llama.block_count` for `block_count`."""
        return f"{self.architecture}.{key}"

    def count(self, key: str, default: int | None = None, limit: int = _LARGEST) -> int:
        """A whole number of the architecture, from 1 to `limit` and the same for all layers."""
        value = self.require(key := self.of_model(key), int, default)
        if not 1 <= value <= limit:
            raise self.wrong(key, f"must be from 1 to {limit}")
        return value

    def positive(self, key: str, default: float | None = None) -> float:
        """A number of the architecture that is more than 0 and finite."""
        value = _as_written(self.require(key := self.of_model(key), float, default))
        if not 0 < value < math.inf:
            raise self.wrong(key, "must be more than 0 and finite")
        return value

    def wrong(self, key: str, must: str) -> ConfigError:
        """The error for a key with a value that it must not have."""
        value = self._value(key)
        return ConfigError(f"{self.path}: {key} is {value!r:.40}, and {must}; use a file that llama.cpp runs")

    def _there(self, key: str, value: _Any | None) -> _Any:
        if value is None:
            raise ConfigError(f"{self.path}: no {key} in its metadata; use a file that llama.cpp runs")
        return value

    def _value(self, key: str) -> Any:
        """A number, a string, a boolean, or a list of them; None if the file lacks it."""
        if key not in self._fields:
            return None
        try:
            return self._fields[key].contents()
        except ValueError as error:
            raise ConfigError(f"{self.path}: {key} is damaged ({error}); download the file again") from error


def _is(value: Any, kind: type[Any]) -> bool:
    """Whether a value is of a kind; a whole number is a number too, and a boolean is none."""
    return type(value) is kind or (kind is float and type(value) is int)


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
        """Stops at what its parent would follow until the memory or the stack is full: long lists, and deep ones."""

        def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
            if raw_type == GGUFValueType.ARRAY:
                length = int(self._get(orig_offs + 4, np.uint64)[0])
                if length > min(_LONGEST_ARRAY, len(self.data)):
                    raise ValueError(f"a list of {length} values")
                if self._get(orig_offs, np.uint32)[0] == GGUFValueType.ARRAY:
                    raise ConfigError(f"{path}: lists within lists in its metadata; use a file that llama.cpp runs")
            return super()._get_field_parts(orig_offs, raw_type)

    try:
        return Reader(path)
    except (ValueError, IndexError, KeyError, OverflowError) as error:
        raise ConfigError(
            f"{path}: cut short, damaged, or newer than the package gguf ({error}); download the file again"
        ) from error


def _as_written(value: float) -> float:
    """The shortest number that is this one in 32 bits: 1e-05 and not 9.999999747378752e-06."""
    with np.errstate(over="ignore"):  # what 32 bits do not hold is infinite
        return float(str(np.float32(value)))
