"""Shadows: what a service would have had accepted with another bundle than the one it served.

The answers of a service do not depend on its drafts. So any bundle can be replayed on them exactly, without a pass of
the target (`core.replay.replay`). A prompt goes to the draft that a service with this bundle begins with. It
proposes serially and always as many tokens: as many as the service may draft for acceptance and passes, as many as are
best for speed. What a service does besides is not replayed: moves to another draft within an answer, lookup, and
drafting less where that pays.

Speed takes costs, which the retraining that made a bundle has measured and noted in its manifest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Literal, NamedTuple, Self, get_args

from core.bundle.manifest import Manifest
from core.bundle.store import Bundle, show
from core.confidence_intervals import Difference, Estimate, Figure, compare, over_prompts
from core.draft_key import GENERAL
from core.errors import ConfigError
from core.model.base import Model
from core.policy.rerouting import AnswerRoute, RoutingTable
from core.replay.replay import AcceptanceCounts, Terms, score_draft
from core.replay.speed import DraftCosts, draft_shape
from core.tasks.classifier import TaskClassifier
from core.traces.reservoir import Reservoir
from core.traces.store import Trace, TraceStore

FIGURES: tuple[Figure, ...] = get_args(Figure)  # the first that is known decides
Verdict = Literal["better", "worse", "not distinguishable"]
Load = Callable[[Path | None], Model]  # the draft in a directory, None for the un-adapted one; pages for one context
OnReplay = Callable[[int], None]
_Answer = tuple[Trace, AcceptanceCounts, AcceptanceCounts]  # with the candidate's counts and the other's


class TraceSample(NamedTuple):
    """Traces drawn at random out of `matching` ones.

    `foreign` counts those of other models or of an unknown bundle, `incomplete` those without prompt, answer or time,
    and `unreadable` the files that are damaged or of another version of the dice.
    """

    traces: list[Trace]
    matching: int
    foreign: int
    incomplete: int
    unreadable: int


class Route(NamedTuple):
    """The task that a prompt most likely is of, and the directory of the draft that it gets."""

    task: str
    draft: Path | None


class ServedBundle(NamedTuple):
    """What a service serves of a bundle: by task a directory, None for the un-adapted draft; and where prompts go."""

    drafts: Mapping[str, Path | None]
    table: RoutingTable
    router: TaskClassifier | None

    @classmethod
    def of(cls, bundle: Bundle | None) -> Self:
        """Without a bundle the un-adapted draft serves every prompt. A task without a draft of its own is not named."""
        if bundle is None:
            return cls({GENERAL: None}, RoutingTable([], {}), None)
        general = bundle.directory(GENERAL) if GENERAL in bundle.manifest.slots else None
        directories = {task: bundle.directory(task) for task in bundle.manifest.slots}
        drafts = {GENERAL: general} | {task: own for task, own in directories.items() if own != general}
        router = None if bundle.router is None else TaskClassifier.load(bundle.router)
        return cls(drafts, RoutingTable(drafts, bundle.manifest.acceptance), router)

    def route(self, prompt: Sequence[int], length: int) -> Route:
        """As the first choice of `core.policy.rerouting`, if `length` tokens are proposed for a pass."""
        chances = {GENERAL: 1.0} if self.router is None else self.router.predict(prompt)
        task = max(chances, key=lambda name: chances[name])
        return Route(task, self.drafts[AnswerRoute(self.table, chances, length).draft])


class PairedFigure(NamedTuple):
    """A figure of both bundles on the same answers, and the candidate's less the other's."""

    candidate: Estimate
    against: Estimate
    difference: Difference


class ServedCounts(NamedTuple):
    """What the service itself counted of its drafts, on so many of the answers."""

    answers: int = 0
    proposed: int = 0
    accepted: int = 0


class TaskComparison(NamedTuple):
    """The answers to prompts of one task; `task` is None for all. Without costs there is no speedup among `figures`."""

    task: str | None
    answers: int
    figures: Mapping[Figure, PairedFigure]
    measured: ServedCounts

    @property
    def judged_by(self) -> Figure:
        """The speedup, as in a retraining; the acceptance_rate where no costs are known."""
        return next(iter(self.figures))

    @property
    def verdict(self) -> Verdict:
        """What the difference in this figure shows of the candidate."""
        difference = self.figures[self.judged_by].difference
        if difference.better:
            return "better"
        return "worse" if difference.worse else "not distinguishable"


class Shadow(NamedTuple):
    """A comparison of two bundles on all answers and, commonest first, on those of each task of the candidate."""

    whole: TaskComparison
    tasks: list[TaskComparison]


def draw(store: TraceStore, since: float, limit: int, foreign: Callable[[Trace], bool]) -> TraceSample:
    """At most `limit` of the traces that ended at this Unix time or later, each as likely, the same every time."""
    sample, counts = Reservoir[Trace](limit, Random(0)), Counter[str]()
    for trace in store.since(since):
        if not (trace.prompt_ids and trace.output_ids and trace.ended_at is not None):
            counts["incomplete"] += 1
        elif trace.ended_at < since:
            continue
        elif foreign(trace):
            counts["foreign"] += 1
        else:
            sample.offer(trace)
    unreadable = store.counts["unreadable"]
    return TraceSample(sample.items, sample.offered, counts["foreign"], counts["incomplete"], unreadable)


def foreign_to(manifest: Manifest, root: Path, terms: Terms) -> Callable[[Trace], bool]:
    """Tells traces that the target and tokenizer of `manifest` did not or cannot have made.

    What a trace says of its origin is the bundle that was served, which must be in `root`. Traces without one are
    judged by their token ids and length alone.
    """

    @cache
    def same_models(version: str) -> bool:
        try:
            served = show(root, version)
        except ConfigError:
            return False
        return (served.target, served.id_map) == (manifest.target, manifest.id_map)

    def foreign(trace: Trace) -> bool:
        if trace.bundle is not None and not same_models(trace.bundle):
            return True
        tokens = trace.tokens
        return len(tokens) > terms.context or not 0 <= min(tokens) <= max(tokens) < terms.num_valid

    return foreign


def shadow(
    candidate: ServedBundle,
    against: ServedBundle,
    traces: Sequence[Trace],
    terms: Terms,
    load: Load,
    on_replay: OnReplay | None = None,
    costs: Mapping[Path | None, DraftCosts] = MappingProxyType({}),
) -> Shadow:
    """Compare two bundles on traces, at least one; by speedup if the `costs` of all drafts are known.

    `on_replay` is called with the number of replays done, of two for each trace.
    """
    length = terms.num_speculative_tokens
    ours, theirs = ([side.route(trace.prompt_ids, length) for trace in traces] for side in (candidate, against))
    drafts = [[route.draft for route in routes] for routes in (ours, theirs)]
    answers = list(zip(traces, *replayed(drafts, traces, terms, load, on_replay, costs), strict=True))
    by_task: dict[str, list[_Answer]] = {}
    for route, answer in zip(ours, answers, strict=True):
        by_task.setdefault(route.task, []).append(answer)
    commonest = sorted(by_task, key=lambda task: -len(by_task[task]))
    figures = FIGURES if costs else FIGURES[1:]
    return Shadow(_part(None, answers, figures), [_part(task, by_task[task], figures) for task in commonest])


def known_costs(
    drafts: Iterable[Path | None], unadapted: Path | str, manifests: Iterable[Manifest]
) -> dict[Path | None, DraftCosts]:
    """The costs of drafts, by the first manifest that knows those of all their shapes; empty if none does."""
    shapes = {directory: draft_shape(directory, unadapted) for directory in drafts}
    for manifest in manifests:
        costs = manifest.costs
        if costs is not None and costs.tokens.keys() >= set(shapes.values()):
            return {directory: DraftCosts.of(costs, shape) for directory, shape in shapes.items()}
    return {}


def replayed(
    sides: Sequence[Sequence[Path | None]],
    traces: Sequence[Trace],
    terms: Terms,
    load: Load,
    on_replay: OnReplay | None = None,
    costs: Mapping[Path | None, DraftCosts] = MappingProxyType({}),
) -> tuple[list[AcceptanceCounts], ...]:
    """For every side the counts of its drafts, one for each trace.

    Drafts are loaded one after another. One that several sides give the same trace to is replayed once for them.
    """
    counts_by_side = tuple([AcceptanceCounts()] * len(traces) for _ in sides)
    done = 0
    for directory in dict.fromkeys(chain.from_iterable(sides)):
        model = load(directory)
        for number, trace in enumerate(traces):
            pairs = zip(counts_by_side, sides, strict=True)
            users = [counts for counts, drafts in pairs if drafts[number] == directory]
            if not users:
                continue
            [scored] = score_draft(model, [trace], terms, costs.get(directory))
            for counts in users:
                counts[number] = scored
            done += len(users)
            if on_replay:
                on_replay(done)
    return counts_by_side


def _part(task: str | None, answers: Sequence[_Answer], names: Sequence[Figure]) -> TaskComparison:
    traces, ours, theirs = zip(*answers, strict=True)
    prompts = [trace.prompt_ids for trace in traces]
    figures = {
        figure: PairedFigure(
            over_prompts(ours, prompts, figure),
            over_prompts(theirs, prompts, figure),
            compare(ours, theirs, prompts, figure),
        )
        for figure in names
    }
    return TaskComparison(task, len(traces), figures, _measured(traces))


def _measured(traces: Iterable[Trace]) -> ServedCounts:
    proposals = [trace.sources["draft"] for trace in traces if trace.sources and "draft" in trace.sources]
    return ServedCounts(
        len(proposals), sum(each.proposed for each in proposals), sum(each.accepted for each in proposals)
    )
