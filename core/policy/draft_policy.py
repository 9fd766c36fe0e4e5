"""How many tokens each draft is asked for, whether a pass waits for them, and which new sessions go without a draft.

The policy compares plans by their goodput over the whole batch:

    goodput(plan) = expected tokens / (wait + pass_seconds(rows, num_drafting))

It takes the best plan, if that is clearly better than to draft nothing. All terms are running estimates. A draft that
drafts on while the target computes is waited for less, and slows the passes down: they share cores and memory. So a
plan also says whether it does. Where the target computes on all cores of its machine, none does: a draft beside it
would take them from it, and to find that out again and again costs more than other exploration may. (A draft on a
machine of its own could go on there, and does not.)

A draft ends its chain by itself, at the token where the chance that all of the chain is accepted falls below
`min_survival`. At the best goodput g, one more token must bring at least g times the seconds that it costs (the
marginal rule of fractional programming).

Exploration is one rule: estimates forget with time, and then rest on optimistic priors. A draft that does not pay is
asked again once its estimate has risen to where it would pay. The dearer such a request is, the longer that takes, so
that requests to a useless draft cost at most 2 x 0.7 / `FORGET_PASSES` of the time (the prior's weight and value).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, TypeVar

from core.draft_key import DraftKey
from core.policy.acceptance import BANDS, AcceptanceEstimate, band
from core.policy.cost_model import PassCosts
from core.policy.latency import DraftLatency
from core.policy.prompt_costs import Chunk
from core.policy.prompt_share import room

CLEARLY = 1.02  # times the goodput of drafting nothing: a lesser gain may be luck
FORGET_PASSES = 640  # after which an estimate that is not renewed has 1/e of its weight
OTHERS = DraftKey("*")  # stands for all drafts that were never met
_FORGET_EVERY = 16  # passes
_RUNNING_GAIN = 1 / 32  # per pass, of the running average of sessions
_MAX_KEYS, _MAX_PROCESSES = 64, 256  # remembered, keys in each band: drafts name themselves, and are not trusted
_INSTANT = 1e-6  # seconds; nobody waits for less
_HOPELESS = 2.0  # more than any chance

Key = TypeVar("Key")
Value = TypeVar("Value")


class DraftBudget(NamedTuple):
    """A request to a draft: at most `num_tokens`, none after a token whose survival is below `min_survival`.

    With `lookahead` it drafts on while the target verifies.
    """

    num_tokens: int
    min_survival: float = 0.0
    lookahead: bool = True


@dataclass(slots=True, eq=False)
class DraftEstimates:
    """The estimates of one draft; `latency` is that of the process which drafted with it last."""

    acceptance: AcceptanceEstimate = field(default_factory=AcceptanceEstimate)
    latency: DraftLatency = field(default_factory=DraftLatency)


class DraftedSessions(NamedTuple):
    """Sessions whose drafts are alike: so many of them, which may propose up to `limit` tokens each."""

    acceptance: AcceptanceEstimate
    latency: DraftLatency
    limit: int
    num_sessions: float


class Readiness(NamedTuple):
    """One session before a pass: what it brings now, and what once its proposal has arrived.

    `arrival` is the seconds until then, 0 if nothing is waited for. `tokens_*` are expected to be committed. With
    `required` it is waited for whether that pays or not.
    """

    arrival: float
    tokens_now: float
    tokens_then: float
    rows_now: int
    rows_then: int
    required: bool = False


class _Load(NamedTuple):
    """Tokens, rows, seconds of waiting and sessions drafted for: the share of some sessions in a pass.

    Of `num_drafted` sessions `num_drafting` are drafted for while the target computes.
    """

    tokens: float
    rows: float
    wait: float = 0.0
    num_drafted: float = 0.0
    num_drafting: float = 0.0


_NOTHING = _Load(0.0, 0.0)


class _Option(NamedTuple):
    """A group that is asked for so many tokens, with lookahead or without."""

    num_tokens: int
    lookahead: bool
    load: _Load


class DraftPolicy:
    """The estimates, and the plans made of them. Time enters only as observed seconds.

    Without `lookahead` no plan has drafts compute while the target does.
    """

    def __init__(self) -> None:
        self.lookahead = True
        self.costs = PassCosts()
        self._drafts: list[dict[DraftKey, DraftEstimates]] = [{} for _ in range(len(BANDS) + 1)]  # by band
        self._latencies: dict[bytes, DraftLatency] = {}
        self._running = 0.0
        self._passes = 0

    def estimates(self, key: DraftKey, process: bytes, temperature: float) -> DraftEstimates:
        """The estimates of a draft for answers about as hot, now that `process` drafts with it."""
        estimates = _recent(self._drafts[band(temperature)], key, DraftEstimates, _MAX_KEYS)
        estimates.latency = _recent(self._latencies, process, DraftLatency, _MAX_PROCESSES)
        return estimates

    def observe_pass(self, num_running: int) -> None:
        """Count a pass over so many sessions; every few of them, all estimates forget a little."""
        self._running += (num_running - self._running) * _RUNNING_GAIN
        self._passes += 1
        if self._passes % _FORGET_EVERY == 0:
            keep = math.exp(-_FORGET_EVERY / FORGET_PASSES)
            self.costs.forget(keep)
            for latency in self._latencies.values():
                latency.forget(keep)
            for estimates in chain.from_iterable(drafts.values() for drafts in self._drafts):
                estimates.acceptance.forget(keep)

    def plan(self, groups: Sequence[DraftedSessions], num_running: float) -> list[DraftBudget]:
        """A budget for each group of a pass over `num_running` sessions, of which the others have no draft.

        Each group in turn takes the option that is best given those of the others; all begin with the longest. Before
        a pass was measured, every row seems free.
        """
        budgets = [self.unplanned(group.limit) for group in groups]
        if not self.costs.known:
            return budgets
        options = [_options(group, lookahead=self.lookahead) for group in groups]
        chosen = [of_group[group.limit].load for group, of_group in zip(groups, options, strict=True)]
        plain = num_running - sum(group.num_sessions for group in groups)
        none = _Load(plain, plain)
        for _ in range(min(2, len(groups))):
            for index, (group, of_group) in enumerate(zip(groups, options, strict=True)):
                others = _together([none, *chosen[:index], *chosen[index + 1 :]])
                budgets[index], chosen[index] = self._best(group, of_group, others)
        drafting, nothing = _together([none, *chosen]), _together([none, *(of_group[0].load for of_group in options)])
        if drafting == nothing or self._goodput(drafting) <= CLEARLY * self._goodput(nothing):
            return [self.unplanned(0)] * len(groups)
        return budgets

    def unplanned(self, num_tokens: int) -> DraftBudget:
        """The budget for so many tokens where no plan is made, or none holds."""
        return DraftBudget(num_tokens, lookahead=self.lookahead)

    def least_chance(self, chances: Iterable[float], num_running: float) -> float:
        """The least chance of acceptance with which a token is worth its row, of tokens that are there already.

        `chances` are of all that could be proposed in a pass over `num_running` sessions. If no row is worth it, it is
        more than 1.
        """
        if not self.costs.known:
            return 0.0
        least, best = _HOPELESS, CLEARLY * num_running / self.costs.seconds(num_running)
        tokens = rows = num_running
        for chance in sorted(chances, reverse=True):
            tokens, rows = tokens + chance, rows + 1
            rate = tokens / self.costs.seconds(rows)
            if rate > best:
                least, best = chance, rate
        return least

    def first_budget(self, draft: DraftEstimates, limit: int) -> DraftBudget:
        """The budget of a draft that has just joined, until the next plan: as if all sessions had such drafts."""
        running = max(1.0, self._running)
        return self.plan([DraftedSessions(draft.acceptance, draft.latency, limit, running)], running)[0]

    def declined(self, num_sessions: int, limit: int, temperature: float) -> dict[DraftKey, bool]:
        """By draft, the last to join last, whether a new session should go without it; with `OTHERS`.

        About `num_sessions` will run beside it, taken to be spread evenly over the drafts met, and to be as hot.
        """
        sessions = max(num_sessions, round(self._running), 1)
        drafts = self._drafts[band(temperature)]
        each = sessions / max(1, len(drafts))
        met = [DraftedSessions(draft.acceptance, draft.latency, limit, each) for draft in drafts.values()]
        never_met = DraftedSessions(AcceptanceEstimate(), DraftLatency(), limit, sessions)
        budgets = [*self.plan(met, sessions), *self.plan([never_met], sessions)]
        return {key: not budget.num_tokens for key, budget in zip([*drafts, OTHERS], budgets, strict=True)}

    def seconds_to_wait(self, sessions: Sequence[Readiness], num_drafting: int, unread: Sequence[Chunk] = ()) -> float:
        """Seconds to wait for further proposals before the next pass; 0 means to begin it now.

        The pass will read of the `unread` prompts what it has room for.
        """
        arrivals = sorted({session.arrival for session in sessions if session.arrival > _INSTANT})
        if not arrivals or not self.costs.known:
            return 0.0
        now = _load_after(sessions, 0.0, num_drafting)
        reading = min(self.costs.prompts.seconds(unread), room(self.costs, 0, now.rows, num_drafting).seconds)
        best_wait, best_rate = 0.0, CLEARLY * self._goodput(now, reading=reading)
        for arrival in arrivals:
            rate = self._goodput(_load_after(sessions, arrival, num_drafting), reading=reading)
            if rate > best_rate:
                best_wait, best_rate = arrival, rate
        return max([best_wait, *(session.arrival for session in sessions if session.required)])

    def _best(self, group: DraftedSessions, options: Sequence[_Option], others: _Load) -> tuple[DraftBudget, _Load]:
        """The best option of a group beside others, with the least survival that is worth a token's seconds then."""
        rates = [self._goodput(others, option.load) for option in options]
        rate = max(rates)
        best = options[rates.index(rate)]
        per_row = self.costs.per_row(others.rows + group.num_sessions, max(1, group.limit))
        per_wait = group.latency.per_token / (others.num_drafted + group.num_sessions)
        return DraftBudget(best.num_tokens, min(1.0, rate * (per_row + per_wait)), best.lookahead), best.load

    def _goodput(self, load: _Load, other: _Load = _NOTHING, reading: float = 0.0) -> float:
        """Tokens a second of both together, in a pass that takes so many seconds for prompts beside them."""
        wait = max(other.wait, load.wait)
        seconds = wait + reading + self.costs.seconds(load.rows + other.rows, load.num_drafting + other.num_drafting)
        return (load.tokens + other.tokens) / seconds


