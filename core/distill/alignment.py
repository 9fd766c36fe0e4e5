"""The training loop of a draft: optimizers, learning rate, the choice of the best weights, checkpoints.

A run that is killed resumes from its last evaluation. On one machine and one thread it ends in the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import nn

from core.atomic_files import replace
from core.distill.dataset import DistillationBatch, DistillationBatches, DistillationSet
from core.distill.learner import DraftLearner
from core.distill.muon import muon
from core.model.base import drawable_ids
from core.replay.replay import Terms, score, total
from core.traces.record import Record

_WARM_UP = 0.05  # share of the steps
_LARGEST_GRADIENT = 1.0
_ADAM_SCALE = 0.3  # of Muon's learning rate


@dataclass(frozen=True, slots=True)
class AlignmentRecipe:
    """The hyperparameters of a run: LoRA of `rank`, or a full fine-tune if that is None.

    `loss` is one of `core.distill.losses.LOSSES`. `learning_rate` is Muon's, at its peak. `budget` is padded tokens per
    step. `products` is the dtype of matrix products. Of all evaluations, one every `evaluate_every` steps, the best
    one's weights are kept. No run ends early: at the peak of the learning rate a good draft gets worse at first.
    """

    rank: int | None = 32
    loss: str = "lk"
    learning_rate: float = 0.02
    steps: int = 1000
    budget: int = 2048
    evaluate_every: int = 50
    seed: int = 0
    products: Literal["float32", "bfloat16"] = "float32"


class TrainingStep(NamedTuple):
    """A finished step: its loss per token, and held-out acceptance if it was evaluated."""

    step: int
    steps: int
    loss: float
    acceptance: float | None


class Evaluation(NamedTuple):
    """Held-out acceptance_rate after `step` steps; step 0 is the draft that the run began with."""

    step: int
    acceptance: float


class Alignment(NamedTuple):
    """The result of a run: the evaluation whose weights were kept, and all evaluations."""

    best: Evaluation
    curve: tuple[Evaluation, ...]


OnStep = Callable[[TrainingStep], object]


def align(
    draft: str | Path,
    data: DistillationSet,
    held_out: Sequence[Record],
    terms: Terms,
    recipe: AlignmentRecipe,
    *,
    checkpoint: Path,
    destination: Path,
    on_step: OnStep,
    device: str | torch.device = "cpu",
    adapter: Path | None = None,
    target: str | Path | None = None,
) -> Alignment:
    """Train `draft`, and write the best weights to the directory `destination`.

    An adapter begins with the weights of an earlier `adapter`, if there is one of the same draft and rank. A draft made
    from its `target` reads the embedding of that directory or hub id.
    `checkpoint` belongs to this run: a file made with other arguments must not be there. `on_step` may raise to
    interrupt the run; the next call resumes it.
    """
    products = getattr(torch, recipe.products)
    learner = DraftLearner(draft, recipe.rank, recipe.seed, device, adapter=adapter, target=target, products=products)
    run = _AlignmentRun(learner, held_out, terms, recipe)
    if checkpoint.exists():
        run.load(checkpoint)
    else:
        run.evaluate()
    batches = DistillationBatches(data, recipe.budget, recipe.seed).stream(run.step)
    while not run.over:
        loss = run.learn(next(batches))
        evaluation_due = run.step % recipe.evaluate_every == 0 or run.step == recipe.steps
        if evaluation_due:
            run.evaluate()
            run.save(checkpoint)
        on_step(TrainingStep(run.step, recipe.steps, loss, run.curve[-1].acceptance if evaluation_due else None))
    run.learner.restore(run.best_weights)
    run.learner.save(destination)
    return Alignment(run.best, tuple(run.curve))


class _AlignmentRun:
    """The state that a checkpoint holds: weights, optimizers, the best weights and the learning curve."""

    def __init__(
        self, learner: DraftLearner, held_out: Sequence[Record], terms: Terms, recipe: AlignmentRecipe
    ) -> None:
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
        """The first of equally good evaluations: longer training gained nothing."""
        return max(self.curve, key=lambda evaluation: (evaluation.acceptance, -evaluation.step))

    @property
    def over(self) -> bool:
        return self.step >= self._recipe.steps

    def learn(self, batch: DistillationBatch) -> float:
        """Do one step; return its loss."""
        loss = self.learner.loss(batch, self._recipe.loss)
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
        ids = drawable_ids(learner.head_ids, terms.num_valid)
        counts = total(score(learner.forward, learner.context, ids, self._held_out, terms))
        self.curve.append(Evaluation(self.step, counts.acceptance_rate))
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
    """Muon for matrices, AdamW for embeddings and norms (LoRA trains only matrices), with their shares of the rate."""
    embeddings = learner.embeddings()
    matrices: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, parameter in learner.trained.items():
        (rest if parameter.ndim < 2 or name in embeddings else matrices).append(parameter)
    optimizers = [(muon(matrices), 1.0)]
    if rest:
        optimizers.append((torch.optim.AdamW(rest, betas=(0.9, 0.98), weight_decay=0.0), _ADAM_SCALE))
    return optimizers


def rate(step: int, steps: int) -> float:
    """Share of the peak learning rate: a short linear warm-up, then half a cosine down to 0."""
    rise = max(1, round(_WARM_UP * steps))
    if step < rise:
        return (step + 1) / rise
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise)))
