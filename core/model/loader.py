"""Weights of a Hugging Face model directory or hub id, with a peft LoRA adapter merged in.

The adapter is added in fp32 before the cast to the serving dtype, so merging costs no precision beyond the cast.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from core.model.bfloat16 import Dtype, Weight, as_dtype, widened
from core.model.checkpoint import Checkpoint

EMBEDDING = "model.embed_tokens.weight"  # [vocab_size, hidden]
PROJECTION = "model.embed_tokens.projection"  # [the target's hidden, hidden], of a draft that is narrower
_ADAPTER_CONFIG = "adapter_config.json"
_DIGEST = re.compile("[0-9a-f]{64}")  # names a part of a bundle (`core.bundle`)
_PREFIX, _DOWN, _UP, _BASE = "base_model.model.", ".lora_A.weight", ".lora_B.weight", ".base_layer.weight"
# The config of a plain LoRA; any other value changes the model in ways that cannot be added to a weight.
_PLAIN = {"use_dora": False, "modules_to_save": None, "bias": "none", "fan_in_fan_out": False}


def resolve(path: str | Path, patterns: tuple[str, ...] = ("*.json", "*.safetensors")) -> Path:
    """The local directory of a model: `path` itself, or the cached snapshot of that hub id."""
    if Path(path).is_dir():
        return Path(path)
    from huggingface_hub import snapshot_download  # takes longer to import than all else here

    try:
        directory = Path(snapshot_download(str(path), allow_patterns=list(patterns)))
        if not any(directory.glob("*.safetensors")):
            snapshot_download(str(path), allow_patterns=["pytorch_model*"])
    except (OSError, ValueError) as error:  # hub errors are OSErrors, a malformed id is a ValueError
        raise ConfigError(f"{path}: neither a directory nor a model on the hub ({error})") from error
    return directory


def is_adapter(directory: str | Path) -> bool:
    """Whether this directory holds a PEFT adapter, not a whole model."""
    return (Path(directory) / _ADAPTER_CONFIG).is_file()


def lora_rank(directory: Path) -> int:
    """The rank of the adapter in this directory."""
    return int(_adapter_config(directory)["r"])


def adapted_model(directory: str | Path | None, draft: str) -> str:
    """The model to load for a draft's directory: itself, or for an adapter the model that it is for.

    That is the sibling directory which the adapter names as its base, as in a bundle, or else `draft`. With None it is
    `draft`, un-adapted. Raises `ConfigError` if the sibling is missing.
    """
    if directory is None:
        return draft
    if not is_adapter(directory):
        return str(directory)
    name = str(_adapter_config(Path(directory)).get("base_model_name_or_path"))
    if not _DIGEST.fullmatch(name):
        return draft
    sibling = Path(directory).parent / name
    if not sibling.is_dir():
        raise ConfigError(f"{directory}: an adapter of the model {name}, which is not beside it")
    return str(sibling)


def public_name(model: str) -> str:
    """A hub id unchanged, or the name of a directory or file without its path, which is private to this machine."""
    return Path(model).name if Path(model).exists() else model


def token_embedding(directory: Path, target: str | Path | None) -> Weight:
    """The embedding [vocab_size, hidden] of the model in `directory`, which for a draft may be that of its `target`.

    A draft made from its target stores none: it reads the target's, projected if the draft is narrower. Only then the
    target, a directory or hub id, is looked up. Raises `ConfigError` if it is needed and not known.
    """
    checkpoint = Checkpoint(directory)
    if EMBEDDING in checkpoint:
        return checkpoint[EMBEDDING]
    if target is None:
        raise ConfigError(f"{directory}: no tensor {EMBEDDING!r}; a draft that shares its target's is loaded with it")
    table = Checkpoint(resolve(target))[EMBEDDING]
    return widened(table) @ widened(checkpoint[PROJECTION]) if PROJECTION in checkpoint else table


class Adapter:
    """A peft LoRA directory, which adds `scale * B @ A` to a layer's weight.

    For an adapted lm_head peft also saves the weight itself, as `base_layer`; that weight is then used.
    """

    def __init__(self, directory: Path) -> None:
        self._config = _adapter_config(directory)
        self._tensors = Checkpoint(directory)
        names = self._tensors.names()
        self.unused = {name.removeprefix(_PREFIX).removesuffix(_DOWN) for name in names if name.endswith(_DOWN)}
        mergeable = {f"{_PREFIX}{module}{suffix}" for module in self.unused for suffix in (_DOWN, _UP, _BASE)}
        if unknown := set(names) - mergeable:
            raise ConfigError(f"{directory}: only LoRA of linear layers can be merged, not {min(unknown)}")
        self._modules = frozenset(self.unused)

    def merged(self, module: str, weight: Weight) -> Weight:
        """The adapted weight in fp32, or `weight` itself if the adapter does not change `module`."""
        if module not in self._modules:
            return weight
        self.unused.discard(module)
        name = _PREFIX + module
        down, up = widened(self._tensors[name + _DOWN]), widened(self._tensors[name + _UP])
        if weight.shape != (up.shape[0], down.shape[1]):
            raise ConfigError(
                f"adapter of another model: {module} is {[*weight.shape]}, not {[up.shape[0], down.shape[1]]}"
            )
        if name + _BASE in self._tensors:
            weight = self._tensors[name + _BASE]
        return widened(weight) + self._scale(module, down.shape[0]) * (up @ down)

    def _scale(self, module: str, rank: int) -> float:
        alpha: float = self._config["lora_alpha"]
        for pattern, value in (self._config.get("alpha_pattern") or {}).items():
            if re.match(rf"(.*\.)?({pattern})$", module):
                alpha = value
                break
        return alpha / (math.sqrt(rank) if self._config.get("use_rslora") else rank)


def _adapter_config(directory: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads((directory / _ADAPTER_CONFIG).read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{directory}: no readable {_ADAPTER_CONFIG} ({error})") from error
    if config.get("peft_type") != "LORA":
        raise ConfigError(f"{directory}: peft_type {config.get('peft_type')!r} cannot be merged; known: LORA")
    for key, plain in _PLAIN.items():
        if config.get(key) not in (plain, None):
            raise ConfigError(f"{directory}: {key} = {config[key]!r} cannot be merged; train the adapter without")
    return config


class Weights:
    """A model's tensors as served: adapter merged, cast. A draft may read its `target`'s embedding."""

    def __init__(self, directory: Path, adapter: Path | None, dtype: Dtype, target: str | Path | None = None) -> None:
        self._directory, self._target = directory, target
        self._checkpoint = Checkpoint(directory)
        self._adapter = Adapter(adapter) if adapter else None
        self._dtype = dtype

    def embedding(self) -> Weight:
        """The table of token embeddings, which no adapter changes."""
        return as_dtype(token_embedding(self._directory, self._target), self._dtype)

    def tensor(self, name: str) -> Weight:
        """A tensor that no adapter changes: norm or bias."""
        return as_dtype(self._checkpoint[name], self._dtype)

    def matrix(self, module: str, source: str | None = None) -> Weight:
        """The weight of a linear layer, adapter merged; `source` is the module that holds it, if another one does."""
        weight = self._checkpoint[f"{source or module}.weight"]
        if self._adapter:
            weight = self._adapter.merged(module, weight)
        return as_dtype(weight, self._dtype)

    def check_all_merged(self) -> None:
        """Raises `ConfigError` if the adapter changes a layer that the model lacks."""
        if self._adapter and self._adapter.unused:
            raise ConfigError(f"the adapter changes layers this model lacks: {', '.join(sorted(self._adapter.unused))}")
