"""What more answers bring: drafts of one shape that learned from few or many answers of a real model.

    python -m tests.bench.answers_curve --answers DIR --work DIR --numbers 1000 3000 11262

The answers are those of a collect stage, for example of `taskspec draft make` or `taskspec retrain`, with its held-out
splits. Of the answers that are learned from, each number takes the first of one random order, so that fewer are part of
more. A draft is cut from the target, its head the ids that these answers use most, and trained for the same number of
steps; the weights that do best on the stop split are kept. Tokens per target pass are exact replays of the other
held-out answers, without a clock. Where a draft ships with the target it stands beside them.

One process does everything on one thread. A draft that is there is not trained again, and a run that was stopped goes
on at its last evaluation. `--train-only 3000` trains that one and writes no page, so that processes share the work.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from core.distill.alignment import AlignmentRecipe, TrainingStep, align
from core.distill.draft_making import evenly, make_from_layers
from core.model.causal_lm import load_draft_model
from core.model.config import ModelConfig
from core.model.draft_vocabulary import filled_up
from core.model_names import hub_id, locate
from core.replay.replay import NUM_SPECULATIVE_TOKENS, AcceptanceCounts, Terms, score_draft
from core.text.tokenizer import load_tokenizer
from core.text.vocabulary import same_id_map
from tests.bench.answers_page import SHIPPED, page, plot, points
from tests.bench.output import save
from train_jobs.work.artefacts import Collected

_EVALUATIONS = 10  # of a training run, each with a checkpoint


class Curve:
    """The drafts, and the answers that they learn from and are judged by."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self._chosen, self._collected = chosen, Collected(chosen.answers)
        self._name, self._target = chosen.target, Path(locate(chosen.target))
        self._train = self._collected.traces("train")
        self._order = random.Random(0).sample(range(len(self._train)), len(self._train))
        config = ModelConfig.load(self._target)
        self._layers = evenly(config.num_layers, chosen.layers)
        self._terms = Terms(NUM_SPECULATIVE_TOKENS, same_id_map(self._target, self._target), config.context)
        self.judging = [*self._collected.traces("promotion"), *self._collected.traces("test")]

    def draft(self, number: int) -> Path:
        """The draft that learned from so many answers, trained if it is not there."""
        if number > len(self._order):
            raise SystemExit(f"--numbers: {self._chosen.answers} has {len(self._order)} answers to learn from")
        place: Path = self._chosen.work / f"answers-{number}-steps-{self._chosen.steps}"
        if not place.exists():
            learned = self._order[:number]
            untrained, checkpoint = place.with_name(f"{place.name}.untrained"), place.with_name(f"{place.name}.pt")
            if not untrained.exists():
                make_from_layers(self._target, hub_id(self._name), self._layers, self._ids(learned), untrained)
            align(
                untrained,
                self._collected.dataset(learned),
                self._collected.traces("stop"),
                self._terms,
                self._recipe(),
                checkpoint=checkpoint,
                destination=place,
                on_step=lambda step: _show(number, step),
                target=self._target,
            )
            checkpoint.unlink(missing_ok=True)
        return place

    def counts(self, draft: Path) -> list[AcceptanceCounts]:
        """Of every judging answer."""
        model = load_draft_model(draft, draft, dtype=torch.bfloat16, target=self._target)
        return score_draft(model, self.judging, self._terms)

    def _recipe(self) -> AlignmentRecipe:
        steps = self._chosen.steps
        return AlignmentRecipe(
            rank=None,
            loss="lk",
            learning_rate=0.01,
            steps=steps,
            evaluate_every=max(1, steps // _EVALUATIONS),
            products="bfloat16",
        )

    def _ids(self, learned: Sequence[int]) -> list[int]:
        """Those that the answers use most, then the lowest, as in `taskspec draft make`."""
        counts = Counter(token for number in learned for token in self._train[number].output_ids)
        size, num_valid = min(self._chosen.vocabulary, self._terms.num_valid), self._terms.num_valid
        return filled_up(counts, size, num_valid, load_tokenizer(self._target).eos_ids)


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.answers_curve",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--answers", type=Path, required=True, help="the collect directory of a retraining")
    parser.add_argument("--work", type=Path, required=True, help="directory in which drafts are kept")
    parser.add_argument(
        "--numbers", type=int, nargs="+", default=[1000, 3000, 9000], help="answers that are learned from"
    )
    parser.add_argument("--steps", type=int, default=1400, help="of training")
    parser.add_argument("--layers", type=int, default=2, help="of the target, the first and the last among them")
    parser.add_argument("--vocabulary", type=int, default=4096, help="ids of the head")
    parser.add_argument("--target", default="smollm2:target")
    parser.add_argument("--shipped", default="smollm2:draft", help="draft that stands beside them; '' for none")
    parser.add_argument("--train-only", type=int, metavar="NUMBER", help="train this one, and write nothing")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/answers_curve"))
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    chosen = options().parse_args(argv)
    torch.set_num_threads(1)
    chosen.work.mkdir(parents=True, exist_ok=True)
    curve = Curve(chosen)
    if chosen.train_only is not None:
        curve.draft(chosen.train_only)
        return
    drafts = {SHIPPED: Path(locate(chosen.shipped))} if chosen.shipped else {}
    drafts |= {str(number): curve.draft(number) for number in sorted(chosen.numbers)}
    found = list(points(curve.judging, {name: curve.counts(draft) for name, draft in drafts.items()}))
    out = save(chosen, "answers_curve", page(found), {"points": [point._asdict() for point in found]})
    plot(found, out / "answers_curve.png")


def _show(number: int, step: TrainingStep) -> None:
    if step.acceptance is not None or step.step == 10:
        reached = "" if step.acceptance is None else f", acceptance {step.acceptance:.3f}"
        print(f"  {number} answers: {step.step} of {step.steps} steps, loss {step.loss:.3f}{reached}", flush=True)


if __name__ == "__main__":
    main()
