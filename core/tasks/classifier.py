"""The task classifier, which the router asks: a small Mamba that predicts a prompt's task from its token ids.

It returns a prior over the tasks and `general`, the task of the draft without an adapter. `general` gets most of the
prior if the classifier is not sure, because a wrong route costs more than none. On disk it is a directory of
config.json and model.safetensors (bf16).
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from core.draft_key import GENERAL
from core.errors import ConfigError

if TYPE_CHECKING:
    from transformers import MambaModel

LONGEST = 256  # ids read of a prompt
_CONFIG, _WEIGHTS = "config.json", "model.safetensors"
_KERNELS = ("mamba_ssm", "causal_conv1d")
_log = logging.getLogger(__name__)


class ClassifierConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of config.json. A prompt is routed to a task whose probability reaches `threshold`."""

    tasks: tuple[str, ...]
    threshold: float
    vocab_size: int
    hidden_size: int = 64
    num_hidden_layers: int = 2
    state_size: int = 8


def window(tokens: Sequence[int], longest: int = LONGEST) -> list[int]:
    """The token ids that are read: all, or half of `longest` from the beginning and half from the end."""
    if len(tokens) <= longest:
        return list(tokens)
    return [*tokens[: longest // 2], *tokens[-(longest // 2) :]]


class Network(nn.Module):
    """Mamba over the ids, the mean of its outputs over the prompt, one logit per task and one for `general`."""

    def __init__(self, config: ClassifierConfig, device: str = "cpu") -> None:
        super().__init__()
        self.mamba = _mamba(config, device)
        self.head = nn.Linear(config.hidden_size, len(config.tasks) + 1)
        self.to(device)

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Logits [n, tasks + 1] of `tokens` [n, longest], padded on the right beyond `lengths` [n]."""
        states = self.mamba(tokens).last_hidden_state  # causal: the padding changes nothing before it
        inside = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
        mean = (states * inside[:, :, None]).sum(1) / lengths[:, None]
        logits: torch.Tensor = self.head(mean)
        return logits


class TaskClassifier:
    """A trained network (a `Network`, or a baseline that is called alike) and its threshold."""

    def __init__(self, config: ClassifierConfig, network: nn.Module) -> None:
        self.config = config
        self.network = network.eval()

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks, without `general`."""
        return self.config.tasks

    @torch.inference_mode()
    def probabilities(self, tokens: Sequence[int]) -> torch.Tensor:
        """Softmax [tasks + 1] of the network over the tasks and, last, `general`."""
        device = next(self.network.parameters()).device
        ids = torch.tensor([window(tokens)], device=device)
        logits: torch.Tensor = self.network(ids, torch.tensor([ids.shape[1]], device=device))
        return logits[0].softmax(-1).cpu()

    def predict(self, tokens: Sequence[int]) -> dict[str, float]:
        """Prior over the tasks and `general` for a prompt of at least one token; it sums to 1.

        If no task reaches the threshold, the classifier abstains: `general` gets at least the threshold, and the tasks
        share the rest in proportion to their probabilities.
        """
        *of_tasks, general = self.probabilities(tokens).tolist()
        if max(of_tasks) < self.config.threshold:
            shared = min(sum(of_tasks), 1 - self.config.threshold)
            of_tasks = [p * shared / sum(of_tasks) for p in of_tasks]
            general = 1 - shared
        return dict(zip((*self.tasks, GENERAL), [*of_tasks, general], strict=True))

    def save(self, directory: Path) -> None:
        """Write config.json and model.safetensors in bf16 (trained weights are bf16 values already)."""
        directory.mkdir(parents=True, exist_ok=True)
        weights = {name: weight.to(torch.bfloat16).contiguous() for name, weight in self.network.state_dict().items()}
        save_file(weights, directory / _WEIGHTS, metadata={"format": "pt"})
        config = json.dumps(msgspec.to_builtins(self.config), indent=2)
        (directory / _CONFIG).write_text(config + "\n")

    @classmethod
    def load(cls, directory: str | Path, device: str = "cpu") -> TaskClassifier:
        """Read what `save` wrote. `ConfigError` names a file that is missing, broken or of another shape."""
        config = _read_config(Path(directory) / _CONFIG)
        network = Network(config, device)
        _fill(network, Path(directory) / _WEIGHTS)
        return cls(config, network)


def _read_config(path: Path) -> ClassifierConfig:
    try:
        return msgspec.json.decode(path.read_bytes(), type=ClassifierConfig)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path} is not a task classifier's config: {error}") from error


def _fill(network: Network, path: Path) -> None:
    try:
        weights: Mapping[str, Any] = load_file(path)
        network.load_state_dict(weights)
    except (OSError, SafetensorError, RuntimeError) as error:
        raise ConfigError(f"{path} does not hold this classifier's weights: {error}") from error


def _mamba(config: ClassifierConfig, device: str) -> MambaModel:
    """transformers' Mamba, with the CUDA kernels of mamba-ssm only on a GPU.

    transformers binds those kernels when its Mamba is imported, whatever the device. So for a CPU classifier they are
    hidden before the import.
    """
    if device == "cpu":
        for name in _KERNELS:
            sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # None marks a package as not found
        logging.getLogger("transformers.integrations.hub_kernels").setLevel(logging.ERROR)  # it warns of their absence
    from transformers import MambaConfig, MambaModel

    kernels = [name for name in _KERNELS if sys.modules.get(name)]
    _log.info("task classifier on %s: Mamba by %s", device, " and ".join(kernels) or "plain torch")
    return MambaModel(
        MambaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_hidden_layers,
            state_size=config.state_size,
            use_cache=False,
        )
    )
