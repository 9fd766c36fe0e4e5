"""How much to ask of a draft: so many tokens at most, as long as they are likely enough to be worth it, or none.

Enters: what proposals are expected to bring and how long they take, what the rest of the pass holds, measured step
costs. Leaves: an ask. Rate is goodput over the whole batch: a row that helps one session makes the pass longer for all
(design 6). The draft ends its chain where the chance that all of it is accepted falls below `worth`: at the best rate,
one more token must bring at least what its time brings elsewhere (fractional programming's marginal rule). The token
that shows it has been drafted and goes along.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from core.estimator import Expected
from core.reply import Reply
from core.step_costs import StepCosts

FIRST_PAUSE, LONGEST_PAUSE = 16, 128  # passes between two looks at a draft that does not pay
LEARNING, EXPLORE = 8, 16  # the first asks, then one in so many, are for all there may be: so it is learned about
# By how much better than plain a pass with drafts must be, and waiting for them than not waiting: less is a few lucky
# guesses, and a useless draft has such, too. And by how much more than plain where sessions are many: that drafts are
# opened, and take the target's cores from it, is in no estimate.
CLEARLY, BESIDE_OTHERS = 0.02, 0.2
BETWEEN_SCOUTS = 128  # passes; the draft of one reads the prompt and is looked at some five times in 32 tokens


class Ask(NamedTuple):
    """At most so many tokens, none after one whose chance to be reached and accepted is less than `worth`."""

    most: int
    worth: float = 0.0


class Prospect(NamedTuple):
    """What sessions, `drafted` of them with a draft, bring to a pass: expected tokens, rows, the seconds of waiting."""

    tokens: float = 0.0
    rows: float = 0.0
    wait: float = 0.0
    drafted: int = 0


def best_ask(expected: Sequence[Expected], reply: Reply, others: Prospect, costs: StepCosts) -> Ask:
    """What to ask of a session's draft, where `expected[k]` is what comes of asking for at most k tokens.

    Sessions whose drafts are waited for share what waiting longer costs. Before a pass has been measured every row
    seems free.
    """
    most = len(expected) - 1
    length, best_rate = 0, 0.0
    for asked, (tokens, proposed) in enumerate(expected):
        wait = max(others.wait, reply.mean(proposed)) if asked else others.wait
        pass_seconds = costs.seconds(round(others.rows + 1 + proposed))
        if pass_seconds <= 0.0:
            return Ask(most)
        rate = (others.tokens + tokens) / (wait + pass_seconds)
        if rate > best_rate:
            length, best_rate = asked, rate
    if not length:
        return Ask(0)
    each = costs.per_row(round(others.rows) + 1, most) + reply.each / (others.drafted + 1)
    return Ask(length, best_rate * each)


def pays(planned: Prospect, sessions: int, costs: StepCosts) -> bool:
    """Whether a pass over so many sessions is clearly better as planned than with no proposals.

    What is best for each session alone need not be for all: where each finds that the others wait anyway, all wait.
    """
    plain, seconds = costs.seconds(sessions), planned.wait + costs.seconds(round(planned.rows))
    better = 1.0 + CLEARLY + BESIDE_OTHERS * (1.0 - 1.0 / sessions)
    return plain == 0.0 or planned.tokens * plain > better * sessions * seconds


def would_pay(expected: Sequence[Expected], reply: Reply, sessions: int, costs: StepCosts) -> bool:
    """Whether it paid to ask such drafts for anything if each of so many sessions had one."""
    plans = (
        Prospect(sessions * tokens, sessions * (1 + proposed), reply.mean(proposed), sessions)
        for tokens, proposed in expected[1:]
    )
    return any(pays(plan, sessions, costs) for plan in plans)


def costs_nothing(reply: Reply, costs: StepCosts) -> bool:
    """Whether waiting for one token of a lone session's draft brings at least as much as it costs where it is right."""
    return pays(Prospect(2.0, 2.0, reply.mean(1), 1), 1, costs)


class Probe:
    """Now and then more is asked of an adapter's drafts than seems best, to see whether they are better than it seems.

    Ones that do not pay are asked for one token, in every pass while that is right and costs nothing, else at the
    beginning of a session and ever more rarely after it; ones that would pay, but not together with the others, ever
    more rarely until they do.
    """

    def __init__(self) -> None:
        self._pause = FIRST_PAUSE  # of a draft that does not pay
        self._rest = FIRST_PAUSE  # of one that would, but not together with the others
        self._since = 0
        self._asks = 0

    def next_pass(self) -> None:
        """Called once before the asks for a pass, however many sessions they are for."""
        self._since += 1

    def right(self) -> None:
        """The token that a look was for was right, and waiting for such costs nothing."""
        self._pause = 0

    def begin_session(self) -> None:
        """A session has just got a draft that does not pay: it is here to tell whether that is so still."""
        self._pause = self._rest = 1

    def ask(self, best: Ask, most: int, *, together: bool = True) -> Ask:
        """What to ask for where `best` is best and `most` the most; called at every ask.

        `together`: whether it pays to ask what is best for each; where it does not, that a draft is right is no news.
        """
        if best.most and together:
            self._rest = FIRST_PAUSE
            self._asks += 1
            return best if self._asks > LEARNING and self._asks % EXPLORE else Ask(most, best.worth)
        if self._since < (self._rest if best.most else self._pause):
            return Ask(0)
        if best.most:
            self._rest = min(2 * self._rest, LONGEST_PAUSE)
        else:
            self._pause = min(2 * self._pause or FIRST_PAUSE, LONGEST_PAUSE)
        self._since = 0
        return Ask(1)


class Scouts:
    """Sessions that have their draft though it is not wanted, one in many passes: they tell when it is better.

    To open a draft's session costs calls, and the cores that the target computes on. Counted in passes, what that is of
    the target's time is the same for few sessions and many, long answers and short ones.
    """

    def __init__(self) -> None:
        self._since = BETWEEN_SCOUTS

    def next_pass(self) -> None:
        """Called once a pass."""
        self._since += 1

    def send(self) -> bool:
        """Whether the next session is one."""
        if self._since < BETWEEN_SCOUTS:
            return False
        self._since = 0
        return True
