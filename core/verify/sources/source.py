"""What a source of proposals is: `ProposalSource`, one object an engine, and `SessionSource`, one a session."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from core.policy.acceptance import Kind, TokenChances

if TYPE_CHECKING:
    from core.generation import GenerationRequest
    from core.grammar.matching import GrammarState
    from core.verify.commit import Chain


@dataclass(frozen=True, slots=True)
class Generation:
    """What a source sees of a session: it reads all of it, and changes nothing. `chain` holds the committed tokens."""

    request: GenerationRequest
    chain: Chain
    grammar: GrammarState | None = None


class GuessedToken(NamedTuple):
    """An id of the vocabulary, and its kind: guesses of one kind are about equally likely to be right."""

    token: int
    kind: Kind = Kind(0, 0)


class SessionSource(Protocol):
    """A source at work for one session.

    `chances` tells how often its guesses of each kind were right; it learns from every pass. It is None for a source
    that is never wrong.
    """

    @property
    def chances(self) -> TokenChances | None: ...

    def guess(self, limit: int) -> Iterable[GuessedToken]:
        """The next tokens, at most so many. It is asked after every pass that the session goes on from."""


class ProposalSource(Protocol):
    """A source that is switched on. It keeps what the sessions of its engine share."""

    def open(self, generation: Generation) -> SessionSource | None:
        """Begin to guess for a session; None where there will be nothing to guess from."""

    def finished(self, generation: Generation) -> None:  # noqa: ARG002 - most sources learn nothing from it
        """Learn from a complete answer; one that is broken off is never shown."""
        return
