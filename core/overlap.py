"""How far to draft on while the target verifies: found out by doing it for some rounds and not for others.

Where draft and target have a core or a GPU each, the verifier has the line that begins where the verdict ends when it
comes, and begins with it; where they share one, the target pays for it. What a light draft saves and costs is too
little to be seen in its own rounds: it does as the verifier says, which sees all passes, if it keeps out of the way of
those that still answer. Enters: every round's tokens and seconds. Leaves: for how many verdicts to prepare, and when.
(For one, the likeliest, it would be little more than drafting on past the proposal: 0.6 of the drafting hidden in
simulation where eight hide 0.9.)
"""

from __future__ import annotations

from collections import Counter, defaultdict

from core.messages import MOST_BRANCHES

CHOICES = (0, MOST_BRANCHES)  # verdicts
BLOCK = 8  # rounds before the choice is looked at again
EXPLORE = 16  # one block in so many goes to what seems worse
WORTH = 0.2  # drafting under this share of a round is light
PAUSE = 1 / 8  # of a round, after which a light draft prepares: until then others may be waited for
_LONG = 256  # rounds by which it is known what a number of proposed tokens brings
_KEEP = 0.98  # of what was seen, per round


class _Rate:
    """Tokens per second, of late."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0

    def observe(self, tokens: float, seconds: float) -> None:
        self._tokens = self._tokens * _KEEP + tokens
        self._seconds = self._seconds * _KEEP + seconds

    @property
    def mean(self) -> float:
        """Endless before anything was seen, so that everything is tried."""
        return self._tokens / self._seconds if self._seconds > 0.0 else float("inf")


class _Brought:
    """Tokens that a round commits, by how many were proposed for it.

    Guesses are as often right with either choice. By the tokens of its own rounds one would win or lose by luck, which
    is much larger than what is to be seen.
    """

    def __init__(self) -> None:
        self._rounds: Counter[int] = Counter()
        self._means: defaultdict[int, float] = defaultdict(float)

    def observe(self, proposed: int, tokens: int) -> float:
        """Returns the mean, this round's included."""
        self._rounds[proposed] = min(self._rounds[proposed] + 1, _LONG)
        self._means[proposed] += (tokens - self._means[proposed]) / self._rounds[proposed]
        return self._means[proposed]


class Overlap:
    """`verdicts` is the choice as it stands, `pause` the share of a round to let pass before anything is prepared.

    While drafting is `light` the verifier may say otherwise.
    """

    def __init__(self) -> None:
        self.verdicts = 0
        self.pause = PAUSE
        self.light = False
        self._rates = {choice: _Rate() for choice in CHOICES}
        self._brought = _Brought()
        self._rounds = 0
        self._seconds = self._drafting = 0.0  # of the block so far

    def observe(self, proposed: int, tokens: int, seconds: float, drafting: float) -> None:
        """A round, for which so many tokens were proposed, committed `tokens` in so many seconds.

        To draft the proposal takes `drafting`.
        """
        self._rates[self.verdicts].observe(self._brought.observe(proposed, tokens), seconds)
        self._rounds += 1
        self._seconds += seconds
        self._drafting += drafting
        if self._rounds % BLOCK == 0:
            self.light = self._drafting < WORTH * self._seconds
            if self.light:
                self.verdicts, self.pause = CHOICES[-1], PAUSE
            else:
                self.verdicts, self.pause = self._choose(self._rounds // BLOCK), 0.0
            self._seconds = self._drafting = 0.0

    def _choose(self, block: int) -> int:
        best, *others = sorted(self._rates, key=lambda choice: self._rates[choice].mean, reverse=True)
        return best if block % EXPLORE or not others else others[block // EXPLORE % len(others)]
