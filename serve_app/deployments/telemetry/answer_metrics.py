"""What answers bring and how long they take, by task and bundle version, as Ray metrics of an ingress replica.

Counters are of tokens, by the source of the proposals, and of moves: exported at every health check. Histograms are of
seconds: of an answer that has finished, one value each, observed when it does. An answer is one choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from ray.serve import metrics

from core.draft_key import DraftKey
from serve_app.application_names import draft_key, pool_application
from serve_app.deployments.models.served_models import ServedModels
from serve_app.http.ledger import AnswerLedger, TokenCounts, Totals

NONE = "none"  # the source of a pass without proposals; the version where no bundle is served
FIRST_TOKEN_BOUNDS = [0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 2.0, 5.0, 10.0, 30.0]
PER_TOKEN_BOUNDS = [0.001, 0.0015, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.5, 1.0]
ANSWER_BOUNDS = [0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0]


class Passes(NamedTuple):
    """The target passes that a count is of: the draft, the version of its bundle, and whose proposals were verified."""

    draft: DraftKey
    version: str
    source: str


class Move(NamedTuple):
    """The tasks between whose drafts answers move."""

    origin: str
    destination: str


class AnswerMetrics:
    """`taskspec_answer_*` and `taskspec_ingress_moves`, read from the ledgers of answers, those that run included."""

    def __init__(self) -> None:
        self._counters = {
            name: _counter(f"taskspec_answer_{name}", "task", "version", "source")
            for name in ("tokens", "proposed", "accepted")
        }
        self._moves = _counter("taskspec_ingress_moves", "from", "to")
        self._first_token = _histogram("time_to_first_token_seconds", FIRST_TOKEN_BOUNDS)
        self._per_token = _histogram("time_per_token_seconds", PER_TOKEN_BOUNDS)
        self._whole = _histogram("seconds", ANSWER_BOUNDS)
        self._open: dict[AnswerLedger, ServedModels] = {}
        self._closed: Totals[Passes] = Totals()
        self._exported: dict[Passes, TokenCounts] = {}
        self._exported_moves: Counter[Move] = Counter()

    def begin(self, ledger: AnswerLedger, served: ServedModels) -> None:
        """An answer begins with the drafts of these models."""
        self._open[ledger] = served

    def end(self, ledger: AnswerLedger) -> None:
        """Nothing is entered in the ledger any more."""
        self._closed.add(_entries(ledger, self._open.pop(ledger)))

    def observe(self, ledger: AnswerLedger, choice: int, version: str | None) -> None:
        """A choice has finished."""
        entry = ledger.choices[choice]
        ended_at = entry.first_at if entry.ended_at is None else entry.ended_at
        tags = {"task": _tag(entry.task), "version": version or NONE}
        self._first_token.observe(entry.first_at - ledger.began, tags)
        self._whole.observe(ended_at - ledger.began, tags)
        if entry.tokens_of_passes:
            self._per_token.observe((ended_at - entry.first_at) / entry.tokens_of_passes, tags)

    def by_pool(self) -> Totals[str]:
        """The passes that drafts proposed for, by the application of their pool."""
        passes = self._totals().items()
        return Totals((pool_application(key.draft), counts) for key, counts in passes if key.source == "draft")

    def export(self, moves: Counter[Move]) -> None:
        """Export what was counted since the last time; `moves` are all so far."""
        for passes, counts in self._totals().items():
            before = self._exported.get(passes, TokenCounts())
            tags = {"task": passes.draft.task, "version": passes.version, "source": passes.source}
            for name, counter in self._counters.items():
                if (more := getattr(counts, name) - getattr(before, name)) > 0:
                    counter.inc(more, tags)
            self._exported[passes] = counts
        for move, number in (moves - self._exported_moves).items():
            origin, destination = (pool_application(draft_key(task)) for task in move)
            self._moves.inc(number, {"from": origin, "to": destination})
        self._exported_moves = moves.copy()

    def _totals(self) -> Totals[Passes]:
        """Copies, which no later run changes."""
        totals = Totals(self._closed.items())
        for ledger, served in self._open.items():
            totals.add(_entries(ledger, served))
        return totals


def _entries(ledger: AnswerLedger, served: ServedModels) -> Iterator[tuple[Passes, TokenCounts]]:
    for line, counts in ledger.lines:
        yield Passes(served.draft_key(line.task), served.version or NONE, line.source or NONE), counts


def _counter(name: str, *tags: str) -> metrics.Counter:
    every: Any = tags  # Ray's annotation admits one tag, its code any number
    return metrics.Counter(name, tag_keys=every)


def _histogram(name: str, bounds: list[float]) -> metrics.Histogram:
    by_answer: Any = ("task", "version")
    return metrics.Histogram(f"taskspec_answer_{name}", boundaries=bounds, tag_keys=by_answer)


def _tag(task: str) -> str:
    """A task as in the key of its draft: Ray raises on a tag that is not ASCII."""
    return draft_key(task).task
