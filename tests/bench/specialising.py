"""What decides whether task drafts pay: the width of the draft, the answers per task, and the distance of the tasks.

    python -m tests.bench.specialising --work build/retrain-family [--widths 32 64 128] [--answers 100 1000]

Drafts of every width are fitted to the answers that a retraining has collected, so many of every task (the base). From
there one adapter per task is trained, and the base itself is trained on for as many steps as all adapters together. All
three are replayed on the test prompts of the retraining. The plot shows the gain of the adapters over the base trained
on, by width and answers, and for each task by the distance of its centroid to the nearest other one.

Takes about 50 minutes of one core at the defaults, two cases at a time. What is complete in --cache is not repeated.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from core.confidence_intervals import Difference, compare
from core.distill.alignment import AlignmentRecipe, align
from core.distill.replay import AcceptanceCounts, Terms, score_draft, total
from core.family import DRAFT_DIR
from core.model.causal_lm import load_draft_model
from tests.bench.output import save
from tests.bench.specialising_plot import plot
from train_jobs.config import load_config
from train_jobs.models import replay_terms
from train_jobs.workspace import Workspace

CONFIG = Path("train_jobs/configs/family.yaml")
_HEAD = 32  # weights per attention head, as in the shipped draft
BASE, CONTINUED, TASK = "base", "continued", "task"


class Case(NamedTuple):
    """A width of the draft, and a number of answers per task."""

    width: int
    answers: int


class Outcome(NamedTuple):
    """Test acceptance of the three kinds, and the gain of the adapters over the base trained on: of all, by task."""

    case: Case
    acceptance: dict[str, float]
    tokens_per_pass: dict[str, float]
    gain: Difference
    by_task: dict[str, Difference]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.specialising",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, default=CONFIG, help="of the retraining")
    parser.add_argument("--work", type=Path, required=True, help="its work directory")
    parser.add_argument("--widths", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--answers", type=int, nargs="+", default=[100, 1000], help="per task")
    parser.add_argument("--base-steps", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=300, help="of an adapter")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path, default=Path(".cache/bench/specialising"))
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/specialising"))
    chosen = parser.parse_args(argv)
    cases = [Case(width, answers) for width in chosen.widths for answers in chosen.answers]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        outcomes = list(pool.map(measure, [chosen] * len(cases), cases))
    distances = _distances(_workspace(chosen))
    found = {"outcomes": [_plain(outcome) for outcome in outcomes], "distances": distances}
    out = save(chosen, "specialising", _page(outcomes, distances), found)
    plot(outcomes, distances, out / "specialising.png")


def measure(chosen: argparse.Namespace, case: Case) -> Outcome:
    """Train and replay the drafts of one case, in a process of its own."""
    torch.set_num_threads(1)
    work, where = _workspace(chosen), chosen.cache / f"width-{case.width}-answers-{case.answers}"
    where.mkdir(parents=True, exist_ok=True)
    trainer = _Trainer(work, where, chosen.seed)
    tasks = work.tasks()
    learnt = [tasks.numbers("train", task)[: case.answers] for task in range(len(tasks.names))]
    everything = sorted(number for numbers in learnt for number in numbers)
    base = trainer.train(
        BASE, _narrow(case.width, where / "untrained", chosen.seed), everything, None, chosen.base_steps
    )
    together = chosen.steps * len(learnt)
    continued = trainer.train(CONTINUED, base, everything, None, together)
    counts: dict[str, dict[int, AcceptanceCounts]] = {
        BASE: trainer.scores(base, base, None),
        CONTINUED: trainer.scores(continued, base, None),
        TASK: {},
    }
    for task, numbers in enumerate(learnt):
        adapter = trainer.train(f"{TASK}-{task}", base, numbers, task, chosen.steps)
        counts[TASK] |= trainer.scores(adapter, base, task)
    return _outcome(work, case, counts)


class _Trainer:
    """Trains on the traces of a retraining, and replays on its test split."""

    def __init__(self, work: Workspace, where: Path, seed: int) -> None:
        self._work = work
        self._where = where
        self._seed = seed
        self._terms: Terms = replay_terms(work.config)
        self._test = work.traces("test")
        self._stop = work.traces("stop")

    def train(self, name: str, start: Path, numbers: Sequence[int], task: int | None, steps: int) -> Path:
        destination, tasks = self._where / name, self._work.tasks()
        if destination.exists():
            return destination
        rank = None if task is None else 32
        recipe = AlignmentRecipe(rank=rank, loss="lk", steps=steps, evaluate_every=max(1, steps // 4), seed=self._seed)
        align(
            start,
            self._work.collected().dataset(numbers),
            [self._stop[number] for number in tasks.numbers("stop", task)],
            self._terms,
            recipe,
            checkpoint=self._where / f"{name}.checkpoint",
            destination=destination,
            on_step=lambda _: None,
        )
        (self._where / f"{name}.checkpoint").unlink(missing_ok=True)
        print(f"{self._where.name}: {name} trained", flush=True)
        return destination

    def scores(self, draft: Path, base: Path, task: int | None) -> dict[int, AcceptanceCounts]:
        """By number of the test trace."""
        model = load_draft_model(draft, base, dtype=torch.float32)
        numbers = self._work.tasks().numbers("test", task)
        counts = score_draft(model, [self._test[number] for number in numbers], self._terms)
        return dict(zip(numbers, counts, strict=True))


def _narrow(width: int, directory: Path, seed: int) -> Path:
    """An untrained draft of this width, else like the shipped one."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    if not directory.exists():
        config = AutoConfig.from_pretrained(DRAFT_DIR)
        config.hidden_size, config.intermediate_size = width, round(2.75 * width)
        config.num_attention_heads, config.head_dim = max(1, width // _HEAD), _HEAD
        config.num_key_value_heads = 1
        torch.manual_seed(seed)
        AutoModelForCausalLM.from_config(config).save_pretrained(directory)
        AutoTokenizer.from_pretrained(DRAFT_DIR).save_pretrained(directory)
    return directory


def _outcome(work: Workspace, case: Case, counts: dict[str, dict[int, AcceptanceCounts]]) -> Outcome:
    tasks, prompts = work.tasks(), [trace.prompt_ids for trace in work.traces("test")]

    def gain(task: int | None) -> Difference:
        numbers = tasks.numbers("test", task)
        ours, theirs = ([counts[kind][number] for number in numbers] for kind in (TASK, CONTINUED))
        return compare(ours, theirs, [prompts[number] for number in numbers])

    whole = {kind: total(found.values()) for kind, found in counts.items()}
    return Outcome(
        case,
        {kind: found.acceptance_rate for kind, found in whole.items()},
        {kind: found.tokens_per_pass for kind, found in whole.items()},
        gain(None),
        {name: gain(task) for task, name in enumerate(tasks.names)},
    )


def _distances(work: Workspace) -> dict[str, float]:
    """By task, the cosine distance of its centroid to the nearest other one."""
    tasks, vectors = work.tasks(), work.embeddings()["train"]
    centroids = np.stack([vectors[tasks.numbers("train", task)].mean(0) for task in range(len(tasks.names))])
    centroids /= np.linalg.norm(centroids, axis=1, keepdims=True)
    apart = 1.0 - centroids @ centroids.T + 2.0 * np.eye(len(centroids))
    return dict(zip(tasks.names, apart.min(1).tolist(), strict=True))


def _workspace(chosen: argparse.Namespace) -> Workspace:
    return Workspace(load_config(chosen.config).model_copy(update={"work": chosen.work}).anchored())


def _page(outcomes: Sequence[Outcome], distances: dict[str, float]) -> str:
    return "\n".join([*_by_case(outcomes), "", *_by_task(outcomes, distances), ""])


def _by_case(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield "| width | answers per task | base | trained on | adapters | gain over trained on | tokens per pass |"
    yield "|---|---|---|---|---|---|---|"
    for case, acceptance, tokens, gain, _ in outcomes:
        rates = " | ".join(f"{acceptance[kind]:.3f}" for kind in (BASE, CONTINUED, TASK))
        passes = f"{tokens[CONTINUED]:.2f} → {tokens[TASK]:.2f}"
        yield f"| {case.width} | {case.answers} | {rates} | {_interval(gain)} | {passes} |"


def _by_task(outcomes: Sequence[Outcome], distances: dict[str, float]) -> Iterator[str]:
    cases = [outcome.case for outcome in outcomes]
    yield "| task | distance | " + " | ".join(f"width {case.width}, {case.answers} answers" for case in cases) + " |"
    yield "|---" * (2 + len(cases)) + "|"
    for task, distance in distances.items():
        gains = " | ".join(_interval(outcome.by_task[task]) for outcome in outcomes)
        yield f"| {task} | {distance:.2f} | {gains} |"


def _interval(gain: Difference) -> str:
    return f"{gain.difference:+.3f} ({gain.low:+.3f} to {gain.high:+.3f})"


def _plain(outcome: Outcome) -> dict[str, object]:
    return outcome._asdict() | {"case": outcome.case._asdict()}


if __name__ == "__main__":
    main()
