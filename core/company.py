"""Whether drafts are welcome among the sessions there are: those that would pay among their like need not among others.

Enters: whether passes with such drafts asked for anything, and every new session. Leaves: whether new ones should have
theirs. One draft pays less than many, which are waited for together, so that this is found out by opening all for a
while, not one: until as many sessions are new as there are, nothing is judged.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

MEMORY = 32.0  # passes that the share of those which asked effectively remembers
LEAST = 0.5  # of them; in passes of 16 and 32 sessions of six tasks it is about 0.1, of up to 8 about 1 (Zen 5)
FIRST_PAUSE, LONGEST_PAUSE = 64, 256  # to the next trial, in times as many new sessions as there are


@dataclass(slots=True)
class _Batches:
    """Those of about one size. `due` is how many new sessions it takes to be judged, or not welcome, to be tried."""

    welcome: bool = True
    asked: float = 1.0
    judged: int = 0
    due: int = 0
    pause: int = FIRST_PAUSE


class Company:
    """Of the batches of an engine, by size: 8 to 11, 12 to 15, 16 to 23 and so on.

    Drafts of lone sessions are always welcome.
    """

    def __init__(self) -> None:
        self._sizes: defaultdict[int, _Batches] = defaultdict(_Batches)

    def joined(self, sessions: int, new: int) -> None:
        """Of about so many sessions some are new."""
        size = self._of(sessions)
        size.due = max(0, size.due - new)
        if not size.welcome and not size.due:
            self._sizes[_size(sessions)] = _Batches(due=sessions, pause=size.pause)

    def observe(self, sessions: int, *, asked: bool) -> None:
        """A pass over so many sessions, some of whose drafts were best asked, each for itself."""
        size = self._of(sessions)
        if sessions == 1 or size.due:
            return
        size.asked += (asked - size.asked) / MEMORY
        size.judged += 1
        if size.asked < LEAST:
            size.welcome, size.due = False, size.pause * sessions
            size.pause = min(2 * size.pause, LONGEST_PAUSE)
        elif size.judged > 2 * MEMORY:
            size.pause = FIRST_PAUSE

    def welcome(self, sessions: int) -> bool:
        """Whether drafts are."""
        return self._of(sessions).welcome

    def _of(self, sessions: int) -> _Batches:
        return self._sizes[_size(sessions)]


def _size(sessions: int) -> int:
    step = 1 << max(0, sessions.bit_length() - 2)
    return sessions // step * step
