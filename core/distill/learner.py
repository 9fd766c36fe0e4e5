"""The draft during training: LoRA or full fine-tune, and the files that it is saved to in bf16.

The network is transformers' own, in fp32, with peft's LoRA. Adapters and whole models are saved as ordinary PEFT and
Hugging Face directories. A draft made from its target (`core.distill.draft_making`) learns as it is stored: its head
has only the rows of its vocabulary, and the embedding, which is the target's, is neither trained nor saved.
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

from core.atomic_files import ASIDE, grant, sync
from core.distill.dataset import DistillationBatch
from core.distill.losses import LOSSES
from core.errors import ConfigError
from core.model.draft_vocabulary import DraftVocabulary
from core.model.loader import EMBEDDING, PROJECTION, public_name, token_embedding
from core.model.tensor_views import TensorCheckpoint, as_tensor

if TYPE_CHECKING:
    from peft import PeftModel

_ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")  # peft's model card names paths and versions


class DraftLearner:
    """A draft in fp32 on `device`, with LoRA of `rank` on every linear layer and the lm_head.

    If `rank` is None, all weights are trained instead. `seed` initialises LoRA's A. B starts at 0, so a learner begins
    as the draft itself, or, given an earlier `adapter` of this rank, as the draft with that adapter. A draft without an
    embedding reads that of its `target`, a directory or hub id. `products` is the dtype that matrix products of the
    loss compute in.
    """

    def __init__(
        self,
        draft: str | Path,
        rank: int | None,
        seed: int,
        device: str | torch.device = "cpu",
        *,
        adapter: Path | None = None,
        target: str | Path | None = None,
        products: torch.dtype = torch.float32,
    ) -> None:
        self._draft = draft
        self._products = products
        self._device = torch.device(device)
        self._vocabulary = DraftVocabulary.of_stored_head(Path(draft)) if Path(draft).is_dir() else None
        self._network: Any = draft_network(draft, self._vocabulary, target)
        nn.Module.to(self._network, self._device)
        self._tuned = None if rank is None else _with_lora(self._network, rank, seed)
        if self._tuned is not None and adapter is not None:
            _load_adapter(self._tuned, adapter)
        if self._tuned is not None:
            self._tuned.peft_config["default"].base_model_name_or_path = public_name(str(draft))
        self.trained: dict[str, nn.Parameter] = {
            name: parameter for name, parameter in self._network.named_parameters() if parameter.requires_grad
        }

    @property
    def context(self) -> int:
        return int(self._network.config.max_position_embeddings)

    @property
    def head_ids(self) -> torch.Tensor | None:
        """The ids that the columns of the logits are of, on their device; None stands for all."""
        return None if self._vocabulary is None else as_tensor(self._vocabulary.ids).to(self._device)

    def embeddings(self) -> set[str]:
        """Names of the trained weights that have a row per token."""
        tables = (self._network.get_input_embeddings(), self._network.get_output_embeddings())
        weights = {id(module.weight) for module in tables}
        return {name for name, parameter in self.trained.items() if id(parameter) in weights}

    def loss(self, batch: DistillationBatch, loss: str) -> torch.Tensor:
        """The loss of a batch, a mean over its tokens, one of `core.distill.losses.LOSSES`.

        Sums are over the target's most likely tokens, those among them that the draft has. The draft's softmax is over
        all that it has, so probability that it gives to others still counts as lost.
        """
        with torch.autocast(self._device.type, self._products, enabled=self._products != torch.float32):
            hidden = self._network.model(input_ids=batch.tokens.to(self._device), use_cache=False).last_hidden_state
            logits = self._network.lm_head(hidden[batch.predicts_output.to(self._device)])
        ids, target = batch.ids.to(self._device), batch.logprobs.to(self._device)
        if self._vocabulary is not None:
            columns = as_tensor(self._vocabulary.columns).to(self._device)[ids]
            ids, target = columns.clamp(min=0), target.masked_fill(columns < 0, -torch.inf)
        draft = logits.float().log_softmax(-1).gather(-1, ids)
        return LOSSES[loss](target, draft)

    @torch.no_grad()
    def forward(self, tokens: Sequence[int], num_logits: int) -> torch.Tensor:
        """fp32 logits [num_logits, columns] after each of the last tokens; `head_ids` has the id of each column."""
        hidden = self._network.model(input_ids=torch.tensor([tokens], device=self._device), use_cache=False)
        logits: torch.Tensor = self._network.lm_head(hidden.last_hidden_state[0, -num_logits:])
        return logits

    def state(self) -> dict[str, torch.Tensor]:
        """A copy of the trained weights."""
        return {name: parameter.detach().clone() for name, parameter in self.trained.items()}

    @torch.no_grad()
    def restore(self, state: dict[str, torch.Tensor]) -> None:
        for name, parameter in self.trained.items():
            parameter.copy_(state[name])

    def save(self, directory: Path) -> None:
        """Write a PEFT adapter directory, or the whole model with its tokenizer, in bf16; replaces what was there."""
        directory.parent.mkdir(parents=True, exist_ok=True)
        aside = directory.with_name(ASIDE + directory.name)
        shutil.rmtree(aside, ignore_errors=True)  # left by a killed run
        aside.mkdir()
        if self._tuned is None:
            _save_model(self._network, self._draft, self._vocabulary, aside)
        else:
            _save_adapter(self._tuned, aside)
        grant(aside)
        for file in aside.iterdir():
            sync(file)
        shutil.rmtree(directory, ignore_errors=True)
        aside.replace(directory)


def draft_network(draft: str | Path, vocabulary: DraftVocabulary | None, target: str | Path | None) -> Any:
    """The network of a draft in transformers, with the head that its files have.

    In evaluation mode: dropout would draw random numbers, which a resumed run does not repeat.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    if vocabulary is None:
        return AutoModelForCausalLM.from_pretrained(draft, dtype=torch.float32)
    classes: Any = AutoModelForCausalLM  # whose `from_config` has no types
    config: Any = AutoConfig.from_pretrained(draft)
    network: Any = classes.from_config(config, dtype=torch.float32).eval()
    network.lm_head = nn.Linear(config.hidden_size, len(vocabulary.ids), bias=False)
    checkpoint = TensorCheckpoint(Path(draft))
    stored = {name: checkpoint[name].float() for name in checkpoint.names() if name != PROJECTION}
    network.load_state_dict(stored | {EMBEDDING: as_tensor(token_embedding(Path(draft), target)).float()})
    network.get_input_embeddings().weight.requires_grad_(False)
    return network


