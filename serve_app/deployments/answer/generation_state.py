"""The state of a generation: everything that a verifier or a draft needs to go on with the choices of a prompt."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from core.generation import GenerationRequest, Run


class GenerationState:
    """The requests of one prompt's choices, and the tokens generated for each so far."""

    def __init__(self, requests: Sequence[GenerationRequest]) -> None:
        self._requests = requests
        self._generated: list[list[int]] = [[] for _ in requests]
        self._finished = [False] * len(requests)

    @property
    def unfinished(self) -> list[int]:
        """The choices without a finish reason."""
        return [choice for choice, finished in enumerate(self._finished) if not finished]

    @property
    def tokens(self) -> int:
        """The tokens generated so far, of all choices."""
        return sum(map(len, self._generated))

    def add(self, choice: int, run: Run) -> None:
        self._generated[choice] += run.tokens
        self._finished[choice] |= run.finish_reason is not None

    def remaining(self, choice: int) -> int:
        """The most tokens that the choice may still get."""
        return self._requests[choice].params.max_tokens - len(self._generated[choice])

    def request(self, choice: int) -> GenerationRequest:
        """The request that resumes the choice after the tokens generated for it."""
        request = self._requests[choice]
        return msgspec.structs.replace(request, tokens=(*request.tokens, *self._generated[choice]))
