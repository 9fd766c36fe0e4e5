"""What happens on the way to an answer's first tokens, in words that a table can have."""

from __future__ import annotations

ASKED = "the ingress has it"
ROUTER, ROUTED = "the router is asked", "the router has answered"
DRAFT, OPEN = "a draft is asked to join", "the draft has joined"
FIRST, SECOND = "the first run is at the ingress", "the second run is at the ingress"
ARRIVED, LATER = "the first chunk is at the client", "the second chunk is at the client"

Noted = dict[str, float]  # seconds on the clock that all processes of a machine share, by what happened
