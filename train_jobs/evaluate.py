"""Fifth stage: every slot's candidates on held-out prompts, and what each slot gets.

Enters: fitted drafts, the bundle that is live. Leaves: exact counts per draft and trace, and a verdict per slot. The
gate decides on one part of the held-out prompts; the figures that are told come from another.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from core.acceptance import total
from core.bundle import Bundle, open_live
from core.durable import replace
from core.family import locate
from core.gate import choose
from core.id_map import digest
from core.model.loader import public_name
from train_jobs import align, collect, partition
from train_jobs.collected import Collected
from train_jobs.config import RetrainConfig
from train_jobs.partition import Assigned
from train_jobs.progress import Progress
from train_jobs.runs import FULL, MIXED, control_run, of_task, task_run
from train_jobs.scores import Numbers, Scores, Scoring, score_all
from train_jobs.units import Unit

GENERAL, TASK, LIVE = "general", "task", "live"
_LIVE, _VERDICT = "live.json", "verdict.json"


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """What a slot gets: the candidate, where it lies (None: the draft as it is), why, and acceptance by candidate."""

    decision: str
    draft: str | None
    reason: str
    scores: dict[str, float]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A ruling per task, by name, and one for the general slot."""

    tasks: dict[str, Ruling]
    general: Ruling

    @property
    def one_draft(self) -> bool:
        """Whether one draft is best everywhere, so that one pool serves all."""
        return all(ruling.draft == self.general.draft for ruling in self.tasks.values())


def unit(config: RetrainConfig) -> Unit:
    """Where it is written, and what it depends on."""
    return Unit(config.work / "evaluate", align.unit(config).key)


def run(config: RetrainConfig, progress: Progress) -> None:
    """Score all candidates and rule on every slot."""
    directory = unit(config).start()
    assigned = Assigned(partition.unit(config).directory)
    live = _live_drafts(config, assigned, directory)
    wanted = list(_wanted(config, assigned, live))
    scores = score_all(config, directory, wanted, "evaluate", progress)
    ruled = _rule(config, assigned, live, scores)
    replace(directory / _VERDICT, msgspec.json.encode(ruled))


def verdict(config: RetrainConfig) -> Verdict:
    """What the stage ruled."""
    return msgspec.json.decode((unit(config).directory / _VERDICT).read_bytes(), type=Verdict)


def live_run(slot: str) -> str:
    """Name of the live draft of a slot among the scores."""
    return f"{LIVE}-{slot}"


def _live_drafts(config: RetrainConfig, assigned: Assigned, directory: Path) -> dict[str, Path]:
    """The adapted drafts that serve the slots now; looked up once, so that a resumed run compares with the same."""
    file = directory / _LIVE
    if not file.exists():
        bundle = open_live(config.bundles).bundle
        found = _adapted(bundle, config, assigned) if bundle else {}
        replace(file, msgspec.json.encode({slot: str(draft) for slot, draft in found.items()}))
    return {slot: Path(draft) for slot, draft in msgspec.json.decode(file.read_bytes(), type=dict[str, str]).items()}


def _adapted(bundle: Bundle, config: RetrainConfig, assigned: Assigned) -> dict[str, Path]:
    """By slot; a task that the bundle does not know is served by its general slot."""
    said = bundle.manifest
    ours = (public_name(config.target.model), public_name(config.draft), digest(locate(config.target.model)))
    if (said.target, said.draft, said.id_map) != ours:
        return {}
    slots = {slot: slot if slot in said.slots else GENERAL for slot in (*assigned.names, GENERAL)}
    served = {slot: bundle.directory(known) for slot, known in slots.items()}
    return {slot: directory for slot, directory in served.items() if directory is not None}


def _wanted(config: RetrainConfig, assigned: Assigned, live: dict[str, Path]) -> Iterator[Scoring]:
    everything: Numbers = {part: list(range(len(assigned.labels(part)))) for part in ("gate", "test")}
    fitted = align.unit(config).directory
    yield Scoring(GENERAL, None, everything)
    for seed in config.align.seeds:
        for kind in (MIXED, FULL) if config.align.full_fine_tune else (MIXED,):
            name = control_run(kind, seed)
            yield Scoring(name, align.fitted(fitted, name), everything)
        for task in range(assigned.partition.k if assigned.partition.k > 1 else 0):
            name = task_run(task, seed)
            yield Scoring(name, align.fitted(fitted, name), _numbers(assigned, task))
    for slot, directory in live.items():
        yield Scoring(live_run(slot), directory, everything if slot == GENERAL else _named(assigned, slot))


def _numbers(assigned: Assigned, task: int) -> Numbers:
    return {part: of_task(assigned.labels(part), task) for part in ("gate", "test")}


def _named(assigned: Assigned, name: str) -> Numbers:
    return _numbers(assigned, assigned.names.index(name))


def _rule(config: RetrainConfig, assigned: Assigned, live: dict[str, Path], scores: Scores) -> Verdict:
    """Of every slot, among its candidates in the order of the gate."""
    fitted, seed = align.unit(config).directory, config.align.seeds[0]
    mixed, full = control_run(MIXED, seed), control_run(FULL, seed)
    prompts = [trace.prompt_ids for trace in Collected(collect.unit(config).directory).traces("gate")]

    def rule(slot: str, runs: dict[str, str], numbers: list[int]) -> Ruling:
        drafts: dict[str, Path | None] = {LIVE: live[slot]} if slot in live else {}
        names = {LIVE: live_run(slot)} if slot in live else {}
        drafts |= {GENERAL: None} | {kind: align.fitted(fitted, run) for kind, run in runs.items()}
        names |= {GENERAL: GENERAL} | runs
        found = {kind: scores.of(name, "gate", numbers) for kind, name in names.items()}
        choice = choose(found, [prompts[number] for number in numbers])
        rates = {kind: total(counts).acceptance_rate for kind, counts in found.items()}
        draft = drafts[choice.name]
        return Ruling(
            decision=choice.name, draft=None if draft is None else str(draft), reason=choice.reason, scores=rates
        )

    labels, names = assigned.labels("gate"), assigned.names if assigned.partition.k > 1 else ()
    controls = {MIXED: mixed} | ({FULL: full} if config.align.full_fine_tune else {})
    tasks = {
        name: rule(name, {MIXED: mixed, TASK: task_run(task, seed)}, of_task(labels, task))
        for task, name in enumerate(names)
    }
    return Verdict(tasks=tasks, general=rule(GENERAL, controls, list(range(len(labels)))))
