"""The training loop of the family's models, from scratch: fixed seeds and step counts, one thread, so that bits repeat.

An interrupted run resumes from its checkpoint with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from tests.family.lessons import IGNORED, Lesson, LessonBatch, batches
from tests.family.tokenizer import BOS, CONTEXT, EOS, IDS, PAD, VOCAB_SIZE

OnStep = Callable[[int, float, LlamaForCausalLM], bool]


class Stopped(Exception):
    """The run stopped between two steps and can resume from its checkpoint."""


@dataclass(frozen=True, slots=True)
class ModelRecipe:
    """Geometry and hyperparameters of a model; `budget` is padded tokens per step."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    steps: int
    budget: int
    muon_lr: float
    adam_lr: float
    seed: int
    tail: int = 0


TARGET = ModelRecipe(
    "target",
    hidden=256,
    layers=6,
    heads=4,
    kv_heads=2,
    ffn=704,
    steps=7200,
    budget=2048,
    muon_lr=0.02,
    adam_lr=4e-3,
    seed=1,
    tail=2000,
)
DRAFT = ModelRecipe(
    "draft",
    hidden=64,
    layers=1,
    heads=2,
    kv_heads=1,
    ffn=176,
    steps=3000,
    budget=2048,
    muon_lr=0.02,
    adam_lr=6e-3,
    seed=2,
)


def new_model(recipe: ModelRecipe) -> LlamaForCausalLM:
    """An untrained fp32 model of the recipe's geometry, tied embeddings, weights from the recipe's seed."""
    torch.manual_seed(recipe.seed)
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=recipe.hidden,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.kv_heads,
        head_dim=recipe.hidden // recipe.heads,
        intermediate_size=recipe.ffn,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        pad_token_id=IDS[PAD],
        bos_token_id=IDS[BOS],
        eos_token_id=IDS[EOS],
    )
    return LlamaForCausalLM(config)


def rate(step: int, steps: int, tail: int) -> float:
    """Share of the full learning rate: warm-up, plateau, linear decay, half as steep in the last `tail` steps."""
    rise, aim = max(1, min(100, steps // 10)), steps - tail // 2
    return min(1.0, (step + 1) / rise, max(2 * (aim - step), steps - step) / aim)


def response_loss(model: LlamaForCausalLM, batch: LessonBatch) -> torch.Tensor:
    """Mean cross-entropy over the labelled positions, the only ones that the lm_head computes."""
    wanted = batch.labels != IGNORED
    hidden = model.model(input_ids=batch.tokens, use_cache=False).last_hidden_state[wanted]
    return cross_entropy(model.lm_head(hidden).float(), batch.labels[wanted])


class _Optimizers:
    """Muon for the matrices inside the layers, AdamW for embeddings and norms."""

    def __init__(self, model: LlamaForCausalLM, recipe: ModelRecipe) -> None:
        matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
        rest = [model.model.embed_tokens.weight, *(p for p in model.parameters() if p.ndim == 1)]
        self.all: list[torch.optim.Optimizer] = [
            torch.optim.Muon(matrices, lr=recipe.muon_lr, weight_decay=0.01),
            torch.optim.AdamW(rest, lr=recipe.adam_lr, betas=(0.9, 0.98), weight_decay=0.0),
        ]
        self._full = (recipe.muon_lr, recipe.adam_lr)

    def step(self, share: float) -> None:
        for optimizer, full in zip(self.all, self._full, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = full * share
            optimizer.step()
            optimizer.zero_grad()


def _save(path: Path, step: int, model: nn.Module, optimizers: _Optimizers) -> None:
    aside = path.with_suffix(".part")
    torch.save(
        {"step": step, "model": model.state_dict(), "optimizers": [o.state_dict() for o in optimizers.all]}, aside
    )
    aside.replace(path)


def _load(path: Path, model: nn.Module, optimizers: _Optimizers) -> int:
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    for optimizer, saved in zip(optimizers.all, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    return int(state["step"])


def _stream(recipe: ModelRecipe, lessons: Sequence[Lesson], done: int) -> Iterator[LessonBatch]:
    return islice(batches(lessons, recipe.budget, recipe.seed), done, recipe.steps)


def train(
    recipe: ModelRecipe, lessons: Sequence[Lesson], work: Path, on_step: OnStep, save_every: int = 200
) -> LlamaForCausalLM:
    """Train up to `recipe.steps`, from the checkpoint `work/<name>.pt` if there is one.

    `on_step(steps done, loss in nats, model)` is called after every step; if it returns True, a checkpoint is saved
    and `Stopped` is raised.
    """
    torch.set_num_threads(1)
    model, checkpoint = new_model(recipe), work / f"{recipe.name}.pt"
    optimizers = _Optimizers(model, recipe)
    done = _load(checkpoint, model, optimizers) if checkpoint.exists() else 0
    for batch in _stream(recipe, lessons, done):
        with torch.autocast("cpu", torch.bfloat16):
            loss = response_loss(model, batch)
        torch.autograd.backward(loss)
        optimizers.step(rate(done, recipe.steps, recipe.tail))
        done += 1
        stop = on_step(done, loss.item(), model)
        if stop or done % save_every == 0 or done == recipe.steps:
            _save(checkpoint, done, model, optimizers)
        if stop:
            raise Stopped(recipe.name)
    return model
