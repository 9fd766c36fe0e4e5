"""Whether drafts are welcome among the sessions there are: those that would pay among their like need not among others.

Enters: every new session and how many it will run beside, and whether passes over them with such drafts asked for
anything. Leaves: whether new ones should have theirs. One draft pays less than many, which are waited for together, so
that this is found out by opening all for a while, not one, and by no session that came before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

MEMORY = 32.0  # passes that the share of those which asked effectively remembers
LEAST = 0.5  # of them; in passes of 16 and 32 sessions of six tasks it is about 0.1, of up to 8 about 1 (Zen 5)
FIRST_PAUSE, LONGEST_PAUSE = 64, 256  # to the next trial, in times as many new sessions as there are


@dataclass(slots=True, eq=False)
class Cohort:
    """Sessions that came one after another to run beside about `size` at the least, all to have drafts or none.

    One whose drafts are not welcome is followed by the next, a trial, once `due` more have come.
    """

    size: int
    pause: int = FIRST_PAUSE
    welcome: bool = True
    asked: float = 1.0
    judged: float = 0.0
    due: int = 0

    def observe(self, members: int, *, asked: bool) -> None:
        """A pass over so many of them and others, some of whose drafts were best asked, each for itself."""
        if self.size == 1 or not self.welcome:
            return
        weight = min(1.0, members / self.size)
        self.asked += (asked - self.asked) * weight / MEMORY
        self.judged += weight
        if self.asked < LEAST:
            self.welcome, self.due = False, self.pause * self.size
        elif self.judged > 2 * MEMORY:
            self.pause = FIRST_PAUSE

    def next(self) -> Cohort:
        """That of the next session."""
        if self.welcome:
            return self
        self.due -= 1
        return self if self.due else Cohort(self.size, min(2 * self.pause, LONGEST_PAUSE))


class Company:
    """Of the sessions of an engine, by how many run beside them: 8 to 11, 12 to 15, 16 to 23 and so on.

    Drafts of lone sessions are always welcome.
    """

    def __init__(self) -> None:
        self._cohorts: dict[int, Cohort] = {}

    def joined(self, sessions: int) -> Cohort:
        """Another session, which will run beside about so many: those that it belongs to."""
        size = _size(sessions)
        self._cohorts[size] = self._cohorts.get(size, Cohort(size)).next()
        return self._cohorts[size]

    def observe(self, members: Iterable[Cohort | None], sessions: int, *, asked: bool) -> None:
        """A pass over sessions of these, so many, with drafts some of which were best asked, each for itself.

        It tells nothing of those that came to run beside more or fewer.
        """
        for cohort, number in Counter(members).items():
            if cohort is not None and cohort.size == _size(sessions):
                cohort.observe(number, asked=asked)

    def welcome(self, sessions: int) -> bool:
        """Whether drafts are."""
        size = _size(sessions)
        return size not in self._cohorts or self._cohorts[size].welcome


def _size(sessions: int) -> int:
    step = 1 << max(0, sessions.bit_length() - 2)
    return sessions // step * step
