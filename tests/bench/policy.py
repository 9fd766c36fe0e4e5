"""Judges the drafting policy in seconds: recorded rounds, replayed on a fake clock.

    python -m tests.bench.policy [--streams 1 2 4 8 16 32] [--out tests/bench/results/policy]
    python -m tests.bench.policy --vary        # what half and twice of every number of the policy do

The record holds what the shipped drafts propose at every position of some answers, how sure they are of each token, how
much of it the target accepts, and what passes and drafting take on one machine. A replay puts `core.policy` in the
middle of that: its plans decide what is proposed, the record decides what comes of it. The costs of the fake machine
are those recorded; `contention` is the share by which a pass slows down per session that is drafted for.

Every cell is goodput over that of plain decoding. `best fixed` is the best of all fixed lengths in hindsight.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from core.draft.token_confidence import EDGES, Confidence
from core.draft_key import DraftKey
from core.policy import acceptance, cost_model, draft_policy, latency
from core.policy.draft_policy import (
    CLEARLY,
    OTHERS,
    DraftBudget,
    DraftedSessions,
    DraftEstimates,
    DraftPolicy,
    Readiness,
)
from tests.bench.output import save

RECORD = Path(__file__).parent / "recorded" / "rounds.json"
LENGTH = 6  # tokens proposed for a pass at most
JOIN_PASSES = 2  # until a draft's first proposal: the router, two Serve calls, the prompt
PASSES = 1500  # of a replay
KINDS = ("task", "general", "useless", "slow")
NUMBERS: tuple[tuple[Any, ...], ...] = (
    (draft_policy, "CLEARLY", 1.0, 1.05),
    (draft_policy, "FORGET_PASSES"),
    (draft_policy, "_RUNNING_GAIN"),
    (acceptance, "MEMORY"),
    (acceptance, "PRIOR_ACCEPTANCE", 0.5, 0.85),
    (acceptance, "PRIOR_WEIGHT"),
    (latency, "MEMORY"),
    (latency, "TRIP"),
    (latency, "PRIOR_WEIGHT"),
    (cost_model, "_PACE_GAIN"),
    (cost_model, "_SHAPE_GAIN"),
)
"""Module, name, and other values if half and twice make no sense."""
SLOWER = 40  # times as long as recorded, for the `slow` draft of the tasks


class Draft(msgspec.Struct, frozen=True):
    """Of one draft on one answer: at every position the accepted tokens, and the class of each token's margin."""

    accepted: tuple[int, ...]
    margins: tuple[tuple[int, ...], ...]


class Answer(msgspec.Struct, frozen=True):
    """One answer, and every draft on it."""

    task: str
    slot: str
    drafts: dict[str, Draft]


class Recorded(msgspec.Struct, frozen=True):
    """Answers, and one machine's seconds: of passes by rows, of a drafted token, of a message there and back."""

    machine: str
    pass_seconds: dict[int, float]
    token_seconds: float
    trip_seconds: float
    contention: float
    answers: tuple[Answer, ...]


class Machine(NamedTuple):
    """A fake one."""

    recorded: Recorded
    slower: float = 1.0

    def pass_seconds(self, rows: int, num_drafting: int) -> float:
        sizes = sorted(self.recorded.pass_seconds)
        below = max((size for size in sizes if size <= rows), default=sizes[0])
        above = min((size for size in sizes if size >= rows), default=sizes[-1])
        low, high = self.recorded.pass_seconds[below], self.recorded.pass_seconds[above]
        share = (rows - below) / (above - below) if above > below else 0.0
        beyond = max(1.0, rows / sizes[-1])
        return beyond * (low + share * (high - low)) * (1.0 + self.recorded.contention * num_drafting)

    def drafting_seconds(self, tokens: int) -> float:
        return self.slower * self.recorded.token_seconds * (tokens + 1)


@dataclass
class Stream:
    """One stream: the answer that it is at, and the state of its draft."""

    answer: Answer
    kind: str
    position: int = 0
    passes: int = 0
    estimates: DraftEstimates | None = None
    budget: DraftBudget = field(default_factory=lambda: DraftBudget(0))
    arrives: float | None = None
    asked_at: float = 0.0

    @property
    def draft(self) -> Draft:
        return self.answer.drafts[{"task": self.answer.slot, "slow": self.answer.slot}.get(self.kind, self.kind)]

    @property
    def label(self) -> str:
        return f"{self.kind} {self.answer.slot}" if self.kind in ("task", "slow") else self.kind

    @property
    def remaining(self) -> int:
        return len(self.draft.accepted) - self.position


