"""Whether to draft on while the target verifies: found out by doing it for some rounds and not for others.

Where draft and target have a core or a GPU each, a chain that goes on past the proposal is ready when all of it is
accepted; where they share one, the target pays for it. Enters: every round's tokens and seconds. Leaves: yes or no.
"""

from __future__ import annotations

BLOCK = 8  # rounds before the choice is looked at again
EXPLORE = 8  # one block in so many goes to what seems worse
WORTH = 0.1  # drafting under this share of a round is not worth trying to hide
_KEEP = 0.98  # of what was seen, per round


class _Rate:
    """Tokens per second, of late."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0

    def observe(self, tokens: int, seconds: float) -> None:
        self._tokens = self._tokens * _KEEP + tokens
        self._seconds = self._seconds * _KEEP + seconds

    @property
    def mean(self) -> float | None:
        return self._tokens / self._seconds if self._seconds > 0.0 else None


class Overlap:
    """`on` is the choice as it stands."""

    def __init__(self) -> None:
        self.on = False
        self._rates = {False: _Rate(), True: _Rate()}
        self._rounds = 0

    def observe(self, tokens: int, seconds: float, share: float) -> None:
        """A round committed so many tokens in so many seconds; `share` of it is what drafting a proposal takes."""
        self._rates[self.on].observe(tokens, seconds)
        self._rounds += 1
        if self._rounds % BLOCK == 0:
            self.on = share >= WORTH and self._choose(self._rounds // BLOCK)

    def _choose(self, block: int) -> bool:
        serial, ahead = self._rates[False].mean, self._rates[True].mean
        if serial is None or ahead is None:
            return ahead is None
        better = ahead > serial
        return better if block % EXPLORE else not better
