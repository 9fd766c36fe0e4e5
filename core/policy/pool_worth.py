"""Whether the drafts of a pool pay, how many replicas its sessions are worth, and when a pool is left without any.

The draft policy decides that pass by pass: it asks a draft for tokens, or for none (`core.policy.draft_policy`). So a
pool pays if its sessions are asked for tokens most of the time. One that does not pay is asked now and then, since
estimates forget. Between the two is a wide gap, and two thresholds lie in it, so that no pool goes up and down at one.

A draft that runs is asked for next to nothing. Where no replica runs, each new session starts one. So there a pool that
did not pay is spared sessions for a while.
"""

from __future__ import annotations

from core.policy.decayed import Decayed

ENOUGH = 1 / 4  # of the sessions' time that tokens are asked for: a pool that did not pay does
TOO_LITTLE = 1 / 8  # a pool that paid does not any more
STARTS = 16.0  # new sessions that are remembered of a pool
TRY_AGAIN = 300.0  # seconds that a pool is spared


def pays(asked_sessions: float, sessions: float, *, paid: bool) -> bool:
    """Whether a pool pays, of whose `sessions` on average so many were asked for tokens.

    `paid` says whether it did before, and goes on as long as nothing is known, without sessions.
    """
    return asked_sessions >= (TOO_LITTLE if paid else ENOUGH) * sessions if sessions > 0.0 else paid


def replicas(sessions: float, per_replica: float, *, worth: bool) -> float:
    """The replicas for so many sessions, open or waiting; none if the pool is not `worth` it."""
    return sessions / per_replica if worth else 0.0


class SparedPool:
    """A pool that may be without replicas: if verifiers decline its draft for most new sessions, none goes there.

    After `TRY_AGAIN` seconds it is as if nothing was known of it. Times are those of any clock.
    """

    def __init__(self) -> None:
        self._spared_until = 0.0
        self._accepted = _nothing_known()
        self._pays = True

    def spares(self, now: float, *, declined: bool) -> bool:
        """Whether a new session goes without the draft, which the verifier `declined` or did not."""
        if not self._pays and now >= self._spared_until:
            self._accepted, self._pays = _nothing_known(), True
        if not self._pays:
            return True
        self._accepted.observe(not declined)
        self._pays = pays(self._accepted.share, 1.0, paid=True)
        self._spared_until = now + TRY_AGAIN
        return declined or not self._pays


def _nothing_known() -> Decayed:
    return Decayed(STARTS, prior=1.0, weight=1.0)