@dataclass
class Replay:
    """Streams of one kind of draft through one policy; `fixed` is a plan that always asks for so many tokens."""

    machine: Machine
    kind: str
    streams: int
    fixed: int | None = None
    policy: DraftPolicy = field(default_factory=DraftPolicy)
    now: float = 0.0
    tokens: int = 0
    proposed: int = 0

    def run(self, passes: int = PASSES) -> float:
        """Tokens a second of the later half of the passes."""
        for rows, seconds in self.machine.recorded.pass_seconds.items():
            self.policy.costs.observe(rows, seconds)
        self._confidence = Confidence()
        self._answers = cycle(self.machine.recorded.answers)
        running = [Stream(answer, self.kind) for answer in islice(self._answers, self.streams)]
        for number, stream in enumerate(running):  # they do not all end at once
            stream.position = number * stream.remaining // (2 * self.streams)
        half = (0.0, 0)
        for number in range(passes):
            if number == passes // 2:
                half = (self.now, self.tokens)
            self._pass(running)
        return (self.tokens - half[1]) / (self.now - half[0])

    def _pass(self, running: list[Stream]) -> None:
        drafting = sum(stream.budget.num_tokens > 0 and stream.budget.lookahead for stream in running)
        began = self.now
        while wait := self._seconds_to_wait(running, drafting):
            self.now += wait
        waited = self.now - began
        proposals = [self._proposal(stream) for stream in running]
        rows = sum(1 + proposed for proposed in proposals)
        seconds = self.machine.pass_seconds(rows, drafting)
        self.now += seconds
        for stream, proposed in zip(running, proposals, strict=True):
            self._commit(stream, proposed, waited > 0.0)
        self.policy.costs.observe(rows, seconds, drafting)
        self.policy.observe_pass(len(running))
        for index, stream in enumerate(running):
            if stream.remaining <= 0:
                running[index] = Stream(next(self._answers), self.kind)
            elif stream.estimates is None and stream.passes == JOIN_PASSES and self._joins(stream, len(running)):
                stream.estimates = self.policy.estimates(DraftKey(stream.label), stream.label.encode(), 1.0)
        self._plan(running)

    def _seconds_to_wait(self, running: Sequence[Stream], drafting: int) -> float:
        if self.fixed is not None:
            late = [one.arrives - self.now for one in running if one.arrives is not None]
            return max(0.0, *late, 0.0)
        ready = []
        for stream in running:
            if stream.estimates is None or stream.arrives is None:
                ready.append(Readiness(0.0, 1.0, 1.0, 1, 1))
                continue
            acceptance, most = stream.estimates.acceptance, min(stream.budget.num_tokens, stream.remaining - 1)
            then, there = acceptance.expected(max(0, most))[-1], self._proposal(stream)
            known = stream.estimates.latency.known and stream.arrives > self.now
            arrival = max(stream.arrives - self.now, 1e-5) if known else 0.0
            rows = 1 + round(then.proposed)
            ready.append(Readiness(arrival, acceptance.tokens(there), then.tokens, 1 + there, rows))
        return self.policy.seconds_to_wait(ready, drafting)

    def _proposal(self, stream: Stream) -> int:
        """The tokens in hand: the chain ends where the draft ends it."""
        if stream.arrives is None or stream.arrives > self.now:
            return 0
        return self._length(stream)

    def _length(self, stream: Stream) -> int:
        most, survival = min(stream.budget.num_tokens, stream.remaining - 1), 1.0
        for length, margin in enumerate(stream.draft.margins[stream.position][:most]):
            if survival < stream.budget.min_survival:
                return length
            survival *= self._confidence.of(_middle(margin))
        return max(0, most)

    def _commit(self, stream: Stream, proposed: int, waited: bool) -> None:
        accepted = min(proposed, stream.draft.accepted[stream.position])
        if stream.estimates is not None and proposed:
            stream.estimates.acceptance.observe(stream.budget.num_tokens, proposed, accepted)
        if stream.estimates is not None and stream.arrives is not None and stream.arrives <= self.now:
            drafting = self.machine.drafting_seconds(self._length(stream))
            trip = self.machine.recorded.trip_seconds
            stream.estimates.latency.observe(self._length(stream), drafting, drafting + trip if waited else None)
        margins = stream.draft.margins[stream.position][:proposed]
        for index, margin in enumerate(margins[: accepted + 1]):
            self._confidence.observe(_middle(margin), right=index < accepted)
        stream.position += accepted + 1
        stream.passes += 1
        self.tokens += accepted + 1
        self.proposed += proposed

    def _joins(self, stream: Stream, sessions: int) -> bool:
        if self.fixed is not None:
            return self.fixed > 0
        declined = self.policy.declined(sessions, LENGTH, 1.0)
        return not declined.get(DraftKey(stream.label), declined[OTHERS])

    def _plan(self, running: Sequence[Stream]) -> None:
        groups: dict[str, list[Stream]] = {}
        for stream in running:
            if stream.estimates is not None:
                groups.setdefault(stream.label, []).append(stream)
        drafted = [
            DraftedSessions(of[0].estimates.acceptance, of[0].estimates.latency, LENGTH, len(of))  # type: ignore[union-attr]
            for of in groups.values()
        ]
        plan = (
            self.policy.plan(drafted, len(running)) if self.fixed is None else [DraftBudget(self.fixed)] * len(drafted)
        )
        for budget, of in zip(plan, groups.values(), strict=True):
            for stream in of:
                stream.budget, stream.arrives = budget, None
                if budget.num_tokens:
                    seconds = self.machine.drafting_seconds(self._length(stream))
                    stream.arrives = self.now + self.machine.recorded.trip_seconds + seconds


