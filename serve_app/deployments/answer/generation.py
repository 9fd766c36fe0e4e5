"""The state of one generation: all that a verifier or a draft needs to go on with the choices of a prompt."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from core.generation import GenerationRequest
from serve_app.http.ledger import AnswerLedger


class Generation:
    """The requests of one prompt's choices, and the ledger of what has come for each."""

    def __init__(self, requests: Sequence[GenerationRequest], ledger: AnswerLedger | None = None) -> None:
        self.requests = requests
        self.ledger = ledger or AnswerLedger()

    @property
    def unfinished(self) -> list[int]:
        """The choices without a finish reason."""
        return [choice for choice in range(len(self.requests)) if not self.ledger.choices[choice].finished]

    @property
    def num_tokens(self) -> int:
        """Those generated so far, of all choices."""
        return sum(len(choice.tokens) for choice in self.ledger.choices.values())

    def remaining(self, choice: int) -> int:
        """The most tokens that the choice may still get."""
        return self.requests[choice].params.max_tokens - len(self.ledger.choices[choice].tokens)

    def resumed(self, choice: int) -> GenerationRequest:
        """The request that goes on with the choice after the tokens generated for it."""
        request = self.requests[choice]
        return msgspec.structs.replace(request, tokens=(*request.tokens, *self.ledger.choices[choice].tokens))
