"""What has arrived of the choices of one prompt: whoever gets it, verifier or draft, can go on from there."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from core.generation import GenerationRequest, Run


class Received:
    """The requests of one prompt's choices, and what was generated for each so far."""

    def __init__(self, requests: Sequence[GenerationRequest]) -> None:
        self._requests = requests
        self._generated: list[list[int]] = [[] for _ in requests]
        self._finished = [False] * len(requests)

    @property
    def unfinished(self) -> list[int]:
        """Indices of the choices that have no finish reason yet."""
        return [choice for choice, finished in enumerate(self._finished) if not finished]

    def add(self, choice: int, run: Run) -> None:
        self._generated[choice] += run.tokens
        self._finished[choice] |= run.finish_reason is not None

    def request(self, choice: int) -> GenerationRequest:
        """The choice's request with everything generated for it, as rule 8 of the commit rule resumes it."""
        request = self._requests[choice]
        return msgspec.structs.replace(request, tokens=(*request.tokens, *self._generated[choice]))
