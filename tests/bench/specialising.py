"""What decides whether task drafts pay: the width of the draft, the answers per task, and the distance of the tasks.

    python -m tests.bench.specialising [--widths 32 64 128] [--answers 100 1000]
    python -m tests.bench.specialising --config train_jobs/configs/smollm2.yaml --widths 256 576 \\
        --answers 100 300 1000 --base-steps 600 --steps 60 --products bfloat16 \\
        --out tests/bench/results/real_specialising

Drafts of every width are fitted to the answers that a retraining has collected, so many of every task (the base). From
there one adapter per task is trained. Its rivals learn from all tasks in as many steps as all adapters together: the
base itself (continued), and one adapter (mixed). All are replayed on the test prompts of the retraining.

A task is a label of the prompts: of the family's generators, or of the files. A draft is begun at random, or made from
the target where that of the retraining was: from its layers at the target's own width, else as a narrow copy, with the
same head. The plot shows the gain of the adapters over the base trained on, by width and answers, and for each task by
the distance of its centroid to the nearest other one, if the retraining has embedded the prompts.

As many cases run at a time as there are cores. A case is shown and written when it is measured. What --cache has of the
same options is not repeated: a killed run goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from core.confidence_intervals import Difference, compare
from core.distill.alignment import AlignmentRecipe, TrainingStep, align
from core.distill.draft_making import evenly, make_from_layers, make_narrow
from core.model.causal_lm import load_draft_model
from core.model.config import ModelConfig
from core.model.draft_vocabulary import DraftVocabulary
from core.replay.replay import AcceptanceCounts, score_draft
from core.traces.store import Trace
from tests.bench import machine
from tests.bench.intervals import SIGNED, over_prompts, told
from tests.bench.output import header, save
from tests.bench.paired import Ratio
from tests.bench.specialising_plot import plot
from train_jobs.config import load_config
from train_jobs.drafts.candidates import BASE, CONTINUED, MIXED, TASK
from train_jobs.stages import open_workspace
from train_jobs.work.artefacts import read_json, write_json
from train_jobs.work.cached_step import CachedStep, fingerprint
from train_jobs.work.models import model_directory, replay_terms
from train_jobs.work.workspace import Workspace

CONFIG = Path("tests/family/retrain.yaml")
RANK = 32  # of adapters
_HEAD = 32  # weights per attention head of a draft begun at random, as in the shipped one
_EVALUATIONS = 4  # of a training run
_OUTCOME = "outcome.json"

Counts = dict[int, AcceptanceCounts]  # by number of the test trace


class Case(NamedTuple):
    """A width of the draft, and a number of answers per task."""

    width: int
    answers: int

    def __str__(self) -> str:
        return f"width {self.width}, {self.answers} answers"


class Figures(NamedTuple):
    """Of one kind of draft on the test prompts; the gains are over the base trained on."""

    acceptance: Ratio
    tokens_per_pass: Ratio
    gain: Difference
    more_tokens: Difference


class Outcome(NamedTuple):
    """The figures by kind of draft, the gain of the adapters by task, and the tasks with fewer answers than wanted."""

    case: Case
    kinds: dict[str, Figures]
    by_task: dict[str, Difference]
    fewer: dict[str, int]


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.specialising",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, default=CONFIG, help="of the retraining, whose work directory is read")
    parser.add_argument("--work", type=Path, help="another work directory")
    parser.add_argument("--widths", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--answers", type=int, nargs="+", default=[100, 1000], help="per task")
    parser.add_argument("--base-steps", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=300, help="of an adapter")
    parser.add_argument("--learning-rate", type=float, default=AlignmentRecipe().learning_rate)
    parser.add_argument("--budget", type=int, default=AlignmentRecipe().budget, help="padded tokens per step")
    parser.add_argument("--products", choices=("float32", "bfloat16"), default="float32", help="of matrices")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path, default=Path(".cache/bench/specialising"))
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/specialising"))
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    chosen = options().parse_args(argv)
    cases = [Case(width, answers) for width in chosen.widths for answers in chosen.answers]
    distances, outcomes = _distances(workspace(chosen)), list[Outcome]()
    cores, began = len(os.sched_getaffinity(0)), time.monotonic()
    at_once = min(len(cases), cores)
    with ProcessPoolExecutor(at_once, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(measure, chosen, case, cores // at_once) for case in cases]
        for done in as_completed(running):
            outcomes = sorted([*outcomes, done.result()], key=lambda outcome: cases.index(outcome.case))
            write(chosen, outcomes, distances)
            left = (time.monotonic() - began) / len(outcomes) * (len(cases) - len(outcomes))
            print(f"{len(outcomes)} of {len(cases)} cases measured, about {left / 60:.0f} min left\n", flush=True)


def write(chosen: argparse.Namespace, outcomes: Sequence[Outcome], distances: Mapping[str, float]) -> None:
    """All that is measured so far."""
    found = {"outcomes": [as_json(outcome) for outcome in outcomes], "distances": distances}
    out = save(chosen, "specialising", page(outcomes, distances), found, config=chosen.config.stem)
    plot(outcomes, distances, out / "specialising.png")


def measure(chosen: argparse.Namespace, case: Case, threads: int) -> Outcome:
    """Train and replay the drafts of one case, in a process of its own."""
    torch.set_num_threads(threads)
    work = workspace(chosen)
    models = [fingerprint(model_directory(name)) for name in (work.config.target.model, work.config.draft)]
    asked = [chosen.base_steps, chosen.steps, chosen.learning_rate, chosen.budget, chosen.products, chosen.seed]
    place = chosen.cache / f"{chosen.config.stem}-width-{case.width}-answers-{case.answers}"
    where = CachedStep(place, asked, models, fingerprint(work.collected().directory)).start()
    if not (where / _OUTCOME).exists():
        write_json(where / _OUTCOME, _measured(chosen, case, work, where))
    return read_json(where / _OUTCOME, Outcome)


def _measured(chosen: argparse.Namespace, case: Case, work: Workspace, where: Path) -> Outcome:
    answers = by_task(work.traces("train"))
    learnt = {task: numbers[: case.answers] for task, numbers in answers.items()}
    everything, together = (
        sorted(number for numbers in learnt.values() for number in numbers),
        chosen.steps * len(learnt),
    )
    trainer = Trainer(work, where, chosen, _Shown(str(case), chosen.base_steps + 3 * together))
    base = trainer.train(
        BASE, untrained(work, case.width, where / "untrained", chosen.seed), everything, chosen.base_steps
    )
    counts = {BASE: trainer.scores(base, base)}
    for kind, rank in ((CONTINUED, None), (MIXED, RANK)):
        counts[kind] = trainer.scores(trainer.train(kind, base, everything, together, rank=rank), base)
    counts[TASK] = {}
    for place, (task, numbers) in enumerate(learnt.items()):
        adapter = trainer.train(f"{TASK}-{place}", base, numbers, chosen.steps, rank=RANK, task=task)
        counts[TASK] |= trainer.scores(adapter, base, task)
    fewer = {task: len(numbers) for task, numbers in learnt.items() if len(numbers) < case.answers}
    return outcome(case, work.traces("test"), counts, fewer)


class Trainer:
    """Trains on the traces of a retraining, and replays on its test split; drafts that are there are kept."""

    def __init__(self, work: Workspace, where: Path, chosen: argparse.Namespace, shown: _Shown) -> None:
        self._work, self._where, self._chosen, self._shown = work, where, chosen, shown
        self._terms = replay_terms(work.config)
        self._target = model_directory(work.config.target.model)
        self._stop, self._test = work.traces("stop"), work.traces("test")

    def train(
        self,
        name: str,
        start: Path,
        numbers: Sequence[int],
        steps: int,
        *,
        rank: int | None = None,
        task: str | None = None,
    ) -> Path:
        """The draft's directory. It is trained on these traces, and chosen by the held-out answers of its task."""
        destination, checkpoint = self._where / name, self._where / f"{name}.checkpoint"
        if destination.exists():
            self._shown.skip(steps)
            return destination
        align(
            start,
            self._work.collected().dataset(numbers),
            [self._stop[number] for number in _of(self._stop, task)],
            self._terms,
            self._recipe(rank, steps),
            checkpoint=checkpoint,
            destination=destination,
            on_step=lambda step: self._shown.step(name, step),
            target=self._target,
        )
        checkpoint.unlink(missing_ok=True)
        return destination

    def scores(self, draft: Path, base: Path, task: str | None = None) -> Counts:
        """On the test answers of a task; None stands for all."""
        model = load_draft_model(draft, base, dtype=torch.float32, target=self._target)
        numbers = _of(self._test, task)
        counts = score_draft(model, [self._test[number] for number in numbers], self._terms)
        return dict(zip(numbers, counts, strict=True))

    def _recipe(self, rank: int | None, steps: int) -> AlignmentRecipe:
        chosen = self._chosen
        return AlignmentRecipe(
            rank=rank,
            loss="lk",
            learning_rate=chosen.learning_rate,
            steps=steps,
            budget=chosen.budget,
            evaluate_every=max(1, steps // _EVALUATIONS),
            seed=chosen.seed,
            products=chosen.products,
        )


class _Shown:
    """Says at every evaluation how far a case is, and how long the rest takes if its steps are like those so far."""

    def __init__(self, case: str, steps: int) -> None:
        self._case = case
        self._left = steps
        self._done, self._began = 0, time.monotonic()

    def skip(self, steps: int) -> None:
        self._left -= steps

    def step(self, name: str, step: TrainingStep) -> None:
        self._left, self._done = self._left - 1, self._done + 1
        if step.acceptance is not None:
            seconds = (time.monotonic() - self._began) / self._done
            told = f"{name}: {step.step} of {step.steps} steps, acceptance {step.acceptance:.3f}"
            print(f"{self._case}: {told}; {seconds * self._left / 60:.0f} min left in this case", flush=True)


def by_task(traces: Sequence[Trace]) -> dict[str, list[int]]:
    """The numbers of the traces of each task."""
    found: dict[str, list[int]] = {}
    for number, trace in enumerate(traces):
        found.setdefault(trace.task or "", []).append(number)
    return found


def _of(traces: Sequence[Trace], task: str | None) -> list[int]:
    """The numbers of the traces of a task; None stands for all."""
    return list(range(len(traces))) if task is None else by_task(traces)[task]


def untrained(work: Workspace, width: int, directory: Path, seed: int) -> Path:
    """A draft of this width that has learnt nothing, else like that of the retraining."""
    draft, target = model_directory(work.config.draft), model_directory(work.config.target.model)
    vocabulary, whole = DraftVocabulary.of_stored_head(draft), ModelConfig.load(target)
    if directory.exists():
        return directory
    if vocabulary is None:
        _at_random(draft, width, directory, seed)
        return directory
    layers, ids, name = ModelConfig.load(draft).num_layers, vocabulary.ids.tolist(), work.config.target.model
    if width == whole.hidden_size:
        make_from_layers(target, name, evenly(whole.num_layers, layers), ids, directory)
    else:
        make_narrow(target, name, layers, width, ids, directory, seed)
    return directory


def _at_random(draft: Path, width: int, directory: Path, seed: int) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    config = AutoConfig.from_pretrained(draft)
    config.hidden_size, config.intermediate_size = width, round(2.75 * width)
    config.num_attention_heads, config.head_dim = max(1, width // _HEAD), _HEAD
    config.num_key_value_heads = 1
    torch.manual_seed(seed)
    untrained: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    untrained.save_pretrained(directory)
    AutoTokenizer.from_pretrained(draft).save_pretrained(directory)


def outcome(case: Case, test: Sequence[Trace], counts: Mapping[str, Counts], fewer: dict[str, int]) -> Outcome:
    """What these counts of the test traces say."""

    def of(kind: str, numbers: Sequence[int]) -> list[AcceptanceCounts]:
        return [counts[kind][number] for number in numbers]

    def prompts(numbers: Sequence[int]) -> list[tuple[int, ...]]:
        return [test[number].prompt_ids for number in numbers]

    def figures(kind: str) -> Figures:
        ours, theirs, asked = of(kind, everything), of(CONTINUED, everything), prompts(everything)
        return Figures(
            over_prompts(ours, asked, "acceptance_rate"),
            over_prompts(ours, asked, "tokens_per_pass"),
            compare(ours, theirs, asked, "acceptance_rate"),
            compare(ours, theirs, asked, "tokens_per_pass"),
        )

    everything = range(len(test))
    gains = {
        task: compare(of(TASK, numbers), of(CONTINUED, numbers), prompts(numbers))
        for task, numbers in by_task(test).items()
    }
    return Outcome(case, {kind: figures(kind) for kind in counts}, gains, fewer)


def _distances(work: Workspace) -> dict[str, float]:
    """By task, the cosine distance of its centroid to the nearest other one; empty if no prompts were embedded."""
    if not work.steps["partition"].done:
        return {}
    tasks, vectors = by_task(work.traces("train")), work.embeddings()["train"]
    centroids = np.stack([vectors[numbers].mean(0) for numbers in tasks.values()])
    centroids /= np.linalg.norm(centroids, axis=1, keepdims=True)
    apart = 1.0 - centroids @ centroids.T + 2.0 * np.eye(len(centroids))
    return dict(zip(tasks, apart.min(1).tolist(), strict=True))


def workspace(chosen: argparse.Namespace) -> Workspace:
    config = load_config(chosen.config)
    return open_workspace(config.model_copy(update={"work": chosen.work or config.work}).anchored())


def page(outcomes: Sequence[Outcome], distances: Mapping[str, float]) -> str:
    """Markdown."""
    return "\n".join(
        [*_by_case(outcomes), "", *_by_task(outcomes, distances), "", *_notes(outcomes), machine.line(), ""]
    )


def _by_case(outcomes: Sequence[Outcome]) -> Iterator[str]:
    columns = ("acceptance (95 %)", "over the base trained on", "tokens per pass (95 %)", "over the base trained on")
    yield from header(["width", "answers per task", "draft", *columns])
    for case, kinds, _, _ in outcomes:
        for kind, found in kinds.items():
            acceptance = f"{told(found.acceptance, '.3f')} | {told(found.gain, '+.3f')}"
            passes = f"{told(found.tokens_per_pass, '.2f')} | {told(found.more_tokens, SIGNED)}"
            yield f"| {case.width} | {case.answers} | {kind} | {acceptance} | {passes} |"


def _by_task(outcomes: Sequence[Outcome], distances: Mapping[str, float]) -> Iterator[str]:
    yield from header(["task", "distance", *(str(outcome.case) for outcome in outcomes)])
    for task in outcomes[0].by_task:
        gains = " | ".join(told(outcome.by_task[task], "+.3f") for outcome in outcomes)
        yield f"| {task} | {f'{distances[task]:.2f}' if task in distances else ''} | {gains} |"


def _notes(outcomes: Sequence[Outcome]) -> Iterator[str]:
    fewer = {task: number for outcome in outcomes for task, number in outcome.fewer.items()}
    if fewer:
        yield f"There are no more answers than these: {', '.join(f'{task} {n}' for task, n in fewer.items())}."


def as_json(outcome: Outcome) -> dict[str, object]:
    return {
        "case": outcome.case._asdict(),
        "kinds": {
            kind: {name: figure._asdict() for name, figure in found._asdict().items()}
            for kind, found in outcome.kinds.items()
        },
        "by_task": {task: gain._asdict() for task, gain in outcome.by_task.items()},
        "fewer_answers": outcome.fewer,
    }


if __name__ == "__main__":
    main()
