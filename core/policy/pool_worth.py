"""Whether the drafts of a pool pay, and how many replicas its sessions are worth.

The draft policy decides that pass by pass: it asks a draft for tokens, or for none (`core.policy.draft_policy`). So a
pool pays if its sessions are asked for tokens most of the time. One that does not pay is asked now and then, since
estimates forget. Between the two is a wide gap, and two thresholds lie in it, so that no pool goes up and down at one.
"""

from __future__ import annotations

ENOUGH = 1 / 4  # of the sessions' time that tokens are asked for: a pool that did not pay does
TOO_LITTLE = 1 / 8  # a pool that paid does not any more


def pays(asked_sessions: float, sessions: float, *, paid: bool) -> bool:
    """Whether a pool pays, of whose `sessions` on average so many were asked for tokens.

    `paid` says whether it did before, and goes on as long as nothing is known, without sessions.
    """
    return asked_sessions >= (TOO_LITTLE if paid else ENOUGH) * sessions if sessions > 0.0 else paid


def replicas(sessions: float, per_replica: float, *, worth: bool) -> float:
    """The replicas for so many sessions, open or waiting; none if the pool is not `worth` it."""
    return sessions / per_replica if worth else 0.0
