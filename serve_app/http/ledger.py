"""The ledger of an answer: every run is entered once, and whatever counts tokens or passes reads it from here.

The ingress keeps one per prompt: traces, metrics and the trial of a bundle read it, and so does the verifier that
resumes the answer. The HTTP side keeps one per request, for `usage`.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from core.draft_key import GENERAL
from core.generation import FinishReason, Source
from core.replay.decay import DraftedPass
from serve_app.http.service import ChoiceRun

Key = TypeVar("Key", bound=Hashable)
Clock = Callable[[], float]


class Line(NamedTuple):
    """What runs that are counted together have in common.

    `task` is that of the draft which serves the choice, `source` who proposed, None for passes without proposals.
    `moved` tells whether the draft of another task had proposed for the choice before.
    """

    task: str
    source: Source | None = None
    moved: bool = False


@dataclass(slots=True)
class TokenCounts:
    """Numbers of tokens: committed, verified proposals, accepted ones, and those that the target judged."""

    tokens: int = 0
    proposed: int = 0
    accepted: int = 0
    judged: int = 0

    def add(self, tokens: int, proposed: int, accepted: int, judged: int) -> None:
        self.tokens += tokens
        self.proposed += proposed
        self.accepted += accepted
        self.judged += judged


class Totals(defaultdict[Key, TokenCounts]):
    """The sums of counts with the same key."""

    def __init__(self, entries: Iterable[tuple[Key, TokenCounts]] = ()) -> None:
        super().__init__(TokenCounts)
        self.add(entries)

    def add(self, entries: Iterable[tuple[Key, TokenCounts]]) -> None:
        for key, counts in entries:
            self[key].add(counts.tokens, counts.proposed, counts.accepted, counts.judged)


def by_source(lines: Iterable[tuple[Line, TokenCounts]]) -> Totals[Source]:
    """The counts of the passes that each source proposed for."""
    return Totals((line.source, counts) for line, counts in lines if line.source is not None)


class ChoiceLedger:
    """The page of one choice. The prefill gives the first run, so that is no pass.

    `task` is that of the last run, `drafted_by` the task whose draft proposed last. `drafted` are the passes that this
    draft proposed for; once the choice has `moved` they are not told, as a proposal may still be the other draft's.
    `first_at` and `ended_at` are the clock's.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.lines: defaultdict[Line, TokenCounts] = defaultdict(TokenCounts)
        self.num_runs = 0
        self.num_first = 0  # tokens of the first run
        self.task = GENERAL
        self.drafted_by: str | None = None
        self.moved = False
        self.drafted: list[DraftedPass] = []
        self.first_at = 0.0
        self.ended_at: float | None = None
        self.finish_reason: FinishReason | None = None

    @property
    def finished(self) -> bool:
        return self.ended_at is not None

    @property
    def passes(self) -> int:
        return max(0, self.num_runs - 1)

    @property
    def tokens_of_passes(self) -> int:
        return len(self.tokens) - self.num_first

    @property
    def drafts(self) -> TokenCounts:
        """The counts of the passes for which drafts proposed."""
        return by_source(self.lines.items())["draft"]


class AnswerLedger:
    """The choices of one answer, by their indices. `clock` gives seconds.

    `task` is that of the draft which proposed last, for whichever choice; `tasks_left` are those that choices moved
    away from, one entry for each move.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self.began = clock()
        self.choices: defaultdict[int, ChoiceLedger] = defaultdict(ChoiceLedger)
        self.task = GENERAL
        self.tasks_left: list[str] = []

    def add(self, choice_run: ChoiceRun) -> ChoiceLedger:
        """Enter a run; returns the page of its choice."""
        run, choice = choice_run.run, self.choices[choice_run.choice]
        choice.task = choice_run.task
        if run.proposed and run.source == "draft":
            self._drafted(choice)
        line = Line(choice.task, run.source if run.proposed else None, choice.moved)
        choice.lines[line].add(len(run.tokens), run.proposed, run.accepted, run.num_judged)
        if line.source == "draft":
            choice.drafted.append(DraftedPass(len(choice.tokens), run.proposed, run.accepted))
        choice.tokens += run.tokens
        if not choice.num_runs:
            choice.num_first, choice.first_at = len(run.tokens), self._clock()
        choice.num_runs += 1
        if run.finish_reason is not None:
            choice.ended_at, choice.finish_reason = self._clock(), run.finish_reason
        return choice

    @property
    def lines(self) -> Iterator[tuple[Line, TokenCounts]]:
        """Those of every choice."""
        return (entry for choice in self.choices.values() for entry in choice.lines.items())

    def _drafted(self, choice: ChoiceLedger) -> None:
        self.task = choice.task
        if choice.drafted_by not in (None, choice.task):
            self.tasks_left.append(str(choice.drafted_by))
            choice.moved = True
        choice.drafted_by = choice.task
