"""Who asked an ingress replica for answers in the last hour, and what became of the requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from serve_app.http.minute_counts import MinuteCounts, Minutes

GONE = 499  # the status of a request whose client has left before there was an answer
API = "/v1/"

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
    """Counts requests to the API. Clients are known by their names."""

    def __init__(self) -> None:
        self._counts = MinuteCounts[Requested]()

    def note(self, path: str, client: Client, status: int) -> None:
        """A request has ended."""
        if path.startswith(API):
            self._counts.add(Requested(client, _outcome(status)))

    def minutes(self) -> Minutes[Requested]:
        return self._counts.minutes()


def _outcome(status: int) -> Outcome:
    if status == GONE:
        return "gone"
    return "answered" if status < 400 else "refused" if status < 500 else "failed"
