"""The drafts of the study: how each is begun and trained, and where it hits the answers that judge it.

A draft is a directory that is complete when it exists, and so is the file with its hits.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import torch
from safetensors.torch import save_file

from core.atomic_files import ASIDE, replace
from core.distill.alignment import AlignmentRecipe, TrainingStep, align
from core.distill.dataset import DistillationSet
from core.distill.draft_making import evenly, make_from_layers, make_narrow
from core.distill.muon import has_bfloat16
from core.model.base import drawable_ids
from core.model.causal_lm import load_draft_model
from core.model.config import ModelConfig
from core.model.draft_vocabulary import DraftVocabulary, most_frequent
from core.model.loader import EMBEDDING, PROJECTION
from core.model.tensor_views import TensorCheckpoint, as_tensor
from core.model_names import hub_id, locate
from core.replay.replay import NUM_SPECULATIVE_TOKENS, Terms, hits_among, output_logits, session_forward
from core.text.vocabulary import same_id_map
from core.traces.record import Record
from core.traces.store import Trace, traces_of
from tests.bench.narrow_tasks import TASKS, NarrowTask
from tests.bench.task_drafts_answers import Answers
from train_jobs.drafts.candidates import BASE, CONTINUED, MIXED, TASK
from train_jobs.work.artefacts import read_json, write_json

GENERAL = "general"
UNADAPTED = "un-adapted"
SINGLES = (UNADAPTED, BASE, CONTINUED, MIXED)  # one draft for all tasks
Head = Literal["whole", "own", "small"]  # all ids of a draft, those that its tasks' answers use, the first of these
HEADS: tuple[Head, ...] = ("whole", "own", "small")
Place = Literal["right", "wrong", "general"]  # answers of its own task, of another one, of general traffic
Hits = dict[Head, dict[Place, list[str]]]  # a text of 0 and 1 for each answer, a character for each token
GeneralSplit = Literal["train", "stop", "test"]
HEAD, SMALL = 4096, 512  # ids of a draft, and of a small head
PRODUCTS: Literal["float32", "bfloat16"] = "bfloat16" if has_bfloat16(torch.device("cpu")) else "float32"
_RANK = 32
_EVALUATIONS = 4  # of a training run, each with a checkpoint
_GENERAL_SHARDS: dict[GeneralSplit, int] = {"train": 40, "stop": 2, "test": 2}


class Shape(NamedTuple):
    """So many layers of this width; None is the target's own, of which the layers are."""

    layers: int
    width: int | None

    def __str__(self) -> str:
        return f"{self.layers} layer{'s' if self.layers > 1 else ''}, width {self.width or 'of the target'}"


class Case(NamedTuple):
    """The first `tasks` tasks, drafts of one shape, and the seed of their training."""

    tasks: int
    shape: Shape
    seed: int

    def __str__(self) -> str:
        return f"{self.tasks} tasks, {self.shape}, seed {self.seed}"

    @property
    def directory(self) -> str:
        return f"tasks-{self.tasks}-layers-{self.shape.layers}-width-{self.shape.width or 'whole'}-seed-{self.seed}"

    @property
    def drafts(self) -> list[str]:
        return [*SINGLES, *(f"{TASK}-{task.name}" for task in self.trained)]

    @property
    def trained(self) -> tuple[NarrowTask, ...]:
        return TASKS[: self.tasks]


class General:
    """Answers of general traffic, as the collect stage of a retraining wrote them; none without a directory.

    The retraining may still go on, so the shards that are there when they are first asked for are written down in the
    directory `notes`.
    """

    def __init__(self, directory: Path | None, notes: Path) -> None:
        self._directory, self._notes = directory, notes

    def traces(self, split: GeneralSplit) -> list[Trace]:
        return [trace for file in self._shards(split) for trace in traces_of(self._file(file).read_bytes())]

    def dataset(self) -> DistillationSet | None:
        files = [self._file(name).with_suffix(".safetensors") for name in self._shards("train")]
        return DistillationSet.join([DistillationSet.load(file) for file in files]) if files else None

    def _file(self, name: str) -> Path:
        assert self._directory is not None
        return self._directory / name

    def _shards(self, split: GeneralSplit) -> list[str]:
        if self._directory is None:
            return []
        note, number = self._notes / f"general-{split}.json", _GENERAL_SHARDS[split]
        if not note.exists():
            shards = [file.name for file in sorted(self._directory.glob(f"{split}-*.parquet"))[:number]]
            if len(shards) < number:
                raise SystemExit(f"{self._directory} has {len(shards)} {split} shards yet, and {number} are needed")
            write_json(note, shards)
        return read_json(note, list[str])


class Steps(NamedTuple):
    """Of the training of a draft: on general traffic, and for each task."""

    general: int
    each: int


