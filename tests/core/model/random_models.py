"""Models with random weights, saved the way Hugging Face saves them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from core.model.base import Rows
from core.model.causal_lm import CausalLM

SMALL: dict[str, object] = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}


def make_model(model_type: str = "llama", **changes: object) -> PreTrainedModel:
    """A random model; norms and biases are random too, which transformers would leave at one and zero."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **(SMALL | changes)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    return model.float().eval()


def save_model(directory: Path, model_type: str = "llama", **changes: object) -> PreTrainedModel:
    model = make_model(model_type, **changes)
    model.save_pretrained(directory)
    return model


def random_tokens(length: int, vocab_size: int, seed: int = 0) -> list[int]:
    return torch.randint(vocab_size, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def feed(model: CausalLM, session: int, tokens: Sequence[int], rows: int) -> torch.Tensor:
    """Append `tokens` to a session, `rows` at a time; the logits of all of them."""
    logits = []
    for start in range(0, len(tokens), rows):
        part = tokens[start : start + rows]
        logits.append(model.forward([Rows(session, part, len(part))]))
    return torch.cat(logits)


def fresh(model: CausalLM, session: int, tokens: Sequence[int], rows: int | None = None) -> torch.Tensor:
    """The logits of all `tokens`, fed to a new session."""
    model.open(session)
    return feed(model, session, tokens, rows or len(tokens))