def _with_lora(network: Any, rank: int, seed: int) -> PeftModel:
    from peft import LoraConfig, get_peft_model

    linear = {name.rpartition(".")[2] for name, module in network.named_modules() if isinstance(module, nn.Linear)}
    config = LoraConfig(task_type="CAUSAL_LM", r=rank, lora_alpha=rank, target_modules=sorted(linear))
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # LoRA on a tied lm_head leaves the embedding alone, as intended
        warnings.filterwarnings("ignore", message=".*tie.*")
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*", category=FutureWarning)
        torch.manual_seed(seed)
        tuned: PeftModel = get_peft_model(network, config)
    return tuned


def _load_adapter(tuned: PeftModel, adapter: Path) -> None:
    """Continue from the weights of an earlier adapter. Raises `ConfigError` if it is one of other layers or ranks."""
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    earlier = load_file(adapter / _ADAPTER_FILES[1])
    try:
        result: Any = set_peft_model_state_dict(tuned, {name: tensor.float() for name, tensor in earlier.items()})
    except RuntimeError as error:  # of torch, for shapes
        raise ConfigError(f"{adapter}: not an adapter of this draft and rank ({error})") from error
    if result.unexpected_keys:
        raise ConfigError(f"{adapter}: not an adapter of this draft: it changes {result.unexpected_keys[0]}")


def _in_bf16(network: nn.Module) -> dict[str, torch.Tensor]:
    return {name: weight.to(torch.bfloat16) for name, weight in network.state_dict().items()}


def _save_model(network: Any, draft: str | Path, vocabulary: DraftVocabulary | None, directory: Path) -> None:
    from transformers import AutoTokenizer

    if vocabulary is None:
        network.save_pretrained(directory, state_dict=_in_bf16(network))
    else:
        _save_made_draft(network, Path(draft), vocabulary, directory)
    AutoTokenizer.from_pretrained(draft).save_pretrained(directory)
    for file in directory.iterdir():
        if file.suffix not in (".json", ".safetensors"):  # the chat template, which a draft does not need
            file.unlink()


def _save_made_draft(network: Any, draft: Path, vocabulary: DraftVocabulary, directory: Path) -> None:
    """Save what the draft was loaded from, trained; transformers would not save a head of fewer rows."""
    from safetensors.torch import save_file

    checkpoint, trained = TensorCheckpoint(draft), _in_bf16(network)
    tensors = {name: trained.get(name, checkpoint[name]) for name in checkpoint.names()}
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})
    for name in ("config.json", "generation_config.json"):
        shutil.copyfile(draft / name, directory / name)
    vocabulary.save(directory)


def _save_adapter(tuned: PeftModel, directory: Path) -> None:
    tuned.save_pretrained(str(directory), save_embedding_layers=False, state_dict=_in_bf16(tuned))
    for file in directory.iterdir():
        if file.name not in _ADAPTER_FILES:
            file.unlink()
    # peft writes a set, in hash order; equal adapters must be equal files
    path = directory / _ADAPTER_FILES[0]
    config: dict[str, Any] = json.loads(path.read_text())
    config["target_modules"] = sorted(config["target_modules"])
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
