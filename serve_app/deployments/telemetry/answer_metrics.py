"""What answers bring and how long they take, by task and bundle version, as Ray metrics of an ingress replica.

Counters are of tokens, by the source of the proposals: exported at every health check. Histograms are of seconds: of an
answer that has finished, one value each, observed when it does (about 4 us a value). An answer is one choice.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ray.serve import metrics

from core.generation import Run
from serve_app.config import draft_key
from serve_app.http.service import ChoiceRun

NONE = "none"  # the source of a pass without proposals; the version where no bundle is served
FIRST_TOKEN_BOUNDS = [0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 2.0, 5.0, 10.0, 30.0]
PER_TOKEN_BOUNDS = [0.001, 0.0015, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.5, 1.0]
ANSWER_BOUNDS = [0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0]

Clock = Callable[[], float]


class Passes(NamedTuple):
    """The target passes that a count is of: task and version of the draft, and whose proposals were verified."""

    task: str
    version: str
    source: str


@dataclass(slots=True)
class Tokens:
    """Numbers of tokens."""

    tokens: int = 0
    proposed: int = 0
    accepted: int = 0


class AnswerMetrics:
    """`taskspec_answer_*`. `clock` gives seconds."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        by_passes: Any = Passes._fields  # Ray's annotation admits one tag, its code any number
        self._counters = {
            name: metrics.Counter(f"taskspec_answer_{name}", tag_keys=by_passes)
            for name in ("tokens", "proposed", "accepted")
        }
        self.first_token = _histogram("time_to_first_token_seconds", FIRST_TOKEN_BOUNDS)
        self.per_token = _histogram("time_per_token_seconds", PER_TOKEN_BOUNDS)
        self.whole = _histogram("seconds", ANSWER_BOUNDS)
        self._clock = clock
        self._counted: defaultdict[Passes, Tokens] = defaultdict(Tokens)
        self._exported: defaultdict[Passes, Tokens] = defaultdict(Tokens)

    def begin(self) -> AnswerTimes:
        """The answers of a generation that begins now."""
        return AnswerTimes(self, self._clock)

    def count(self, task: str, version: str, run: Run) -> None:
        counted = self._counted[Passes(task, version, run.source if run.proposed else NONE)]
        counted.tokens += len(run.tokens)
        counted.proposed += run.proposed
        counted.accepted += run.accepted

    def export(self) -> None:
        """Export what was counted since the last time."""
        for passes, counted in self._counted.items():
            exported, tags = self._exported[passes], passes._replace(task=_tag(passes.task))._asdict()
            for name, counter in self._counters.items():
                if (more := getattr(counted, name) - getattr(exported, name)) > 0:
                    counter.inc(more, tags)
                    setattr(exported, name, getattr(counted, name))


class AnswerTimes:
    """The answers of one generation: what their runs hold, and when they arrive."""

    def __init__(self, answers: AnswerMetrics, clock: Clock) -> None:
        self._answers = answers
        self._clock = clock
        self._began = clock()
        self._first: dict[int, float] = {}  # by choice, the seconds from the beginning to its first run
        self._later: defaultdict[int, int] = defaultdict(int)  # by choice, the tokens of all other runs

    def take(self, choice_run: ChoiceRun, version: str | None) -> None:
        """A run has arrived; `version` is that of the bundle whose drafts propose for it, None without a bundle."""
        choice, run, task = choice_run.choice, choice_run.run, choice_run.task
        self._answers.count(task, version or NONE, run)
        if choice in self._first:
            self._later[choice] += len(run.tokens)
        else:
            self._first[choice] = self._clock() - self._began
        if run.finish_reason is not None:
            self._observe(choice, {"task": _tag(task), "version": version or NONE})

    def _observe(self, choice: int, tags: dict[str, str]) -> None:
        first, whole, later = self._first[choice], self._clock() - self._began, self._later[choice]
        self._answers.first_token.observe(first, tags)
        self._answers.whole.observe(whole, tags)
        if later:
            self._answers.per_token.observe((whole - first) / later, tags)


def _histogram(name: str, bounds: list[float]) -> metrics.Histogram:
    by_answer: Any = ("task", "version")
    return metrics.Histogram(f"taskspec_answer_{name}", boundaries=bounds, tag_keys=by_answer)


def _tag(task: str) -> str:
    """A task as in the name of its draft: Ray raises on a tag that is not ASCII."""
    return draft_key(task).task
