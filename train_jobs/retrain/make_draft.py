"""`taskspec draft make`: a draft for a target that has none, made from the target and aligned on its own answers.

The answers are those of the collect stage. Without a shape in the configuration, drafts of several numbers of layers
are trained for a short while. Each is replayed with its head cut to several sizes, and the cost of every shape is
measured beside the target's passes: the shape with the most tokens a second (`core.replay.speed`) is trained in full.
A draft that was there before stays, unless the new one is better.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from core.bundle.manifest import MeasuredCosts
from core.confidence_intervals import Difference, compare
from core.distill.draft_making import check_narrow, evenly, made_for, make_from_layers, make_narrow
from core.errors import ConfigError, TaskSpecError
from core.model.base import Model
from core.model.config import ModelConfig
from core.model.draft_vocabulary import DraftVocabulary, filled_up
from core.model.loader import public_name
from core.model_names import hub_id, locate
from core.replay.replay import AcceptanceCounts, score_draft, total
from core.replay.speed import DraftCosts, draft_shape
from core.replay.vocabulary_size import score_vocabularies
from core.text.vocabulary import same_id_map
from train_jobs.cluster.progress import Progress
from train_jobs.config import RetrainConfig
from train_jobs.drafts.costs import pass_seconds, token_seconds
from train_jobs.drafts.loading import load_draft
from train_jobs.drafts.training_runs import TrainingRun
from train_jobs.retrain.draft_place import DraftPlace
from train_jobs.retrain.pipeline import exclusive, run_stage, workers_errors
from train_jobs.stages import open_workspace
from train_jobs.stages.align import fit_all
from train_jobs.work.artefacts import COSTS, FittedDrafts, read_json, write_json
from train_jobs.work.cached_step import CachedStep, fingerprint, settings_of
from train_jobs.work.in_memory import learns_in_memory
from train_jobs.work.models import model_directory, replay_terms, target_tokenizer

TRIED_LAYERS, TRIED_SIZES = (1, 2, 4), (1024, 2048, 4096, 8192, 16384)
_MOST_RECORDS = 64  # replayed for each trial
_EVALUATIONS = 10  # of a training run


class Shape(msgspec.Struct, frozen=True):
    """So many layers at this width (None: the target's), and so many ids in the head."""

    layers: int
    width: int | None
    vocabulary: int


class Promise(msgspec.Struct, frozen=True):
    """What a shape costs and reached: the cost of a drafted token in plain passes, and counts on held-out answers."""

    shape: Shape
    token: float
    counts: AcceptanceCounts


class MadeDraft(msgspec.Struct, frozen=True):
    """The draft that was made, its directory, the `place` where it belongs, and what it reached on held-out answers.

    `before` is what another draft reached that was in that place, if one was, and `gain` the difference to it in tokens
    a second. The new one takes its place only if it is better.
    """

    directory: Path
    place: Path
    promise: Promise
    before: Promise | None
    gain: Difference | None

    @property
    def in_place(self) -> bool:
        return self.directory == self.place


def make_draft(config: RetrainConfig, console: Console) -> MadeDraft:
    """Make the draft that `config.draft` names, at its path. It runs on the connected Ray, and can be resumed.

    Raises `ConfigError` for a shape that the target does not allow, for traces that are kept in memory, or if another
    model is at that path.
    """
    if learns_in_memory(config):
        raise ConfigError(
            f"collect.traces: the answers in {config.collect.traces} are kept in memory, and what a draft is made from "
            "stays on a disk: write `files` in place of `traces`"
        )
    config = config.anchored().model_copy(update={"draft": str(Path(locate(config.draft)).absolute())})
    make = config.make
    with workers_errors(), exclusive(config.work), Progress(console, ("collect", "draft")) as progress:
        maker = DraftMaker(config, progress)
        if make.layers is None or make.vocabulary is None:
            promises = maker.trials()
            shape = quickest(promises).shape
        else:
            promises, shape = [], Shape(make.layers, make.width, make.vocabulary)
        draft = maker.make(shape)
    console.print(_table(promises, draft))
    return draft


def quickest(promises: Sequence[Promise]) -> Promise:
    """The promise of most tokens a second, whatever is accepted."""
    return max(promises, key=lambda promise: promise.counts.speedup)


class DraftMaker:
    """Makes drafts of any shape from the answers of one work directory."""

    def __init__(self, config: RetrainConfig, progress: Progress) -> None:
        self._target = model_directory(config.target.model)
        self._name = hub_id(config.target.model)
        self._place = DraftPlace(Path(config.draft), config.work)
        self._config = config = config.model_copy(update={"draft": str(self._blank_draft(config))})
        self._terms = replay_terms(config)
        self._check_vocabulary()
        self._earlier = self._earlier_draft()
        self._progress = progress
        self._work = open_workspace(config)
        run_stage(self._work, "collect", progress)
        align, workers = config.align, (config.collect.worker, config.evaluate.worker)
        learns = [align.seeds[0], settings_of(align, "loss", "learning_rate", "budget", "products")]
        self._drafts = FittedDrafts(CachedStep(config.work / "draft", self._work.steps["collect"].key, *learns).start())
        measures = [align.device, *(worker.model_dump(mode="json") for worker in workers)]
        self._speeds = CachedStep(self._drafts.directory / "speeds", *measures).start()
        self._counts = Counter(token for trace in self._work.traces("train") for token in trace.output_ids)

    def trials(self) -> list[Promise]:
        """The promise of every shape that the configuration leaves open.

        Promises are kept, as costs are: measured again they would differ a little, and the same command might choose
        another shape.
        """
        make = self._config.make
        file = self._speeds / f"promises-{make.layers}-{make.width}-{make.vocabulary}-{make.trial_steps}.json"
        if file.exists():
            return read_json(file, list[Promise])
        layers = [make.layers] if make.layers else [n for n in TRIED_LAYERS if n <= self._num_layers]
        vocabularies = [make.vocabulary] if make.vocabulary else TRIED_SIZES
        sizes = sorted({min(size, self._terms.num_valid) for size in vocabularies})
        shapes = [Shape(number, make.width, max(sizes)) for number in layers]
        self._fit(shapes, make.trial_steps, "draft: trials")
        promises = [promise for shape in shapes for promise in self._promises(shape, sizes)]
        write_json(file, promises)
        return promises

    def make(self, shape: Shape) -> MadeDraft:
        """Train the draft of a shape, and put it where the configuration says, if it is better than what is there."""
        [run] = self._fit([shape], self._config.make.steps, "draft")
        draft, prompts = self._drafts.draft(run.name), [trace.prompt_ids for trace in self._work.traces("promotion")]
        promise, counts = self._judged(draft, shape)
        place, before, gain = self._place.directory, None, None
        if self._place.has(draft):
            return MadeDraft(place, place, promise, before, gain)
        if self._earlier is not None:
            before, earlier = self._judged(place, self._earlier)
            gain = compare(counts, earlier, prompts, "speedup")
            if not gain.better:
                return MadeDraft(draft, place, promise, before, gain)
        self._place.put(draft)
        return MadeDraft(place, place, promise, before, gain)

    def _judged(self, draft: Path, shape: Shape) -> tuple[Promise, list[AcceptanceCounts]]:
        """Of a whole draft, on the answers that judge, together and one by one."""
        costs = self._costs(draft)
        counts = score_draft(self._load(draft), self._work.traces("promotion"), self._terms, costs)
        return Promise(shape, costs.token, total(counts)), counts

    def _earlier_draft(self) -> Shape | None:
        """The shape of the draft where this one belongs, if one is. Raises `ConfigError` if it may not be replaced."""
        there = self._place.directory
        if self._place.free:
            return None
        try:
            owner, target = made_for(there), public_name(self._name)
            if owner != target:
                what = "no draft that `taskspec draft make` made" if owner is None else f"a draft for {owner}"
                raise ConfigError(f"there is {what}, and no other would be replaced than one for {target}")
            same_id_map(self._target, there)
            self._load(there)  # fails if it was for another model of that name
        except TaskSpecError as error:
            raise ConfigError(f"draft: {there}: {error}; write another directory") from error
        config, width = ModelConfig.load(there), ModelConfig.load(self._target).hidden_size
        whole = None if config.hidden_size == width else config.hidden_size
        return Shape(config.num_layers, whole, len(DraftVocabulary.load(there).ids))

    def _blank_draft(self, config: RetrainConfig) -> Path:
        """One that has learned nothing, which knows what all drafts of this target have in common."""
        width = config.make.width
        try:
            if width is None:
                evenly(self._num_layers, config.make.layers or 1)
            else:
                check_narrow(ModelConfig.load(self._target), width)
        except ConfigError as error:
            raise ConfigError(f"make: {error}") from error
        blank = CachedStep(config.work / "blank", width, fingerprint(self._target)).start() / "draft"
        if not blank.exists():
            self._write(Shape(1, width, 1), [0], blank)
        return blank

    def _check_vocabulary(self) -> None:
        size, limit = self._config.make.vocabulary, self._terms.num_valid
        least = len(target_tokenizer(self._config).eos_ids) + 1
        if size is not None and not least <= size <= limit:
            raise ConfigError(f"make.vocabulary: a draft of this target has {least} to {limit} ids, not {size}")

    def _fit(self, shapes: Sequence[Shape], steps: int, stage: str) -> list[TrainingRun]:
        runs = []
        for shape in shapes:
            name = _run_name(shape, steps)
            untrained = self._drafts.directory / "untrained" / name
            if not untrained.exists():
                self._write(shape, self._ids(shape.vocabulary), untrained)
            runs.append(self._run(name, untrained, steps))
        fit_all(self._work, self._drafts, runs, stage, self._progress)
        return runs

    def _run(self, name: str, untrained: Path, steps: int) -> TrainingRun:
        align, seed = self._config.align, self._config.align.seeds[0]
        return TrainingRun(
            name=name,
            seed=seed,
            draft=str(untrained),
            loss=align.loss,
            steps=steps,
            evaluate_every=max(1, steps // _EVALUATIONS),
            source=self._work.collected().directory,
            train=list(range(len(self._work.traces("train")))),
            stop=list(range(len(self._work.traces("stop")))),
        )

    def _write(self, shape: Shape, ids: Sequence[int], destination: Path) -> None:
        if shape.width is None:
            make_from_layers(self._target, self._name, evenly(self._num_layers, shape.layers), ids, destination)
        else:
            make_narrow(self._target, self._name, shape.layers, shape.width, ids, destination)

    def _ids(self, size: int) -> list[int]:
        """Those that the answers use most, then the lowest."""
        return filled_up(self._counts, size, self._terms.num_valid, target_tokenizer(self._config).eos_ids)

    def _promises(self, shape: Shape, sizes: Sequence[int]) -> list[Promise]:
        """Of a trained shape, with its head cut to each of these sizes."""
        directory = self._drafts.draft(_run_name(shape, self._config.make.trial_steps))
        vocab_size = ModelConfig.load(self._target).vocab_size
        vocabularies = [DraftVocabulary.from_ids(self._ids(size), vocab_size) for size in sizes]
        records = self._work.traces("stop")[:_MOST_RECORDS]
        costs = [self._costs(directory, vocabulary) for vocabulary in vocabularies]
        scores = score_vocabularies(self._load(directory), vocabularies, records, self._terms, costs)
        return [
            Promise(Shape(shape.layers, shape.width, size), cost.token, total(counts))
            for size, cost, counts in zip(sizes, costs, scores, strict=True)
        ]

    def _load(self, directory: Path, vocabulary: DraftVocabulary | None = None) -> Model:
        return load_draft(self._config, directory, vocabulary, served=True)

    def _costs(self, directory: Path, vocabulary: DraftVocabulary | None = None) -> DraftCosts:
        """Measured here, once for every shape of a draft, then kept."""
        file, shape = self._speeds / COSTS, draft_shape(directory, self._config.draft, vocabulary)
        if not file.exists():
            write_json(file, MeasuredCosts(passes=pass_seconds(self._config), tokens={}))
        costs = read_json(file, MeasuredCosts)
        if shape not in costs.tokens:
            tokens = costs.tokens | {shape: token_seconds(self._config, directory, vocabulary)}
            costs = msgspec.structs.replace(costs, tokens=tokens)
            write_json(file, costs)
        return DraftCosts.of(costs, shape)

    @property
    def _num_layers(self) -> int:
        return ModelConfig.load(self._target).num_layers


def _run_name(shape: Shape, steps: int) -> str:
    return f"layers-{shape.layers}-width-{shape.width or 'whole'}-ids-{shape.vocabulary}-steps-{steps}"


def _table(tried: Sequence[Promise], draft: MadeDraft) -> Table:
    """One row for each shape that was tried, for the draft that was there before, and for the one that was made."""
    columns = ("", "layers", "width", "ids in the head", "cost of a token", "acceptance", "drafted at once", "speed")
    table = Table(*columns, title="cost: in target passes; speed: tokens a second, times plain decoding, one stream")
    before = [] if draft.before is None else [("there before", draft.before)]
    for name, promise in [*(("tried", promise) for promise in tried), *before, ("made", draft.promise)]:
        shape = promise.shape
        table.add_row(
            name,
            str(shape.layers),
            str(shape.width or "the target's"),
            str(shape.vocabulary),
            f"{promise.token:.3f}",
            f"{promise.counts.acceptance_rate:.3f}",
            str(promise.counts.length),
            f"{promise.counts.speedup:.2f}",
        )
    return table
