"""Fits a draft to one target on one set of records, until more of it no longer helps held-out answers.

Enters: the general draft, a distillation set, held-out records, a recipe. Leaves: an adapter (or, as a control, a
whole model) with the weights that did best, and how acceptance went. A run killed at any moment goes on from its last
evaluation and ends in the same bytes, on one machine with one thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from core.acceptance import Terms, hits, replay, total
from core.distillation import Batch, Batches, DistillationSet
from core.draft_learner import DraftLearner
from core.durable import replace
from core.record import Record

_WARM_UP = 0.05  # share of the steps
_LARGEST_GRADIENT = 1.0
_ADAM_SCALE = 0.3  # of Muon's learning rate


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a draft is fitted; `rank` None frees all its weights. `learning_rate` is Muon's, at its peak.

    `budget` is padded tokens per step; after `patience` evaluations without a new best one the run ends.
    """

    rank: int | None = 32
    learning_rate: float = 0.02
    steps: int = 1000
    budget: int = 2048
    evaluate_every: int = 50
    patience: int = 6
    seed: int = 0


class Progress(NamedTuple):
    """After a step: its loss in nats a token, and held-out acceptance where it was evaluated."""

    step: int
    steps: int
    loss: float
    acceptance: float | None


class Evaluation(NamedTuple):
    """Held-out acceptance_rate of the weights after so many steps; step 0 is the general draft."""

    step: int
    acceptance: float


class Alignment(NamedTuple):
    """What a run found: the evaluation whose weights were kept, and all of them."""

    best: Evaluation
    curve: tuple[Evaluation, ...]


OnStep = Callable[[Progress], object]


def align(
    draft: str | Path,
    data: DistillationSet,
    held_out: Sequence[Record],
    terms: Terms,
    recipe: Recipe,
    *,
    checkpoint: Path,
    destination: Path,
    on_step: OnStep,
    device: str | torch.device = "cpu",
) -> Alignment:
    """Train, and write the best weights to the directory `destination`.

    `checkpoint` is this run's own file: one made with other arguments must not lie there. `on_step` may raise to end
    the run early; called again, it goes on.
    """
    run = _Run(DraftLearner(draft, recipe.rank, recipe.seed, device), held_out, terms, recipe)
    if checkpoint.exists():
        run.load(checkpoint)
    else:
        run.evaluate()
    batches = Batches(data, recipe.budget, recipe.seed).stream(run.step)
    while not run.over:
        loss = run.learn(next(batches))
        due = run.step % recipe.evaluate_every == 0 or run.step == recipe.steps
        if due:
            run.evaluate()
            run.save(checkpoint)
        on_step(Progress(run.step, recipe.steps, loss, run.curve[-1].acceptance if due else None))
    run.learner.restore(run.best_weights)
    run.learner.save(destination)
    return Alignment(run.best, tuple(run.curve))


class _Run:
    """Everything that a checkpoint holds: weights, optimizer, the best weights and how acceptance went."""

    def __init__(self, learner: DraftLearner, held_out: Sequence[Record], terms: Terms, recipe: Recipe) -> None:
        self.learner = learner
        self.step = 0
        self.curve: list[Evaluation] = []
        self.best_weights = learner.state()
        self._held_out = held_out
        self._terms = terms
        self._recipe = recipe
        self._optimizers = _optimizers(learner)

    @property
    def best(self) -> Evaluation:
        """The first of the best: nothing is gained by having trained for longer."""
        return max(self.curve, key=lambda evaluation: (evaluation.acceptance, -evaluation.step))

    @property
    def over(self) -> bool:
        since_best = len(self.curve) - 1 - self.curve.index(self.best)
        return self.step >= self._recipe.steps or since_best >= self._recipe.patience

    def learn(self, batch: Batch) -> float:
        """One step; its loss."""
        loss = self.learner.loss(batch)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.learner.trained.values(), _LARGEST_GRADIENT)
        share = self._recipe.learning_rate * rate(self.step, self._recipe.steps)
        for optimizer, scale in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = share * scale
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        return float(loss.detach())

    def evaluate(self) -> None:
        learner, terms = self.learner, self._terms
        replays = (
            replay(hits(record, learner.forward, learner.context, terms), record, terms) for record in self._held_out
        )
        self.curve.append(Evaluation(self.step, total(replays).acceptance_rate))
        if self.best == self.curve[-1]:
            self.best_weights = learner.state()

    def save(self, file: Path) -> None:
        state = {
            "step": self.step,
            "curve": [tuple(evaluation) for evaluation in self.curve],
            "weights": self.learner.state(),
            "best_weights": self.best_weights,
            "optimizers": [optimizer.state_dict() for optimizer, _ in self._optimizers],
        }
        content = BytesIO()
        torch.save(state, content)
        replace(file, content.getvalue())

    def load(self, file: Path) -> None:
        state = torch.load(file, map_location="cpu", weights_only=True)
        self.step = state["step"]
        self.curve = [Evaluation(*evaluation) for evaluation in state["curve"]]
        self.learner.restore(state["weights"])
        self.best_weights = state["best_weights"]
        for (optimizer, _), saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)


def _optimizers(learner: DraftLearner) -> list[tuple[torch.optim.Optimizer, float]]:
    """Muon for matrices, AdamW for embeddings and norms (all that LoRA trains is matrices); with rates to scale by."""
    embeddings = learner.embeddings()
    matrices: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, parameter in learner.trained.items():
        (rest if parameter.ndim < 2 or name in embeddings else matrices).append(parameter)
    found: list[tuple[torch.optim.Optimizer, float]] = [(torch.optim.Muon(matrices, weight_decay=0.0), 1.0)]
    if rest:
        found.append((torch.optim.AdamW(rest, betas=(0.9, 0.98), weight_decay=0.0), _ADAM_SCALE))
    return found


def rate(step: int, steps: int) -> float:
    """Share of the full learning rate: a short rise, then half a cosine down to nothing."""
    rise = max(1, round(_WARM_UP * steps))
    if step < rise:
        return (step + 1) / rise
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise)))
