"""Tokens per target pass of every draft that a retraining has made for a real model: exact replays, no clock.

    python -m tests.bench.real_drafts [--config train_jobs/configs/smollm2.yaml]

The answers are those of the retraining's test split, on which nothing was trained or chosen. A row has what is looked
up in the session's own text alone, the un-adapted draft, the base and the controls, the draft as routed, and that draft
beside own text, as far as they exist. The router and the slots are those of the bundle that is live; without one every
prompt goes to the un-adapted draft.

A draft proposes six tokens for a pass. Own text proposes at most sixteen, as far as they are worth their rows: the
choice is the engine's own, replayed by `tests.bench.competition` at the costs that `tests.bench.policy` has recorded.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console

from core.bundle.store import open_live
from core.confidence_intervals import Difference, compare, over_prompts
from core.draft_key import GENERAL
from core.generation import Run
from core.model.base import drawable_ids
from core.model.causal_lm import load_draft_model
from core.policy.acceptance import AcceptanceEstimate, band
from core.policy.draft_policy import DraftPolicy
from core.replay.replay import AcceptanceCounts, Terms, hits_among, output_logits, replay, session_forward
from core.tasks.classifier import TaskClassifier
from core.tasks.classifier_training import winner
from core.traces.record import Record
from core.traces.store import Trace
from core.verify.sources import DEFAULT
from core.verify.sources.choice import Sources
from serve_app.terminal.progress import Step, step
from tests.bench import machine
from tests.bench.competition import competition, counts
from tests.bench.output import header, save
from tests.bench.paired import Ratio
from tests.bench.policy import load
from train_jobs.config import load_config
from train_jobs.drafts.candidates import BASE, CONTINUED, MIXED, draft_name
from train_jobs.stages import open_workspace
from train_jobs.work.models import model_directory, replay_terms
from train_jobs.work.workspace import Workspace

OWN_TEXT, UNADAPTED, ROUTED, TOGETHER = "own text", "un-adapted", "as routed", "as routed and own text"
PAIRS = ((ROUTED, UNADAPTED), (ROUTED, BASE), (ROUTED, CONTINUED), (ROUTED, MIXED), (TOGETHER, ROUTED))
ALL = "all"


class Trial(NamedTuple):
    """An answer, where its draft hits it, and the draft's name."""

    record: Record
    hit: Sequence[bool]
    draft: str


class Drafts(NamedTuple):
    """Directories, None for the un-adapted draft: by name those for all prompts, and by slot those that serve."""

    single: Mapping[str, Path | None]
    slots: Mapping[str, Path | None]
    router: TaskClassifier | None

    def slot(self, prompt: Sequence[int]) -> str:
        """Where the router sends a prompt."""
        chosen = GENERAL if self.router is None else winner(self.router, prompt)
        return chosen if chosen in self.slots else GENERAL


class Part(NamedTuple):
    """Some of the answers, and the counts of each by what proposed."""

    temperature: float
    of: str
    traces: Sequence[Trace]
    counts: Mapping[str, Sequence[AcceptanceCounts]]

    @property
    def prompts(self) -> list[tuple[int, ...]]:
        return [trace.prompt_ids for trace in self.traces]

    def tokens_per_pass(self) -> dict[str, Ratio]:
        return {
            name: Ratio(*over_prompts(counted, self.prompts, "tokens_per_pass"), len(counted))
            for name, counted in self.counts.items()
        }

    def gains(self) -> dict[tuple[str, str], Difference]:
        """In tokens per pass, of the pairs that exist."""
        return {
            (ours, theirs): compare(self.counts[ours], self.counts[theirs], self.prompts, "tokens_per_pass")
            for ours, theirs in PAIRS
            if theirs in self.counts
        }


def made(work: Workspace) -> Drafts:
    """What the retraining has made so far, with its first seed, and what its live bundle serves."""
    fitted, seed = work.drafts(), work.config.align.seeds[0]
    names = {kind: draft_name(kind, GENERAL, None, seed) for kind in (BASE, CONTINUED, MIXED)}
    single: dict[str, Path | None] = {UNADAPTED: None}
    single |= {kind: fitted.draft(name) for kind, name in names.items() if fitted.done(name)}
    bundle = open_live(work.config.bundles).bundle
    slots = {GENERAL: None} if bundle is None else {slot: bundle.directory(slot) for slot in bundle.manifest.slots}
    router = None if bundle is None or bundle.router is None else TaskClassifier.load(bundle.router)
    return Drafts(single, slots, router)


def replayed(
    work: Workspace, traces: Sequence[Trace], drafts: Drafts, shown: Step
) -> dict[str, list[AcceptanceCounts]]:
    """The counts of every answer, by what proposed."""
    terms = replay_terms(work.config)
    hit = {directory: _hits(work, directory, traces, shown) for directory in _directories(drafts)}
    routed = [drafts.slot(trace.prompt_ids) for trace in traces]
    trials = [
        Trial(trace, hit[drafts.slots[slot]][number], slot)
        for number, (trace, slot) in enumerate(zip(traces, routed, strict=True))
    ]

    def looked_up(*, drafted: bool) -> list[AcceptanceCounts]:
        return [counts(runs) for runs in played(trials, terms, drafted=drafted)]

    return {
        OWN_TEXT: looked_up(drafted=False),
        **{
            name: [replay(one, trace, terms) for one, trace in zip(hit[directory], traces, strict=True)]
            for name, directory in drafts.single.items()
        },
        ROUTED: [replay(trial.hit, trial.record, terms) for trial in trials],
        TOGETHER: looked_up(drafted=True),
    }


