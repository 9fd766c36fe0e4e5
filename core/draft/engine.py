"""Drafting for many sessions at once; pure: no thread, socket or clock of its own.

Drafts sample with the target's own noise, so a draft that agrees with the target predicts its tokens at any
temperature.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple

from core.draft.line import Line
from core.draft.lookahead import LITTLE_MORE, MOST_LINES, PAUSE, likely_verdicts
from core.draft.proposer import LineRows, Proposer
from core.draft.session import DraftSession, State
from core.draft.token_confidence import Confidence
from core.errors import OutOfPages
from core.generation import MAX_SPECULATIVE_TOKENS
from core.model.base import Model, Rows
from core.model.draft_tokens import DraftToken
from core.policy.cost_model import PassCosts
from core.policy.latency import Smoothed
from core.policy.prompt_costs import Chunk
from core.policy.prompt_share import BOUND_PASSES, Room, UnreadPrompt, follows, shares, within
from core.wire.messages import MOST_BRANCHES, Close, Commit, OpenSession, Propose


class DraftConfig(NamedTuple):
    """Limits of the draft engine; lengths in tokens, times in seconds."""

    max_sessions: int = 32
    prefill_chunk: int = 256
    session_lease: float = 10.0
    first_repeat: float = 0.05  # before a round has been measured
    idle_repeat: float = 1.0  # while nothing is asked for, or drafting takes long


class DraftEngine:
    """A draft model and the sessions it accelerates."""

    def __init__(self, model: Model[Any], num_valid: int, config: DraftConfig, clock: Callable[[], float]) -> None:
        self.config = config
        self.counts: Counter[str] = Counter()
        self._model = model
        self._num_valid = num_valid
        self._confidence = Confidence()
        self._pass = Proposer(model, num_valid, self._confidence)
        self._clock = clock
        self._round = Smoothed(config.first_repeat / 3)
        self._costs = PassCosts()  # of a pass by its lines
        self._at_once = min(config.prefill_chunk, 1 + MAX_SPECULATIVE_TOKENS)  # tokens: what a verdict brings
        self._reads = False  # whether the last pass read prompts
        self._min_survival = 0.0  # of the last Commit, for sessions that have had none
        self._lookahead = True  # the same, of the last that asked for tokens: a guess, if verifiers differ
        self._sessions: dict[int, DraftSession] = {}
        self._numbers = count(-1, -1)  # of branches in the model; sessions count upwards

    def warm_up(self) -> None:
        """Make the first proposals about as fast as later ones; before the first session."""
        self._pass.warm_up(self.config.prefill_chunk)

    def gauges(self) -> Counter[str]:
        """Sessions and pages held now.

        Of `asked_sessions` tokens are wanted, as of every one until a verifier says otherwise. The `free_pages` belong
        to no session. `remembered_pages` are those of them that still hold a text.
        """
        return Counter(
            sessions=len(self._sessions),
            asked_sessions=sum(session.num_tokens > 0 for session in self._sessions.values()),
            pages=self._model.num_used_pages,
            free_pages=self._model.num_free_pages,
            remembered_pages=self._model.num_prefix_pages,
        )

    @property
    def drafting(self) -> bool:
        """Whether there is something to draft: a proposal, or by now a branch."""
        now = self._clock()
        return any(not session.complete or self._looks_ahead_at(session) <= now for session in self._sessions.values())

    def peers(self) -> set[bytes]:
        """The verifiers that sessions are drafted for."""
        return {session.peer for session in self._sessions.values()}

    def epoch(self, number: int) -> int | None:
        """The epoch of the session that is held here, if it is."""
        session = self._sessions.get(number)
        return None if session is None else session.opened.epoch

    def open(self, opened: OpenSession, peer: bytes) -> None:
        """Join a generation; a session opened twice starts afresh."""
        self.close(opened.session)
        session = DraftSession(opened, peer, self._clock(), self._confidence)
        session.min_survival = self._min_survival
        session.lookahead = opened.lookahead and self._lookahead
        self._sessions[opened.session] = session
        self._model.open(opened.session)

    def close(self, number: int) -> None:
        """Leave a generation; unknown ones are ignored."""
        session = self._sessions.pop(number, None)
        if session is not None:
            if session.start == 0:
                self._model.store_prefix(session.line.number, session.committed)
            self._end(session.lines)

    def receive(self, peer: bytes, message: Commit | Close) -> int | None:
        """Take a message from a verifier; returns the session's number if that ended it."""
        session = self._sessions.get(message.session)
        if session is None or session.peer != peer:
            self.counts["dropped_unknown_session"] += 1
            return None
        if isinstance(message, Close):
            if message.epoch < session.opened.epoch:
                return None  # meant for an earlier session of the same generation
            self.close(message.session)
            return message.session
        if not self._valid(message):
            self.counts["dropped_bad_commit"] += 1
            return None
        change = session.take(message, self._clock())
        self._min_survival = session.min_survival
        if session.num_tokens:
            self._lookahead = message.lookahead
        self._end(change.ended)
        if change.cut is not None:
            self._forget(session, session.line, change.cut)
        if change.round_seconds is not None:
            self._round.observe(change.round_seconds)
        if change.committed:
            self.counts["rounds"] += 1
            self.counts["rounds_foreseen"] += bool(session.chain)
        return None

    def _valid(self, commit: Commit) -> bool:
        """Whether the fields of a Commit are in range; a NaN is not."""
        ranges = commit.base >= 0 and (commit.num_tokens or 0) >= 0 and commit.min_survival >= 0.0
        return ranges and all(0 <= token < self._num_valid for token in commit.tokens)

    def outgoing(self) -> list[tuple[bytes, Propose]]:
        """Proposals to send: those that are due and complete, and repeats after too long a silence."""
        now = self._clock()
        messages: list[tuple[bytes, Propose]] = []
        for session in self._sessions.values():
            complete = session.complete
            if (session.due and complete) or now >= self._repeat_at(session):
                session.quiet_since = now
                if session.proposed_at is None:  # from the first one: by its repeats a round would seem ever shorter
                    session.proposed_at = now
                messages.append((session.peer, session.proposal(now)))
                session.asked_at = None
                if session.due and complete:
                    session.state = State.PROPOSED
            elif session.presentable:
                messages.append((session.peer, session.presentation()))
                session.state = State.BRANCHED
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
        sessions = self._sessions.values()
        next_at = min(min(self._repeat_at(session), self._looks_ahead_at(session)) for session in sessions)
        return max(0.0, next_at - self._clock())

    def step(self) -> None:
        """Draft a token or more for every unfinished line, or read chunks of prompts; where both wait, in turn."""
        unfinished = [(session, line, self._unread(session, line)) for session, line in self._unfinished()]
        reading = [(session, chunk) for session, _, chunk in unfinished if chunk.tokens > self._at_once]
        self._reads = bool(reading) and (len(reading) == len(unfinished) or not self._reads)
        if self._reads:
            parts = self._chunks(reading)
        else:
            parts = [
                LineRows(session, line, self._rows(session, line, chunk))
                for session, line, chunk in unfinished
                if chunk.tokens <= self._at_once
            ]
        if parts:
            self._compute(parts)

    def _compute(self, parts: Sequence[LineRows]) -> None:
        chunks = [Chunk(len(part.rows.tokens), self._model.num_cached(part.line.number)) for part in parts]
        began, before = self._clock(), [len(part.line.chain) for part in parts]
        self.counts["steps"] += 1
        try:
            result = self._pass(parts)
        except OutOfPages:
            if not self._drop_branches():
                raise
            return
        seconds = self._clock() - began
        for part, length in zip(parts, before, strict=True):
            self.counts["drafted" if part.line is part.session.line else "prepared"] += len(part.line.chain) - length
        if not any(part.rows.num_logits for part in parts):
            self._costs.observe_reading(0, chunks, seconds)
        elif result.tokens and not self._reads:
            self._costs.observe(result.lines, seconds / result.tokens)

    def _unfinished(self) -> list[tuple[DraftSession, Line]]:
        """The lines of the next pass; proposals come before branches."""
        sessions = self._sessions.values()
        proposals = [(session, session.line) for session in sessions if not session.complete]
        if proposals:
            return proposals
        now = self._clock()
        idle = [session for session in sessions if self._looks_ahead_at(session) <= now]
        for session in idle:
            if session.branches is None and session.chain_has_bonus:
                session.branches = self._branch(session)
        return [(session, line) for session in idle for line in session.ahead()]

    def _looks_ahead_at(self, session: DraftSession) -> float:
        """The time to begin drafting ahead; infinite if that is not allowed or nothing is left to draft."""
        if not session.looks_ahead or not (session.branches is None or session.ahead()):
            return math.inf
        return (session.proposed_at or 0.0) + PAUSE * self._round.mean

    def _branch(self, session: DraftSession) -> list[Line]:
        """A line for each of the likeliest verdicts; none where the context ends."""
        longest = session.length(session.line) + session.opened.num_speculative_tokens
        if longest - session.start > self._model.context:
            return []
        lines = []
        limit = self._most_branches(session)
        for accepted, token in likely_verdicts(session.chain, session.proposed, self._confidence, limit):
            line = Line(next(self._numbers), [*session.chain[:accepted], DraftToken(token)], accepted + 1)
            self._model.fork(session.line.number, line.number)
            self._forget(session, line, len(session.committed) + accepted)
            lines.append(line)
        return lines

    def _most_branches(self, session: DraftSession) -> int:
        """As many as are drafted by the time the verdict comes, or cost little more than one."""
        together = len(self._sessions)
        time = max(self._round.mean, LITTLE_MORE * session.proposed * self._costs.seconds(together))
        for branches in range(min(MOST_BRANCHES, MOST_LINES // together), 1, -1):
            if session.proposed * self._costs.seconds(branches * together) <= time:
                return branches
        return 1

    def _drop_branches(self) -> bool:
        """Give the pages of all branches back; False if there are none."""
        branched = [session for session in self._sessions.values() if session.branches]
        for session in branched:
            self._end(session.branches or ())
            session.branches = []
        return bool(branched)

    def _end(self, lines: Iterable[Line]) -> None:
        for line in lines:
            self._model.close(line.number)

    def _unread(self, session: DraftSession, line: Line) -> Chunk:
        """The tokens of the line that are not cached."""
        if line is session.line:
            self._fit(session)
        begin = self._model.num_cached(line.number)
        return Chunk(session.length(line) - session.start - begin, begin)

    def _chunks(self, reading: Sequence[tuple[DraftSession, Chunk]]) -> list[LineRows]:
        """Parts of prompts, in the order in which their sessions joined.

        They take as long as half a round of the others, who may be asked for a proposal meanwhile, or as a few tokens.
        """
        waiting, before = list[UnreadPrompt](), list[Sequence[int]]()
        for session, (unread, depth) in reading:
            tokens = session.committed[session.start :]
            waiting.append(UnreadPrompt(unread, depth, follows(tokens, depth, before)))
            before.append(tokens)
        others = len(self._sessions) - len(reading)
        space = Room(self.config.prefill_chunk)
        if others:
            bound = max(self._round.mean / 2, BOUND_PASSES * self._costs.seconds(others))
            space = within(self._costs, self.config.prefill_chunk, bound)
        lengths = shares(waiting, space, self._costs.prompts)
        return [
            LineRows(session, session.line, self._rows(session, session.line, Chunk(tokens, chunk.depth)))
            for (session, chunk), tokens in zip(reading, lengths, strict=True)
            if tokens
        ]

    def _rows(self, session: DraftSession, line: Line, chunk: Chunk) -> Rows:
        """A chunk of the line's uncached tokens, with logits if it reaches the end of the chain."""
        begin = session.start + chunk.depth
        end = begin + chunk.tokens
        return Rows(line.number, session.tokens(line, begin, end), int(end == session.length(line)))

    def _fit(self, session: DraftSession) -> None:
        """Keep the main line within the context, and reuse what other sessions have computed."""
        number, length = session.line.number, session.length(session.line)
        if not 0 < length - session.start <= self._model.context:
            session.start = max(0, length - self._model.context // 2)
            self._model.rollback(number, 0)
            self._end(session.branches or ())
            session.branches = None
            if session.state is State.BRANCHED:
                session.state = State.PROPOSED
        if session.start == 0 and not session.chain:
            self._model.store_prefix(number, session.committed)
            self._model.lookup_prefix(number, session.committed)

    def _forget(self, session: DraftSession, line: Line, position: int) -> None:
        length = max(0, position - session.start)
        if length < self._model.num_cached(line.number):
            self._model.rollback(line.number, length)

    def _repeat_at(self, session: DraftSession) -> float:
        """When a proposal is sent again, against lost messages and to show that the draft lives.

        Sessions that are asked for nothing repeat at once, at whole multiples of a period. One that is still drafting
        repeats late: an unfinished proposal would be taken for the answer.
        """
        period = self.config.idle_repeat
        if not session.num_tokens:
            return (session.quiet_since // period + 1) * period
        return session.quiet_since + (period if session.state is State.ASKED else 3 * self._round.mean)