class Study:
    """All that is trained and replayed, in one directory.

    `shipped` is a draft that has learned general traffic; drafts of other shapes learn it first.
    """

    def __init__(
        self,
        directory: Path,
        answers: Answers,
        general: General,
        target: str,
        shipped: str | None,
        steps: Steps,
        shown: Callable[[str, TrainingStep], object],
    ) -> None:
        self._directory, self._answers, self._general, self._steps = directory, answers, general, steps
        self._name, self._target = target, Path(locate(target))
        self._shipped, self._shown = None if shipped is None else Path(locate(shipped)), shown
        self._counts_of = cache(
            lambda task: Counter(token for trace in answers.traces(task, "train") for token in trace.output_ids)
        )
        num_valid = same_id_map(self._target, self._target)
        self.terms = Terms(NUM_SPECULATIVE_TOKENS, num_valid, ModelConfig.load(self._target).context)

    def steps_left(self, case: Case) -> int:
        """Training steps of the drafts of a case that are not there."""
        return sum(self._steps_of(case, name) for name in case.drafts[1:] if not self.draft(case, name).exists())

    def run(self, case: Case) -> None:
        """Train and replay all drafts of a case that are not there."""
        for name in case.drafts:
            file = self._hits_file(case, name)
            if not file.exists():
                if name != UNADAPTED:
                    self._train(case, name)
                file.parent.mkdir(parents=True, exist_ok=True)
                replace(file, msgspec.json.encode(self._replayed(case, name)))

    def hits(self, case: Case) -> dict[str, Hits]:
        """Those of every draft of a case that is done."""
        return {name: read_json(self._hits_file(case, name), Hits) for name in case.drafts}

    def judging(self, case: Case) -> dict[str, list[Trace]]:
        """The answers that judge the drafts of a case: of every task by its name, and of general traffic."""
        return {task.name: self._answers.traces(task, "test") for task in case.trained} | {
            GENERAL: self._general.traces("test")
        }

    def head(self, case: Case, name: str, head: Head) -> list[int]:
        """The ids that this draft has in one of its heads, ascending."""
        begun = self.draft(case, name if name == UNADAPTED else BASE)
        whole = DraftVocabulary.load(begun).ids.tolist()
        if head == "whole":
            return list(whole)
        counts, among = self._counts(_learned(case, name)), set(whole)
        own = {token: count for token, count in counts.items() if token in among}
        return most_frequent(own, SMALL if head == "small" else len(whole))

    def draft(self, case: Case, name: str) -> Path:
        if name == UNADAPTED:
            return self.start(case.shape)
        return self._directory / case.directory / "drafts" / name

    def start(self, shape: Shape) -> Path:
        """A draft of this shape that has learned general traffic, or nothing where there is none."""
        if self._shipped is not None and self._shape_of(self._shipped) == shape:
            return self._shipped
        place = self._directory / "starts" / f"layers-{shape.layers}-width-{shape.width or 'whole'}"
        untrained, data = place / "untrained", self._general.dataset()
        if not untrained.exists():
            self._make(shape, untrained)
        if data is None:
            return untrained
        stop = self._general.traces("stop")
        return self._aligned(place / GENERAL, untrained, data, stop, self._recipe(None, self._steps.general, 0))

    def _shape_of(self, draft: Path) -> Shape:
        config, width = ModelConfig.load(draft), ModelConfig.load(self._target).hidden_size
        return Shape(config.num_layers, None if config.hidden_size == width else config.hidden_size)

    def _make(self, shape: Shape, destination: Path) -> None:
        vocabulary = None if self._shipped is None else DraftVocabulary.of_stored_head(self._shipped)
        ids = list(range(min(HEAD, self.terms.num_valid))) if vocabulary is None else vocabulary.ids.tolist()
        name = hub_id(self._name)
        if shape.width is None:
            layers = evenly(ModelConfig.load(self._target).num_layers, shape.layers)
            make_from_layers(self._target, name, layers, ids, destination)
        else:
            make_narrow(self._target, name, shape.layers, shape.width, ids, destination)

    def _train(self, case: Case, name: str) -> Path:
        """The base begins as the draft of its shape with a head for these tasks, all others as the base."""
        if name == BASE:
            start = self.draft(case, BASE).with_name("begun")
            if not start.exists():
                with_head(self.start(case.shape), self._counts(case.trained), self._target, start)
        else:
            start = self.draft(case, BASE)
        tasks = _learned(case, name)
        rank = None if name in (BASE, CONTINUED) else _RANK
        return self._aligned(
            self.draft(case, name),
            start,
            self._answers.dataset(tasks),
            [trace for task in tasks for trace in self._answers.traces(task, "stop")],
            self._recipe(rank, self._steps_of(case, name), case.seed),
        )

    def _steps_of(self, case: Case, name: str) -> int:
        return self._steps.each * len(_learned(case, name))

    def _aligned(
        self, place: Path, start: Path, data: DistillationSet, stop: Sequence[Record], recipe: AlignmentRecipe
    ) -> Path:
        if not place.exists():
            checkpoint = place.with_name(f"{place.name}.checkpoint")
            place.parent.mkdir(parents=True, exist_ok=True)
            align(
                start,
                data,
                stop,
                self.terms,
                recipe,
                checkpoint=checkpoint,
                destination=place,
                on_step=lambda step: self._shown(place.name, step),
                target=self._target,
            )
            checkpoint.unlink(missing_ok=True)
        return place

    def _recipe(self, rank: int | None, steps: int, seed: int) -> AlignmentRecipe:
        return AlignmentRecipe(
            rank=rank,
            loss="lk",
            learning_rate=0.01,
            steps=steps,
            evaluate_every=max(1, steps // _EVALUATIONS),
            seed=seed,
            products=PRODUCTS,
        )

    def _counts(self, tasks: Sequence[NarrowTask]) -> Counter[int]:
        """How often the answers that are learned from use each id."""
        return sum(map(self._counts_of, tasks), Counter[int]())

    def _replayed(self, case: Case, name: str) -> Hits:
        draft = self.draft(case, name)
        base = draft if name == UNADAPTED else self.draft(case, BASE)
        model = load_draft_model(draft, base, dtype=torch.float32, target=self._target)
        forward, whole = session_forward(model), torch.tensor(self.head(case, name, "whole"))
        columns = {head: torch.searchsorted(whole, torch.tensor(self.head(case, name, head))) for head in HEADS}
        result: Hits = {head: {} for head in HEADS}
        for place, traces in self._judged_by(case, name):
            for trace in traces:
                logits = output_logits(trace, forward, model.context)
                for head in HEADS:
                    ids = drawable_ids(whole[columns[head]], self.terms.num_valid)
                    hits = hits_among(ids, trace, logits[:, columns[head]])
                    result[head].setdefault(place, []).append("".join(str(int(hit)) for hit in hits))
        return result

    def _judged_by(self, case: Case, name: str) -> Iterator[tuple[Place, list[Trace]]]:
        """A single draft by all answers. A task's by its own, those of the task before it, and some general ones."""
        judging = self.judging(case)
        general, names = judging.pop(GENERAL), list(judging)
        if name in SINGLES:
            yield "right", list(chain.from_iterable(judging.values()))
            yield "general", general
            return
        place = names.index(name.removeprefix(f"{TASK}-"))
        yield "right", judging[names[place]]
        yield "wrong", judging[names[place - 1]]
        yield "general", general[place :: len(names)]

    def _hits_file(self, case: Case, name: str) -> Path:
        return self._directory / case.directory / "hits" / f"{name}.json"


def with_head(draft: Path, counts: Mapping[int, int], target: Path, destination: Path) -> None:
    """Write a copy of a draft whose head has the ids that were counted, then others of its own, as many as it had.

    The rows that it lacks are the target's.
    """
    old, checkpoint = DraftVocabulary.load(draft), TensorCheckpoint(draft)
    frequent = set(most_frequent(counts, len(old.ids)))
    others = [token for token in old.ids.tolist() if token not in frequent]
    ids = sorted([*frequent, *others[: len(old.ids) - len(frequent)]])
    tensors = {name: checkpoint[name] for name in checkpoint.names()}
    rows, columns = _target_rows(target, ids, tensors), as_tensor(old.columns)[ids]
    rows[columns >= 0] = tensors["lm_head.weight"][columns[columns >= 0]]
    aside = destination.with_name(ASIDE + destination.name)
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(draft, aside)
    save_file(tensors | {"lm_head.weight": rows}, aside / "model.safetensors", {"format": "pt"})
    DraftVocabulary.from_ids(ids, old.target_size).save(aside)
    aside.rename(destination)


def _target_rows(target: Path, ids: Sequence[int], draft: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """These rows of the target's head, as wide as the draft."""
    checkpoint = TensorCheckpoint(target)
    rows = checkpoint[EMBEDDING if ModelConfig.load(target).tied else "lm_head.weight"][list(ids)].float()
    narrow = rows @ draft[PROJECTION].float() if PROJECTION in draft else rows
    return narrow.to(draft["lm_head.weight"].dtype)


def _learned(case: Case, name: str) -> tuple[NarrowTask, ...]:
    """The tasks that a draft learns from."""
    return case.trained if name in SINGLES else tuple(task for task in case.trained if name == f"{TASK}-{task.name}")


class Shown:
    """Says at every evaluation how far a run is, and how long the rest takes if its steps are like those so far."""

    def __init__(self) -> None:
        self.steps = 0  # that are to be done, without those on general traffic
        self._done, self._began = 0, time.monotonic()

    def __call__(self, name: str, step: TrainingStep) -> None:
        self.steps -= name != GENERAL
        if not self._done:  # what was replayed before says nothing
            self._began = time.monotonic()
        self._done += 1
        if step.acceptance is not None or self._done in (2, 10):
            each = (time.monotonic() - self._began) / max(1, self._done - 1)
            reached = "" if step.acceptance is None else f", acceptance {step.acceptance:.3f}"
            rest = f"{each:.1f} s a step, {self.steps * each / 3600:.1f} h left for {self.steps} steps"
            print(f"  {name}: {step.step} of {step.steps} steps{reached}; {rest}", flush=True)
