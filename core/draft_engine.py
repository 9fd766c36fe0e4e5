"""Drafting for many sessions at once; pure: no thread, socket or clock of its own.

Enters: sessions opened by the ingress, commits from verifiers. Leaves: proposals, drawn with the target's own dice so
that a draft which agrees with the target guesses it at any temperature (design 5).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from typing import NamedTuple

from core.confidence import Confidence
from core.draft_pass import DraftPass, Drawn, Part
from core.draft_session import DraftSession, Line
from core.errors import OutOfPages
from core.guess import Guess
from core.messages import Close, Commit, OpenSession, Propose
from core.model.base import Model, Rows
from core.overlap import Overlap
from core.step_costs import Smoothed, StepCosts

_MOST_PREPARED = 32  # lines of all sessions: they go through the model together
_LITTLE_MORE = 1.2  # times one line
_ASKS = 4  # that tell whether anything is wanted here; where mostly nothing is, no prompt is read unasked


class DraftConfig(NamedTuple):
    """Limits of the draft engine; lengths in tokens, times in seconds."""

    max_sessions: int = 32
    prefill_chunk: int = 256
    session_lease: float = 10.0
    first_repeat: float = 0.05  # before a round has been measured
    idle_repeat: float = 1.0  # where nothing is wanted, so that the verifier is silent, too, or drafting takes long


class DraftEngine:
    """A draft model and the sessions it accelerates."""

    def __init__(self, model: Model, num_valid: int, config: DraftConfig, clock: Callable[[], float]) -> None:
        self.config = config
        self.counts: Counter[str] = Counter()
        self._model = model
        self._num_valid = num_valid
        self._confidence = Confidence()
        self._pass = DraftPass(model, num_valid, self._confidence)
        self._clock = clock
        self._round = Smoothed(config.first_repeat / 3)
        self._costs = StepCosts()  # of a pass by its lines
        self._overlap = Overlap()
        self._worth, self._prepares = 0.0, True  # as last told, for sessions that have not been told yet
        self._wanted = 1.0  # share of the asks of late that were for something: a look now and then is one, too
        self._sessions: dict[int, DraftSession] = {}
        self._numbers = count(-1, -1)  # of prepared lines in the model; sessions count upwards

    def gauges(self) -> Counter[str]:
        """What is held now; `remembered_pages` are held for no session and given up for any."""
        return Counter(
            sessions=len(self._sessions),
            pages=self._model.num_used_pages,
            remembered_pages=self._model.num_remembered_pages,
        )

    @property
    def drafting(self) -> bool:
        """Whether some proposal is not complete, or more can be prepared by now for the verdict on one."""
        now = self._clock()
        return any(not one.complete or self._prepares_at(one) <= now for one in self._sessions.values())

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
        session = DraftSession(opened, peer, self._clock(), self._confidence)
        session.worth, session.prepares = self._worth, self._prepares
        if self._wanted < 0.5:
            session.asked = 0
        self._sessions[opened.session] = session
        self._model.open(opened.session)

    def close(self, number: int) -> None:
        """Leave a generation; unknown ones are ignored."""
        session = self._sessions.pop(number, None)
        if session is not None:
            if session.start == 0:
                self._model.remember(session.line.number, session.committed)
            self._end(session.lines)

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
            # else it was under way when we answered
            heard = session.foreseen or message.base >= len(session.committed)
            if session.answered_at is not None and session.asked and heard:
                self._round.observe(now - session.answered_at)
            if message.wanted != 0 and not session.due:
                session.quiet_since = now
            session.due, session.answered_at, session.told = message.wanted != 0, None, True
        self._wanted += ((message.wanted != 0) - self._wanted) / _ASKS
        known, proposed = len(session.committed), session.proposed
        over, cut = session.take(message)
        self._worth, self._prepares = session.worth, session.prepares
        self._end(over)
        if cut is not None:
            self._forget(session, session.line, cut)
        if committed := len(session.committed) - known:
            self.counts["rounds"] += 1
            self.counts["rounds_foreseen"] += bool(session.chain)
            if session.due and session.foreseen and session.complete:  # the verifier has the answer, and begins with it
                session.due, session.answered_at = False, now
            session.asked_at = now if session.due and not session.chain else None
            seconds, session.advanced_at = now - session.advanced_at, now
            if seconds > 0.0:
                drafting = proposed * self._costs.seconds(1)
                self._overlap.observe(proposed, committed, seconds, drafting)
        return None

    def outgoing(self) -> list[tuple[bytes, Propose]]:
        """Proposals to send: of sessions whose answer is due and complete, or that have met too long a silence."""
        now = self._clock()
        messages: list[tuple[bytes, Propose]] = []
        for session in self._sessions.values():
            complete = session.complete
            if (session.due and complete) or now >= self._repeat_at(session):
                session.quiet_since = now
                if session.answered_at is None:  # from the first answer: from repeats, a round would seem ever shorter
                    session.answered_at = now
                messages.append((session.peer, session.proposal(now)))
                session.due, session.asked_at = session.due and not complete, None
            elif session.presentable:
                messages.append((session.peer, session.presentation()))
                session.presented = True
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
        if not all(session.complete for session in self._sessions.values()):
            return 0.0
        next_at = min(min(self._repeat_at(one), self._prepares_at(one)) for one in self._sessions.values())
        return max(0.0, next_at - self._clock())

    def due(self) -> float:
        """Seconds within which the verdict on some proposal should arrive; 0 where none is to come."""
        answered = [one.answered_at for one in self._sessions.values() if one.answered_at is not None and one.asked]
        return max(0.0, max(answered) + 2 * self._round.mean - self._clock()) if answered else 0.0

    def step(self) -> None:
        """A token for every unfinished line, or a chunk of its prompt, in a pass; or what the model draws for them."""
        parts = [Part(session, line, self._rows(session, line)) for session, line in self._unfinished()]
        if not parts:
            return
        began, before = self._clock(), [len(part.line.chain) for part in parts]
        drawn = Drawn(0, 0)
        try:
            drawn = self._pass(parts)
        except OutOfPages:
            if not self._unprepare():
                raise
        for part, length in zip(parts, before, strict=True):
            self.counts["drafted" if part.line is part.session.line else "prepared"] += len(part.line.chain) - length
        if drawn.tokens:
            self._costs.observe(drawn.lines, (self._clock() - began) / drawn.tokens)
        self.counts["steps"] += 1

    def _unfinished(self) -> list[tuple[DraftSession, Line]]:
        """What the next pass is for; proposals come before what is prepared for the verdict on them."""
        sessions = self._sessions.values()
        proposals = [(session, session.line) for session in sessions if not session.complete]
        if proposals:
            return proposals
        now = self._clock()
        idle = [session for session in sessions if self._prepares_at(session) <= now]
        for session in idle:
            if session.prepared is None and session.foreseeing:
                session.prepared = self._prepare(session)
        return [(session, line) for session in idle for line in session.ahead()]

    def _prepares_at(self, session: DraftSession) -> float:
        """When to begin what is prepared for the verdict; infinitely late where nothing is, or nothing is left."""
        if not self._verdicts(session) or not session.idle or not (session.prepared is None or session.ahead()):
            return math.inf
        return (session.answered_at or 0.0) + self._overlap.pause * self._round.mean

    def _prepare(self, session: DraftSession) -> list[Line]:
        """A line of its own for each of the likeliest verdicts; none where the context ends."""
        longest = session.length(session.line) + session.opened.num_speculative_tokens
        if longest - session.start > self._model.context:
            return []
        lines = []
        for accepted, token in session.verdicts(self._most_prepared(session)):
            line = Line(next(self._numbers), [*session.chain[:accepted], Guess(token)], accepted + 1)
            self._model.fork(session.line.number, line.number)
            self._forget(session, line, len(session.committed) + accepted)
            lines.append(line)
        return lines

    def _verdicts(self, session: DraftSession) -> int:
        """For how many verdicts to prepare at the most; what is hardly any work only where the verifier lets it."""
        return 0 if self._overlap.light and not session.prepares else self._overlap.verdicts

    def _most_prepared(self, session: DraftSession) -> int:
        """For how many verdicts: those whose lines are drafted by the time the verdict comes, or cost little more."""
        together = len(self._sessions)
        time = max(self._round.mean, _LITTLE_MORE * session.proposed * self._costs.seconds(together))
        for verdicts in range(min(self._verdicts(session), _MOST_PREPARED // together), 1, -1):
            if session.proposed * self._costs.seconds(verdicts * together) <= time:
                return verdicts
        return 1

    def _unprepare(self) -> bool:
        """Give the pages of prepared lines back; False where there are none."""
        prepared = [session for session in self._sessions.values() if session.prepared]
        for session in prepared:
            self._end(session.prepared or ())
            session.prepared = []
        return bool(prepared)

    def _end(self, lines: Iterable[Line]) -> None:
        for line in lines:
            self._model.close(line.number)

    def _rows(self, session: DraftSession, line: Line) -> Rows:
        """The next uncached tokens; logits are wanted once they reach the end of the chain."""
        length = session.length(line)
        if line is session.line:
            self._fit(session)
        begin = session.start + self._model.num_cached(line.number)
        end = min(length, begin + self.config.prefill_chunk)
        return Rows(line.number, session.tokens(line, begin, end), int(end == length))

    def _fit(self, session: DraftSession) -> None:
        """Keep the main line within the context, and let it find what others have computed."""
        number, length = session.line.number, session.length(session.line)
        if not 0 < length - session.start <= self._model.context:
            session.start = max(0, length - self._model.context // 2)
            self._model.rollback(number, 0)
            self._end(session.prepared or ())
            session.prepared, session.presented = None, False
        if session.start == 0 and not session.chain:
            self._model.remember(number, session.committed)
            self._model.recall(number, session.committed)

    def _forget(self, session: DraftSession, line: Line, position: int) -> None:
        kept = max(0, position - session.start)
        if kept < self._model.num_cached(line.number):
            self._model.rollback(line.number, kept)

    def _repeat_at(self, session: DraftSession) -> float:
        """When silence is broken; where nothing is wanted, for all sessions at once, at whole multiples of a period.

        While it is still drafting what it was asked for, only to say that it lives: this, too, would be the answer.
        """
        period = self.config.idle_repeat
        if not session.asked:
            return (session.quiet_since // period + 1) * period
        return session.quiet_since + (period if session.due and session.told else 3 * self._round.mean)
