"""Weights of a Hugging Face model directory or hub id, a peft LoRA adapter merged in.

A path or hub id enters, single tensors leave: read lazily from safetensors (single or sharded), the adapter added in
fp32 before the cast to the serving dtype, so that merging costs no precision beyond the cast.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from safetensors import safe_open

from core.errors import ConfigError

_PREFIX, _DOWN, _UP, _BASE = "base_model.model.", ".lora_A.weight", ".lora_B.weight", ".base_layer.weight"
# What a plain LoRA has in its config; anything else changes the model in ways that are not added to a weight.
_PLAIN = {"use_dora": False, "modules_to_save": None, "bias": "none", "fan_in_fan_out": False}


def resolve(path: str | Path, patterns: tuple[str, ...] = ("*.json", "*.safetensors")) -> Path:
    """The local directory of a model: `path` itself, or the hub's snapshot of that id (downloaded once, cached)."""
    if Path(path).is_dir():
        return Path(path)
    try:
        directory = Path(snapshot_download(str(path), allow_patterns=list(patterns)))
        if not any(directory.glob("*.safetensors")):
            snapshot_download(str(path), allow_patterns=["pytorch_model*"])
    except (OSError, ValueError) as error:  # hub errors are OSErrors, a malformed id is a ValueError
        raise ConfigError(f"{path}: neither a directory nor a model that the hub gives ({error})") from error
    return directory


def public_name(model: str) -> str:
    """A hub id as it is; of a directory only its name, for where it lies is nobody's business elsewhere."""
    return Path(model).name if Path(model).is_dir() else model


class Checkpoint:
    """The tensors of a model directory by name."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._readers: dict[str, Callable[[str], torch.Tensor]] = {}
        files = sorted(directory.glob("*.safetensors"))
        for file in files:
            self._add_safetensors(file)
        if not files:
            for file in sorted(directory.glob("pytorch_model*.bin")):
                self._add_torch(file)

    def __contains__(self, name: str) -> bool:
        return name in self._readers

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self._readers:
            raise ConfigError(f"{self._directory}: no tensor {name!r} in its weight files")
        return self._readers[name](name)

    def names(self) -> list[str]:
        return list(self._readers)

    def _add_safetensors(self, file: Path) -> None:
        try:
            opened: Any = safe_open(file, framework="pt")
        except Exception as error:  # safetensors raises its own type, which it does not export
            raise ConfigError(f"{file}: not a readable safetensors file ({error})") from error
        self._readers |= dict.fromkeys(opened.keys(), opened.get_tensor)

    def _add_torch(self, file: Path) -> None:
        """Old checkpoints without safetensors; `weights_only` admits tensors and nothing else."""
        tensors: dict[str, torch.Tensor] = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        self._readers |= dict.fromkeys(tensors, tensors.__getitem__)


class Adapter:
    """A peft LoRA directory: to a layer's weight it adds `scale * B @ A`.

    Of an adapted lm_head peft by default saves the weight itself too, as `base_layer`; that one then stands.
    """

    def __init__(self, directory: Path) -> None:
        self._config = _adapter_config(directory)
        self._tensors = Checkpoint(directory)
        names = self._tensors.names()
        self.unused = {name.removeprefix(_PREFIX).removesuffix(_DOWN) for name in names if name.endswith(_DOWN)}
        known = {f"{_PREFIX}{module}{suffix}" for module in self.unused for suffix in (_DOWN, _UP, _BASE)}
        if unknown := set(names) - known:
            raise ConfigError(f"{directory}: only LoRA of linear layers can be merged, not {min(unknown)}")
        self._modules = frozenset(self.unused)

    def merged(self, module: str, weight: torch.Tensor) -> torch.Tensor:
        """`weight` of `module` as adapted, fp32; as it came where the adapter leaves the module alone."""
        if module not in self._modules:
            return weight
        self.unused.discard(module)
        name = _PREFIX + module
        down, up = self._tensors[name + _DOWN].float(), self._tensors[name + _UP].float()
        if weight.shape != (up.shape[0], down.shape[1]):
            raise ConfigError(
                f"the adapter is another model's: {module} is {[*weight.shape]}, not {[up.shape[0], down.shape[1]]}"
            )
        if name + _BASE in self._tensors:
            weight = self._tensors[name + _BASE]
        return weight.float() + self._scale(module, down.shape[0]) * (up @ down)

    def _scale(self, module: str, rank: int) -> float:
        alpha: float = self._config["lora_alpha"]
        for pattern, value in (self._config.get("alpha_pattern") or {}).items():
            if re.match(rf"(.*\.)?({pattern})$", module):
                alpha = value
                break
        return alpha / (math.sqrt(rank) if self._config.get("use_rslora") else rank)


def _adapter_config(directory: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads((directory / "adapter_config.json").read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{directory}: no readable adapter_config.json ({error})") from error
    if config.get("peft_type") != "LORA":
        raise ConfigError(f"{directory}: peft_type {config.get('peft_type')!r} cannot be merged; known: LORA")
    for key, plain in _PLAIN.items():
        if config.get(key) not in (plain, None):
            raise ConfigError(f"{directory}: {key} = {config[key]!r} cannot be merged; train the adapter without")
    return config


class Weights:
    """A model's tensors as they are served: adapter merged, cast, on the device."""

    def __init__(self, directory: Path, adapter: Path | None, dtype: torch.dtype, device: torch.device) -> None:
        self._checkpoint = Checkpoint(directory)
        self._adapter = Adapter(adapter) if adapter else None
        self._dtype = dtype
        self._device = device

    def tensor(self, name: str) -> torch.Tensor:
        """What is no matrix of a product."""
        return self._checkpoint[name].to(self._device, self._dtype)

    def matrix(self, module: str, source: str | None = None) -> torch.Tensor:
        """Weight of a linear layer, adapter merged; `source` names the tensor where it is another module's."""
        weight = self._checkpoint[f"{source or module}.weight"]
        if self._adapter:
            weight = self._adapter.merged(module, weight)
        return weight.to(self._device, self._dtype)

    def check_all_merged(self) -> None:
        """Raises `ConfigError` where the adapter changes a layer that the model does not have."""
        if self._adapter and self._adapter.unused:
            raise ConfigError(f"the adapter changes layers this model lacks: {', '.join(sorted(self._adapter.unused))}")
