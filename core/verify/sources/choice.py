"""Which source proposes to a session: the one whose guess has most tokens expected to be accepted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from core.generation import Source
from core.policy.acceptance import Kind, TokenChances
from core.policy.draft_policy import DraftPolicy
from core.verify.sources import SourceOptions, made
from core.verify.sources.source import Generation, SessionSource


class Proposal(NamedTuple):
    """Tokens for the next pass, so many of which are expected to be accepted."""

    source: Source
    tokens: tuple[int, ...]
    expected: float


NOTHING = Proposal("draft", (), 0.0)


class Guess(NamedTuple):
    """What a source would propose.

    `chances` are those that all tokens up to one are accepted, none above the last. `measured_by` counts which guesses
    of each kind were right, None for a source that is never wrong.
    """

    source: Source
    tokens: tuple[int, ...]
    kinds: tuple[Kind, ...]
    chances: tuple[float, ...]
    measured_by: TokenChances | None

    @property
    def expected(self) -> float:
        """Tokens that will be accepted."""
        return sum(self.chances)

    def proposal(self, least: float) -> Proposal:
        """The tokens of at least that chance."""
        worth = [chance for chance in self.chances if chance >= least]
        return Proposal(self.source, self.tokens[: len(worth)], sum(worth))

    def learn(self, committed: Sequence[int]) -> None:
        """Count what became of the guess: whether each token was right, up to the first that was not."""
        if self.measured_by is None:
            return
        for token, guess, kind in zip(committed, self.tokens, self.kinds, strict=False):
            self.measured_by.observe(kind, right=token == guess)
            if token != guess:
                return


class SessionSources:
    """The sources of one session, by name, and `proposal`, the best of their guesses for the next pass.

    They propose at most `limit` tokens, and none that the session's grammar forbids.
    """

    def __init__(self, generation: Generation, sources: dict[Source, SessionSource], limit: int) -> None:
        self.generation = generation
        self.limit = limit
        self.proposal = NOTHING
        self._sources = sources
        self._guesses: list[Guess] = []

    def guess(self) -> Guess | None:
        """Let every source guess; returns the best guess, the first of equals."""
        limit = self.generation.chain.limit_proposals(self.limit)
        self._guesses = [self._guess(name, source, limit) for name, source in self._sources.items()] if limit else []
        return max(self._guesses, key=lambda guess: guess.expected, default=None)

    def committed(self, tokens: Sequence[int]) -> None:
        """Learn from the tokens of a pass which guesses were right."""
        for guess in self._guesses:
            guess.learn(tokens)
        self._guesses, self.proposal = [], NOTHING

    def _guess(self, name: Source, source: SessionSource, limit: int) -> Guess:
        tokens, kinds, chances, chance = list[int](), list[Kind](), list[float](), 1.0
        measured_by, grammar = source.chances, self.generation.grammar
        for token, kind in source.guess(limit):
            if measured_by is not None:
                chance *= measured_by.of(kind)
            tokens.append(token)
            kinds.append(kind)
            chances.append(chance)
        valid = len(tokens) if grammar is None or measured_by is None or not tokens else grammar.valid(tokens)
        return Guess(name, tuple(tokens[:valid]), tuple(kinds[:valid]), tuple(chances[:valid]), measured_by)


class Sources:
    """The sources of an engine that are switched on. `policy` tells which tokens are worth their rows."""

    def __init__(self, policy: DraftPolicy, options: SourceOptions) -> None:
        self._policy = policy
        self._sources = made(options)

    def open(self, generation: Generation, limit: int) -> SessionSources:
        """The sources of a session to which at most so many tokens are proposed for a pass."""
        opened = {name: source.open(generation) for name, source in self._sources.items()} if limit else {}
        return SessionSources(generation, {name: own for name, own in opened.items() if own is not None}, limit)

    def propose(self, sessions: Iterable[SessionSources], num_running: int) -> None:
        """Guess for each of these sessions before a pass over `num_running`."""
        guesses = [(session, guess) for session in sessions if (guess := session.guess()) is not None]
        chances = (chance for _, guess in guesses for chance in guess.chances)
        least = self._policy.least_chance(chances, num_running)
        for session, guess in guesses:
            session.proposal = guess.proposal(least)

    def finished(self, session: SessionSources) -> None:
        """Let the sources learn from a complete answer, but not from one without speculation."""
        if session.limit:
            for source in self._sources.values():
                source.finished(session.generation)


def better(drafted: Proposal, looked_up: Proposal) -> Proposal:
    """The one of which more tokens are expected to be accepted; the draft's of equals."""
    return looked_up if looked_up.expected > drafted.expected else drafted