def _middle(margin: int) -> float:
    """A margin of the class."""
    edges = (0.0, *EDGES, 2 * EDGES[-1])
    return (edges[margin] + edges[margin + 1]) / 2


def load() -> Recorded:
    return msgspec.json.decode(RECORD.read_bytes(), type=Recorded)


def judge(recorded: Recorded, kind: str, streams: int) -> tuple[float, float, float]:
    """Goodput with the policy and with the best fixed length, over plain's; and tokens proposed per pass and stream."""
    machine = Machine(recorded, SLOWER if kind == "slow" else 1.0)
    plain = Replay(machine, kind, streams, fixed=0).run()
    fixed = max(Replay(machine, kind, streams, fixed=length).run(PASSES // 3) for length in range(LENGTH + 1))
    replay = Replay(machine, kind, streams)
    return replay.run() / plain, fixed / plain, replay.proposed / PASSES / streams


def goodputs(recorded: Recorded) -> list[float]:
    """Of 16 replays, as `core.policy` lists them."""
    return [
        Replay(Machine(recorded, SLOWER if kind == "slow" else 1.0), kind, streams).run(800)
        for kind in KINDS
        for streams in (1, 2, 4, 8)
    ]


def vary(recorded: Recorded) -> str:
    """A line for each number of the policy with other values: the worst, mean and best change of goodput."""
    before = goodputs(recorded)
    lines = []
    for module, name, *values in NUMBERS:
        usual = getattr(module, name)
        for value in values or (usual / 2, usual * 2):
            setattr(module, name, value)
            changes = [now / then - 1.0 for now, then in zip(goodputs(recorded), before, strict=True)]
            mean = sum(changes) / len(changes)
            shown = f"{name} {usual:g} -> {value:g}: {min(changes):+.1%}, {mean:+.1%}, {max(changes):+.1%}"
            lines.append(f"{module.__name__}.{shown}")
        setattr(module, name, usual)
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.policy", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--vary", action="store_true", help="change the numbers of the policy one by one")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/policy"))
    chosen = parser.parse_args(argv)
    recorded = load()
    if chosen.vary:
        print(vary(recorded))
        return
    lines = ["| streams | " + " | ".join(f"{kind}: policy / best fixed / proposed" for kind in KINDS) + " |"]
    lines.append("|---" * (1 + len(KINDS)) + "|")
    found: dict[str, Mapping[str, object]] = {}
    for streams in chosen.streams:
        cells = {kind: judge(recorded, kind, streams) for kind in KINDS}
        texts = [f"{ours:.2f} / {fixed:.2f} / {proposed:.1f}" for ours, fixed, proposed in cells.values()]
        lines.append(f"| {streams} | " + " | ".join(texts) + " |")
        found[str(streams)] = cells
    about = f"{len(recorded.answers)} answers on a fake clock; {recorded.machine}; needed: {CLEARLY:.2f}."
    text = "\n".join([*lines, "", f"{about}\n"])
    save(chosen, "policy", text, {"found": json.loads(msgspec.json.encode(found))})


if __name__ == "__main__":
    main()
