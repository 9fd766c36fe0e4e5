"""A draft while it learns: transformers' own model, with peft's LoRA on it or all weights free.

Enters: a model directory or hub id, batches. Leaves: the loss, logits to judge it by, and in the end an ordinary peft
or Hugging Face directory.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from core.distillation import Batch
from core.durable import ASIDE, sync
from core.model.loader import public_name

if TYPE_CHECKING:
    from peft import PeftModel

_ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")  # peft's model card names paths and versions


class DraftLearner:
    """The general draft in fp32 on `device`; LoRA of `rank` on every linear layer and the lm_head, or None for all.

    A's random start comes from `seed`; B is 0, so that a learner begins as the general draft.
    """

    def __init__(self, draft: str | Path, rank: int | None, seed: int, device: str | torch.device = "cpu") -> None:
        from transformers import AutoModelForCausalLM

        self._draft = draft
        self._device = torch.device(device)
        # left in evaluation mode: dropout would draw numbers that a resumed run does not draw again
        self._network: Any = AutoModelForCausalLM.from_pretrained(draft, dtype=torch.float32)
        nn.Module.to(self._network, self._device)
        self._tuned = None if rank is None else _with_lora(self._network, rank, seed)
        if self._tuned is not None:
            self._tuned.peft_config["default"].base_model_name_or_path = public_name(str(draft))
        self.trained: dict[str, nn.Parameter] = {
            name: parameter for name, parameter in self._network.named_parameters() if parameter.requires_grad
        }

    @property
    def context(self) -> int:
        return int(self._network.config.max_position_embeddings)

    def embeddings(self) -> set[str]:
        """Names of the trained weights that have a row for each token."""
        tables = (self._network.get_input_embeddings(), self._network.get_output_embeddings())
        weights = {id(module.weight) for module in tables}
        return {name for name, parameter in self.trained.items() if id(parameter) in weights}

    def loss(self, batch: Batch) -> torch.Tensor:
        """Forward KL from the target, in nats a token, over the target's most likely tokens.

        The draft's own softmax is over all tokens, so mass it gives to any other is still mass lost to these.
        """
        hidden = self._network.model(input_ids=batch.tokens.to(self._device), use_cache=False).last_hidden_state
        logits = self._network.lm_head(hidden[batch.wanted.to(self._device)])
        ids, theirs = batch.ids.to(self._device), batch.logprobs.to(self._device)
        ours = logits.log_softmax(-1).gather(-1, ids)
        loss: torch.Tensor = (theirs.exp() * (theirs - ours)).sum(-1).mean()
        return loss

    @torch.no_grad()
    def forward(self, tokens: Sequence[int], num_logits: int) -> torch.Tensor:
        """fp32 logits [num_logits, V] after each of the last tokens."""
        hidden = self._network.model(input_ids=torch.tensor([tokens], device=self._device), use_cache=False)
        logits: torch.Tensor = self._network.lm_head(hidden.last_hidden_state[0, -num_logits:])
        return logits

    def state(self) -> dict[str, torch.Tensor]:
        """A copy of what is trained."""
        return {name: parameter.detach().clone() for name, parameter in self.trained.items()}

    @torch.no_grad()
    def restore(self, state: dict[str, torch.Tensor]) -> None:
        for name, parameter in self.trained.items():
            parameter.copy_(state[name])

    def save(self, directory: Path) -> None:
        """Write a peft adapter directory, or the whole model with its tokenizer, in bf16; what was there goes."""
        directory.parent.mkdir(parents=True, exist_ok=True)
        aside = directory.with_name(ASIDE + directory.name)
        shutil.rmtree(aside, ignore_errors=True)  # a killed run's
        aside.mkdir()
        if self._tuned is None:
            _save_model(self._network, self._draft, aside)
        else:
            _save_adapter(self._tuned, aside)
        for file in aside.iterdir():
            file.chmod(0o644)
            sync(file)
        shutil.rmtree(directory, ignore_errors=True)
        aside.replace(directory)


def _with_lora(network: Any, rank: int, seed: int) -> PeftModel:
    from peft import LoraConfig, get_peft_model

    linear = {name.rpartition(".")[2] for name, module in network.named_modules() if isinstance(module, nn.Linear)}
    config = LoraConfig(task_type="CAUSAL_LM", r=rank, lora_alpha=rank, target_modules=sorted(linear))
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # a tied lm_head is adapted apart from the embedding, which is what is meant
        warnings.filterwarnings("ignore", message=".*tie.*")
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*", category=FutureWarning)
        torch.manual_seed(seed)
        tuned: PeftModel = get_peft_model(network, config)
    return tuned


def _in_bf16(network: nn.Module) -> dict[str, torch.Tensor]:
    return {name: weight.to(torch.bfloat16) for name, weight in network.state_dict().items()}


def _save_model(network: Any, draft: str | Path, directory: Path) -> None:
    from transformers import AutoTokenizer

    network.save_pretrained(directory, state_dict=_in_bf16(network))
    AutoTokenizer.from_pretrained(draft).save_pretrained(directory)
    for file in directory.iterdir():
        if file.suffix not in (".json", ".safetensors"):  # the chat template: drafts get ids, never text
            file.unlink()


def _save_adapter(tuned: PeftModel, directory: Path) -> None:
    tuned.save_pretrained(str(directory), save_embedding_layers=False, state_dict=_in_bf16(tuned))
    for file in directory.iterdir():
        if file.name not in _ADAPTER_FILES:
            file.unlink()
    # peft writes a set in whatever order its hashes have; equal adapters shall be equal files
    path = directory / _ADAPTER_FILES[0]
    config: dict[str, Any] = json.loads(path.read_text())
    config["target_modules"] = sorted(config["target_modules"])
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