def _options(group: DraftedSessions, *, lookahead: bool) -> list[_Option]:
    """A group that is asked for 0 .. `limit` tokens, with lookahead if it may, or, if that is worse, without."""
    number, expected = group.num_sessions, group.acceptance.expected(group.limit)
    drafting = [
        _Option(
            num_tokens,
            ahead,
            _Load(
                number * tokens,
                number * (1 + proposed),
                group.latency.mean(proposed, lookahead=ahead),
                number,
                number * ahead,
            ),
        )
        for ahead in ((True, False) if lookahead else (False,))
        for num_tokens, (tokens, proposed) in enumerate(expected[1:], 1)
    ]
    return [_Option(0, lookahead, _Load(number, number)), *drafting]


def _together(loads: Sequence[_Load]) -> _Load:
    tokens, rows, waits, drafted, drafting = zip(*loads, strict=True)
    return _Load(sum(tokens), sum(rows), max(waits), sum(drafted), sum(drafting))


def _load_after(sessions: Sequence[Readiness], wait: float, num_drafting: int) -> _Load:
    """A pass that begins after so many seconds."""
    there = [_INSTANT < session.arrival <= wait for session in sessions]
    tokens = sum(s.tokens_then if late else s.tokens_now for s, late in zip(sessions, there, strict=True))
    rows = sum(s.rows_then if late else s.rows_now for s, late in zip(sessions, there, strict=True))
    return _Load(tokens, rows, wait, num_drafted=num_drafting, num_drafting=num_drafting)


def _recent(table: dict[Key, Value], key: Key, make: Callable[[], Value], max_size: int) -> Value:
    """The value of a key, made if there is none, and from now on the last of at most so many."""
    value = table[key] = table.pop(key) if key in table else make()
    if len(table) > max_size:
        del table[next(iter(table))]
    return value
