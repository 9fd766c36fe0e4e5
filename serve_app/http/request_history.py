"""Who asked an ingress replica, and what became of the requests: all of them, and by minute those of the last hour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal, NamedTuple

from serve_app.http.handled import API, GONE, NO_KEY, Handled
from serve_app.http.minute_counts import MinuteCounts, Minutes

Outcome = Literal["answered", "refused", "failed", "gone"]
Client = str | None
"""The name of a client's key; None for all that have none."""


class Requested(NamedTuple):
    """What requests have in common that are counted together."""

    client: Client
    outcome: Outcome


class Allowed(NamedTuple):
    """A limit of a client, and what is left of it."""

    limit: int
    remaining: int


Limited = Mapping[str, Allowed]
"""By what is limited: `requests` and `tokens` of a minute, and `concurrency`."""


class RequestHistory:
    """Counts requests: in `handled` all since it began, and those to the API minute by minute.

    Clients are known by the names of their keys.
    """

    def __init__(self) -> None:
        self.handled: Counter[Handled] = Counter()
        self._counts = MinuteCounts[Requested]()

    def note(self, path: str, handled: Handled) -> None:
        """A request has ended."""
        self.handled[handled] += 1
        if path.startswith(API):
            client = None if handled.key_name == NO_KEY else handled.key_name
            self._counts.add(Requested(client, _outcome(handled.status)))

    def minutes(self) -> Minutes[Requested]:
        return self._counts.minutes()


def _outcome(status: int) -> Outcome:
    if status == GONE:
        return "gone"
    return "answered" if status < 400 else "refused" if status < 500 else "failed"
