"""Drafting for many sessions at once; pure: no thread, socket or clock of its own.

Enters: sessions opened by the ingress, commits from verifiers. Leaves: proposals, drawn with the target's own dice so
that a draft which agrees with the target guesses it at any temperature (design 5).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import torch

from core.confidence import Confidence
from core.draft_session import DraftSession
from core.messages import Close, Commit, OpenSession, Propose
from core.model.base import Model, Rows
from core.overlap import Overlap
from core.step_costs import Smoothed
from core.warps import GeneratedCounts, score


class DraftConfig(NamedTuple):
    """Limits of the draft engine; lengths in tokens, times in seconds."""

    max_sessions: int = 32
    prefill_chunk: int = 256
    session_lease: float = 10.0
    first_repeat: float = 0.05  # before a round has been measured


class DraftEngine:
    """A draft model and the sessions it accelerates."""

    def __init__(self, model: Model, num_valid: int, config: DraftConfig, clock: Callable[[], float]) -> None:
        self.config = config
        self.counts: Counter[str] = Counter()
        self._model = model
        self._num_valid = num_valid
        self._clock = clock
        self._round = Smoothed(config.first_repeat / 3)
        self._pass = Smoothed(0.0)
        self._overlap = Overlap()
        self._confidence = Confidence()
        self._sessions: dict[int, DraftSession] = {}

    def gauges(self) -> Counter[str]:
        """What is held now; `remembered_pages` are held for no session and given up for any."""
        return Counter(
            sessions=len(self._sessions),
            pages=self._model.num_used_pages,
            remembered_pages=self._model.num_remembered_pages,
        )

    @property
    def drafting(self) -> bool:
        """Whether some chain is not yet as long as it may be."""
        return any(not session.full(ahead=self._overlap.on) for session in self._sessions.values())

    def peers(self) -> set[bytes]:
        """The verifiers that sessions are drafted for."""
        return {session.peer for session in self._sessions.values()}

    def seat(self, number: int) -> int | None:
        """Which seat of a generation is held here."""
        session = self._sessions.get(number)
        return None if session is None else session.opened.seat

    def open(self, opened: OpenSession, peer: bytes) -> None:
        """Join a generation; a session opened twice starts afresh."""
        self.close(opened.session)
        self._sessions[opened.session] = DraftSession(opened, peer, self._clock(), self._confidence)
        self._model.open(opened.session)

    def close(self, number: int) -> None:
        """Leave a generation; unknown ones are ignored."""
        session = self._sessions.pop(number, None)
        if session is not None:
            if session.start == 0:
                self._model.remember(number, session.committed)
            self._model.close(number)

    def receive(self, peer: bytes, message: Commit | Close) -> int | None:
        """A message from a verifier; returns the session's number if it ended it."""
        session = self._sessions.get(message.session)
        if session is None or session.peer != peer:
            self.counts["dropped_unknown_session"] += 1
            return None
        if isinstance(message, Close):
            if message.seat < session.opened.seat:
                return None  # meant for an earlier session of the same generation
            self.close(message.session)
            return message.session
        if (
            message.base < 0
            or (message.wanted or 0) < 0
            or not message.worth >= 0.0
            or not all(0 <= token < self._num_valid for token in message.tokens)
        ):
            self.counts["dropped_bad_commit"] += 1
            return None
        now = session.heard_at = self._clock()
        if message.tokens:  # without any it only says that the session lives
            if session.answered_at is not None:
                self._round.observe(now - session.answered_at)
            session.due, session.answered_at = True, None
        known = len(session.committed)
        cut = session.take(message)
        if cut is not None:
            self._forget(session, cut)
        if committed := len(session.committed) - known:
            self.counts["rounds"] += 1
            self.counts["rounds_foreseen"] += bool(session.chain)
            seconds, session.advanced_at = now - session.advanced_at, now
            if seconds > 0.0:
                self._overlap.observe(committed, seconds, session.asked * self._pass.mean / seconds)
        return None

    def outgoing(self) -> list[tuple[bytes, Propose]]:
        """Proposals to send: of sessions whose answer is due and complete, or that have met too long a silence."""
        now = self._clock()
        messages: list[tuple[bytes, Propose]] = []
        for session in self._sessions.values():
            if (session.due and session.complete) or now >= session.told_at + self._repeat_after():
                session.told_at = now
                if session.answered_at is None:  # from the first answer: from repeats, a round would seem ever shorter
                    session.answered_at = now
                session.due = session.due and not session.complete
                messages.append((session.peer, session.proposal()))
        return messages

    def expired(self) -> list[int]:
        """Close the sessions whose verifier has not been heard for the lease; returns their numbers."""
        before = self._clock() - self.config.session_lease
        numbers = [number for number, session in self._sessions.items() if session.heard_at < before]
        for number in numbers:
            self.close(number)
        return numbers

    def wait(self) -> float | None:
        """Seconds until there is something to do, 0 for now, None with no session."""
        if not self._sessions:
            return None
        if self.drafting:
            return 0.0
        oldest = min(session.told_at for session in self._sessions.values())
        return max(0.0, oldest + self._repeat_after() - self._clock())

    @torch.inference_mode()
    def step(self) -> None:
        """One draft pass: a token for every unfinished chain, or a chunk of its prompt."""
        ahead = self._overlap.on
        batch = [(session, self._rows(session)) for session in self._sessions.values() if not session.full(ahead=ahead)]
        if not batch:
            return
        began = self._clock()
        logits = self._model.forward([rows for _, rows in batch])
        drafting = [session for session, rows in batch if rows.num_logits]
        if drafting:
            scores = [self._score(session, logits[row : row + 1]) for row, session in enumerate(drafting)]
            for session, token, lead in zip(drafting, *_best(torch.cat(scores)), strict=True):
                session.guess(token, lead)
        if len(drafting) == len(batch):  # no prefill among it
            self._pass.observe(self._clock() - began)
        self.counts["steps"] += 1
        self.counts["drafted"] += len(drafting)

    def _rows(self, session: DraftSession) -> Rows:
        """The next uncached tokens; logits are wanted once they reach the end of the chain."""
        number = session.opened.session
        if not 0 < session.length - session.start <= self._model.context:
            session.start = max(0, session.length - self._model.context // 2)
            self._model.rollback(number, 0)
        if session.start == 0 and not session.chain:
            self._model.remember(number, session.committed)
            self._model.recall(number, session.committed)
        begin = session.start + self._model.num_cached(number)
        end = min(session.length, begin + self.config.prefill_chunk)
        return Rows(number, session.tokens(begin, end), int(end == session.length))

    def _forget(self, session: DraftSession, position: int) -> None:
        number = session.opened.session
        kept = max(0, position - session.start)
        if kept < self._model.num_cached(number):
            self._model.rollback(number, kept)

    def _repeat_after(self) -> float:
        return 3 * self._round.mean

    def _score(self, session: DraftSession, logits: torch.Tensor) -> torch.Tensor:
        params = session.opened.params
        history = GeneratedCounts()
        if params.penalised:
            history.update(session.tokens(session.opened.prompt_length, session.length))
        return score(logits, params, session.noise, session.length, history, (), self._num_valid)


def _best(scores: torch.Tensor) -> tuple[list[int], list[float]]:
    """The best token of each row [n, V], and its lead over the next."""
    highest = scores.topk(2).values.tolist()  # its tokens may be any of several best ones
    return scores.argmax(-1).tolist(), [best - next_best for best, next_best in highest]
