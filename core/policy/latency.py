"""The seconds from a request for a proposal to its arrival, estimated per draft process.

A draft reports how long it drafted, so drafting time is known even where no pass waited for the proposal. The trip
beyond it is measured only by passes that waited. Of proposals that were drafted ahead, as branches, those that foresaw
the verdict arrive with no wait at all.
"""

from __future__ import annotations

from core.policy.decayed import Decayed

MEMORY = 16.0  # proposals that the drafting time remembers
TRIP = 0.0005  # seconds, before a trip was measured
_GAIN = 1 / 8
PRIOR_WEIGHT = 3.0  # proposals of no drafting time beside the first: a slow start is doubted
_MISSED, _MISSED_WEIGHT = 0.5, 2.0  # of proposals drafted ahead: the prior, and how many it is worth


class Smoothed:
    """A running mean of seconds, with the gain that TCP gives a round trip (RFC 6298)."""

    def __init__(self, initial: float) -> None:
        self.mean = initial

    def forget(self, keep: float, prior: float) -> None:
        """Move towards a prior, by as much less than others forget as one observation counts for less.

        So to ask in vain costs no more of the time than with other estimates.
        """
        self.mean = prior + keep**_GAIN * (self.mean - prior)

    def observe(self, seconds: float) -> None:
        self.mean += _GAIN * (seconds - self.mean)


class DraftLatency:
    """Latency as a trip plus an equal time for every token, one extra for catching up; `known` after one proposal.

    A draft that drafts ahead may still draft a branch when it is asked. Then it answers later. So the trip is estimated
    with lookahead and without. Until one of them is measured, what is waited for is expected after the other, and
    plans hope for the best.
    """

    def __init__(self) -> None:
        self.known = False
        self._trips = dict[bool, Smoothed]()  # by lookahead, once measured
        self._deviation = Smoothed(TRIP / 2)
        self._missed = Decayed(MEMORY, _MISSED, _MISSED_WEIGHT)  # of proposals drafted ahead: no branch was it
        self._tokens = self._seconds = self._weight = 0.0

    def observe(self, tokens: int, drafting: float | None, waited: float | None, *, lookahead: bool = False) -> None:
        """Count a proposal of `tokens` that took `drafting` seconds to draft, if known.

        `waited` is the seconds that a pass waited for it, if one did. With `lookahead` a branch might have been it.
        """
        if lookahead:
            self._missed.observe(1.0)
        if waited is not None:
            self._deviation.observe(abs(waited - self.expected(tokens, lookahead=lookahead)))
            drafting = max(0.0, waited - self._trip(lookahead)) if drafting is None else min(drafting, waited)
            self._observe_trip(waited - drafting, lookahead=lookahead)
        if drafting is not None:
            self._forget_drafting(1.0 - 1.0 / MEMORY)
            self._weight += 1.0
            self._tokens += tokens + 1
            self._seconds += drafting
            self.known = True

    def observe_branch_hit(self) -> None:
        """Count a proposal that had arrived before it was requested."""
        self._missed.observe(0.0)

    def forget(self, keep: float) -> None:
        """Let the priors weigh more: keep this share of what was observed."""
        for trip in self._trips.values():
            trip.forget(keep, TRIP)
        self._deviation.forget(keep, TRIP / 2)
        self._missed.fade(keep)
        self._forget_drafting(keep)

    @property
    def per_token(self) -> float:
        """Seconds of one more token."""
        return self._seconds / self._tokens if self._weight else 0.0

    def expected(self, tokens: float, *, lookahead: bool = False) -> float:
        """Seconds until a proposal of `tokens` that is no branch hit; 0 before any was seen."""
        return self._trip(lookahead) + self.per_token * (tokens + 1) if self.known else 0.0

    def mean(self, tokens: float, *, lookahead: bool) -> float:
        """Seconds that a pass waits for such a proposal on average, nothing for branch hits, for plans.

        Of few proposals, or of many that are forgotten, it is optimistic: a draft that starts slowly is asked again.
        """
        if not self._weight:
            return 0.0
        drafting = self.per_token * (tokens + 1) / (1.0 + PRIOR_WEIGHT / self._weight**2)
        return (self._missed.share if lookahead else 1.0) * (self._hoped_trip(lookahead) + drafting)

    def latest(self, tokens: float, *, lookahead: bool = False) -> float:
        """Seconds by which even a slow proposal has arrived."""
        return self.expected(tokens, lookahead=lookahead) + 4 * self._deviation.mean

    def _observe_trip(self, seconds: float, *, lookahead: bool) -> None:
        """The first trip ever is doubted. The first one of the other kind is believed."""
        if lookahead not in self._trips:
            self._trips[lookahead] = Smoothed(seconds if self._trips else TRIP)
        self._trips[lookahead].observe(seconds)

    def _trip(self, lookahead: bool) -> float:
        measured = self._trips.get(lookahead) or self._trips.get(not lookahead)
        return measured.mean if measured else TRIP

    def _hoped_trip(self, lookahead: bool) -> float:
        """Without lookahead it may be as short as any; with it, it is no shorter than without."""
        kinds = (False, True) if lookahead else (False,)
        return max((self._trips[kind].mean for kind in kinds if kind in self._trips), default=TRIP)

    def _forget_drafting(self, keep: float) -> None:
        self._weight *= keep
        self._tokens *= keep
        self._seconds *= keep
