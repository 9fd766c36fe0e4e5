"""The tensors in the weight files of a model or adapter, read lazily: safetensors, single or sharded.

A file is mapped into memory: only what is used is read, and processes that use the same share it. The package
safetensors checks the file. It reads bfloat16 only with torch, so the bytes are taken from where its header says.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from core.errors import ConfigError
from core.model.bfloat16 import Weight
from core.model.draft_vocabulary import FILE as DRAFT_VOCABULARY

if TYPE_CHECKING:
    import torch

_TYPES: dict[str, type[np.generic]] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": np.uint16,
    "I64": np.int64,
    "BOOL": np.bool_,
}


class Checkpoint:
    """The tensors of a model directory by name, as NumPy arrays, without those of a draft vocabulary."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._readers: dict[str, Callable[[], Weight]] = {}
        files = [file for file in sorted(directory.glob("*.safetensors")) if file.name != DRAFT_VOCABULARY]
        for file in files:
            self._add_safetensors(file)
        if not files:
            for file in sorted(directory.glob("pytorch_model*.bin")):
                self._add_torch(file)

    def __contains__(self, name: str) -> bool:
        return name in self._readers

    def __getitem__(self, name: str) -> Weight:
        if name not in self._readers:
            raise ConfigError(f"{self._directory}: no tensor {name!r} in its weight files")
        return self._readers[name]()

    def names(self) -> list[str]:
        return list(self._readers)

    def _add_safetensors(self, file: Path) -> None:
        try:
            with safe_open(file, framework="np"), file.open("rb") as opened:
                size = int.from_bytes(opened.read(8), "little")
                header: dict[str, Any] = json.loads(opened.read(size))
            content = np.memmap(file, mode="c", offset=8 + size)
        except Exception as error:  # safetensors raises its own type, which it does not export
            raise ConfigError(f"{file}: not a readable safetensors file ({error})") from error
        header.pop("__metadata__", None)
        self._readers |= {name: partial(_mapped, file, name, entry, content) for name, entry in header.items()}

    def _add_torch(self, file: Path) -> None:
        """Add an old checkpoint without safetensors; `weights_only` admits nothing but tensors."""
        import torch

        tensors: dict[str, torch.Tensor] = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        self._readers |= {name: partial(_of_torch, tensor) for name, tensor in tensors.items()}


def _mapped(file: Path, name: str, entry: dict[str, Any], content: NDArray[np.uint8]) -> Weight:
    if entry["dtype"] not in _TYPES:
        raise ConfigError(f"{file}: {name!r} is of the type {entry['dtype']}; known: {', '.join(_TYPES)}")
    begin, end = entry["data_offsets"]
    return np.asarray(content[begin:end]).view(_TYPES[entry["dtype"]]).reshape(entry["shape"])


def _of_torch(tensor: torch.Tensor) -> Weight:
    import torch

    array: Weight = (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array