def played(trials: Sequence[Trial], terms: Terms, *, drafted: bool) -> Iterator[list[Run]]:
    """The runs of each answer with own text, and with its draft if `drafted`, as one service would have them.

    It estimates a draft for each band of temperatures.
    """
    policy = DraftPolicy()
    for rows, seconds in load().pass_seconds.items():
        policy.costs.observe(rows, seconds)
    sources, estimates = Sources(policy, DEFAULT), dict[tuple[str, int], AcceptanceEstimate]()
    for record, hit, draft in trials:
        estimate = estimates.setdefault((draft, band(record.params.temperature)), AcceptanceEstimate())
        yield list(competition(record, terms, sources, hit if drafted else None, estimate))


def _directories(drafts: Drafts) -> list[Path | None]:
    return list(dict.fromkeys([*drafts.single.values(), *drafts.slots.values()]))


def _hits(work: Workspace, directory: Path | None, traces: Sequence[Trace], shown: Step) -> list[list[bool]]:
    """Of one draft on all answers, as `core.replay.replay.score_draft` finds them."""
    draft, target = (model_directory(name) for name in (work.config.draft, work.config.target.model))
    model = load_draft_model(directory, draft, dtype=torch.float32, target=target)
    ids, forward = drawable_ids(model.head_ids, replay_terms(work.config).num_valid), session_forward(model)
    found = []
    for trace in traces:
        found.append(hits_among(ids, trace, output_logits(trace, forward, model.context)))
        shown.reach(shown.done + 1)
    return found


def parts(traces: Sequence[Trace], found: Mapping[str, Sequence[AcceptanceCounts]]) -> Iterator[Part]:
    """By temperature and source of the prompts, and of all sources."""
    for temperature in sorted({trace.params.temperature for trace in traces}):
        for of in [*sorted({trace.task or "" for trace in traces}), ALL]:
            numbers = [
                number
                for number, trace in enumerate(traces)
                if trace.params.temperature == temperature and of in (trace.task or "", ALL)
            ]
            if numbers:
                some = {name: [each[number] for number in numbers] for name, each in found.items()}
                yield Part(temperature, of, [traces[number] for number in numbers], some)


def page(found: Sequence[Part]) -> str:
    """Markdown: tokens per pass, and the differences between what proposed."""
    names, pairs = list(found[0].counts), list(found[0].gains())
    lines = header(["temperature", "prompts of", "answers", *names])
    lines += [_row(part, [str(ratio) for ratio in part.tokens_per_pass().values()]) for part in found]
    lines += ["", *header(["temperature", "prompts of", "answers", *(f"{one} over {two}" for one, two in pairs)])]
    lines += [_row(part, [_signed(gain) for gain in part.gains().values()]) for part in found]
    return "\n".join(lines)


def _row(part: Part, cells: Sequence[str]) -> str:
    return f"| {part.temperature:g} | {part.of} | {len(part.traces)} | {' | '.join(cells)} |"


def _signed(gain: Difference) -> str:
    value, low, high = gain[:3]
    return f"{value:+.2f} ({low:+.2f} to {high:+.2f})"


def as_json(found: Sequence[Part]) -> list[dict[str, object]]:
    return [
        {
            "temperature": part.temperature,
            "prompts_of": part.of,
            "answers": len(part.traces),
            "tokens_per_pass": {name: ratio._asdict() for name, ratio in part.tokens_per_pass().items()},
            "gains": {f"{ours} over {theirs}": gain._asdict() for (ours, theirs), gain in part.gains().items()},
        }
        for part in found
    ]


def main(argv: Sequence[str] | None = None) -> None:
    about = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m tests.bench.real_drafts", description=about)
    parser.add_argument("--config", type=Path, default=Path("train_jobs/configs/smollm2.yaml"), help="the retraining's")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/real_drafts"))
    chosen, console = parser.parse_args(argv), Console(stderr=True)
    work = open_workspace(load_config(chosen.config).anchored())
    traces, drafts = work.traces("test"), made(work)
    if not traces:
        raise SystemExit(f"{chosen.config}: the retraining has no answers in its test split yet")
    with step(console, "Replaying", "Replayed", len(traces) * len(_directories(drafts))) as shown:
        found = list(parts(traces, replayed(work, traces, drafts, shown)))
    slots = ", ".join(drafts.slots)
    text = f"{page(found)}\n\nTokens per target pass (95 %). Slots: {slots}. {machine.line()}\n"
    save(chosen, "real_drafts", text, {"parts": as_json(found)}, slots=slots)


if __name__ == "__main__":
    main()
