"""Writes a trained model as a Hugging Face directory: config, generation config, bf16 safetensors, tokenizer.

Every file is written under a temporary name and renamed, so that a reader never sees half of one.
"""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path

import torch
from torch import nn
from transformers import GenerationConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from tests.family.tokenizer import save_tokenizer


def write_model(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, directory: Path) -> None:
    """Write `model` in bf16 and its tokenizer to `directory`; the model itself is unchanged."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".writing-") as aside:
        shrunk = copy.deepcopy(model)
        nn.Module.to(shrunk, torch.bfloat16)
        shrunk.config.dtype = torch.bfloat16
        shrunk.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
            bos_token_id=model.config.bos_token_id,
            eos_token_id=model.config.eos_token_id,
            pad_token_id=model.config.pad_token_id,
        )
        shrunk.save_pretrained(aside)
        save_tokenizer(tokenizer, Path(aside))
        for file in Path(aside).iterdir():
            file.chmod(0o644)
            file.replace(directory / file.name)
