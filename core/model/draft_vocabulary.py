"""The draft vocabulary (EAGLE-3's d2t and t2d): the ids that a draft has logits for, as its task uses no others.

The product with the lm_head is much of a small draft's work, and a task's answers use few of the tokens (after FR-Spec,
arXiv 2502.14856). The file `draft_vocabulary.safetensors` lies beside a model or a peft adapter. Their own files may
keep the whole head: transformers and peft load them as ever, and the head is cut when the draft is loaded for serving.
The file of a draft made from a target with a large vocabulary has only these rows of the head. The embedding stays
whole, tied or not, because a draft may read any token. The tensors are those of EAGLE-3:

    d2t   int64 [draft_vocab_size]    offsets: column i is of the token i + d2t[i]
    t2d   bool [vocab_size]           whether a token has a column

A map of the same shape that belongs to another draft would not fail but guess wrong tokens. So the file's metadata
hold the SHA-256 of both tensors, and a model's config.json the `draft_vocab_size`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file

from core.errors import ConfigError
from core.model.config import read_config

FILE = "draft_vocabulary.safetensors"
_SIZE, _HEAD = "draft_vocab_size", "lm_head.weight"


@dataclass(frozen=True, eq=False)
class DraftVocabulary:
    """`ids` of a model's `target_size` token ids: int64, ascending, at least one."""

    ids: NDArray[np.int64]
    target_size: int

    @classmethod
    def from_ids(cls, ids: Iterable[int], target_size: int) -> DraftVocabulary:
        """The vocabulary of these ids in any order. Raises `ConfigError` for none, or one out of range."""
        ascending = np.array(sorted(set(ids)), np.int64)
        _check_ids(ascending, target_size, "a draft vocabulary")
        return cls(ascending, target_size)

    @classmethod
    def find(cls, directory: Path) -> DraftVocabulary | None:
        """The vocabulary that lies in the directory of a model or adapter, or None if its head is whole.

        Raises `ConfigError` if its file is damaged, or does not fit config.json.
        """
        vocabulary = cls.load(directory) if (directory / FILE).exists() else None
        raw = read_config(directory) if (directory / "config.json").exists() else {}
        size = len(vocabulary.ids) if vocabulary else raw.get("vocab_size")
        if raw.get(_SIZE, size) not in (size, None):
            has = f"{FILE} has {size} ids" if vocabulary else f"there is no {FILE}"
            raise ConfigError(f"{directory}: {_SIZE} in config.json is {raw[_SIZE]}, but {has}")
        return vocabulary

    @classmethod
    def load(cls, directory: Path) -> DraftVocabulary:
        """Read the file in `directory`. Raises `ConfigError` if its tensors contradict each other or their hash."""
        file = directory / FILE
        d2t, t2d, digest = _read(file)
        ids = np.arange(len(d2t)) + d2t
        _check_ids(ids, len(t2d), f"{file}: d2t")
        if not np.array_equal(t2d.nonzero()[0], ids):
            raise ConfigError(f"{file}: t2d and d2t name different tokens")
        vocabulary = cls(ids, len(t2d))
        if digest != vocabulary.sha256:
            raise ConfigError(f"{file}: the SHA-256 of d2t and t2d is {vocabulary.sha256}, its metadata say {digest}")
        return vocabulary

    @classmethod
    def of_stored_head(cls, directory: Path) -> DraftVocabulary | None:
        """The vocabulary whose rows alone are in the model file of a draft's directory; None if all are."""
        vocabulary = cls.find(directory)
        return vocabulary if vocabulary is not None and _num_rows(directory) == len(vocabulary.ids) else None

    @cached_property
    def columns(self) -> NDArray[np.int64]:
        """The column of each of the target's ids, and -1 for an id without one."""
        columns = np.full(self.target_size, -1)
        columns[self.ids] = np.arange(len(self.ids))
        return columns

    def save(self, directory: Path) -> None:
        """Write the file into the directory of a model or adapter, and the size into config.json if there is one."""
        save_file({"d2t": self.d2t, "t2d": self.t2d}, directory / FILE, {"sha256": self.sha256})
        config = directory / "config.json"
        if config.exists():
            raw = read_config(directory) | {_SIZE: len(self.ids)}
            config.write_text(json.dumps(raw, indent=2, sort_keys=True) + "\n")

    @cached_property
    def d2t(self) -> NDArray[np.int64]:
        return self.ids - np.arange(len(self.ids))

    @cached_property
    def t2d(self) -> NDArray[np.bool_]:
        has = np.zeros(self.target_size, np.bool_)
        has[self.ids] = True
        return has

    @cached_property
    def sha256(self) -> str:
        """Of the bytes of d2t, then t2d; in hex."""
        return hashlib.sha256(self.d2t.tobytes() + self.t2d.tobytes()).hexdigest()


def most_frequent(counts: Mapping[int, int], size: int, always: Iterable[int] = ()) -> list[int]:
    """At most `size` ids: those of `always`, then the most frequent ones, of equals the lowest.

    `always` are ids that may not be missing, such as those that end an answer. Raises `ConfigError` if they are too
    many. An id that was never counted is left out: it would only cost.
    """
    required = set(always)
    if len(required) > size:
        raise ConfigError(f"a draft vocabulary of {size} ids has no room for the {len(required)} that it must have")
    others = sorted((-count, token) for token, count in counts.items() if count > 0 and token not in required)
    return sorted([*required, *(token for _, token in others[: size - len(required)])])


def filled_up(counts: Mapping[int, int], size: int, num_valid: int, always: Iterable[int] = ()) -> list[int]:
    """`size` of the first `num_valid` ids: the `most_frequent` ones, then the lowest.

    A byte-pair vocabulary is numbered by rank, so the lowest are likely elsewhere.
    """
    frequent = set(most_frequent(counts, min(size, num_valid), always))
    others = (token for token in range(num_valid) if token not in frequent)
    return sorted([*frequent, *islice(others, size - len(frequent))])


def _num_rows(directory: Path) -> int | None:
    """The rows of the lm_head in a model's files; None if it has none of its own."""
    for file in sorted(directory.glob("model*.safetensors")):
        with safe_open(file, framework="np") as opened:
            if _HEAD in opened.keys():  # noqa: SIM118 (not a mapping)
                rows: int = opened.get_slice(_HEAD).get_shape()[0]
                return rows
    return None


def _read(file: Path) -> tuple[NDArray[np.int64], NDArray[np.bool_], str | None]:
    """The tensors d2t and t2d, and the hash in the metadata."""
    try:
        with safe_open(file, framework="np") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a mapping)
            digest: str | None = (opened.metadata() or {}).get("sha256")
    except Exception as error:  # safetensors raises its own type, which it does not export
        raise ConfigError(f"{file}: not a readable safetensors file ({error})") from error
    kinds = {name: (tensor.dtype, tensor.ndim) for name, tensor in tensors.items()}
    if kinds != {"d2t": (np.int64, 1), "t2d": (np.bool_, 1)}:
        raise ConfigError(f"{file}: must hold d2t, int64 [draft_vocab_size], and t2d, bool [vocab_size], and no more")
    return tensors["d2t"], tensors["t2d"], digest


def _check_ids(ids: NDArray[np.int64], target_size: int, of: str) -> None:
    if not len(ids):
        raise ConfigError(f"{of} has no ids")
    if not (np.diff(ids) > 0).all():
        raise ConfigError(f"{of}: the ids must ascend")
    if ids[0] < 0 or ids[-1] >= target_size:
        raise ConfigError(f"{of}: ids must lie between 0 and {target_size - 1}, not from {ids[0]} to {ids[-1]}")
