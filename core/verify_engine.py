"""Continuous batching of target passes over sessions with and without drafts; pure: no thread, socket or clock.

Enters: generation requests, proposals. Leaves: committed runs per session and messages for the drafts. Every pass
takes one row per session plus its proposals, and prefill chunks beside them; proposals change which pass a token
comes out of, never the token (design 5).
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch

from core.admission import Vocabulary, check
from core.commit import Chain
from core.errors import InvalidRequest
from core.estimator import AcceptanceEstimator
from core.generation import GenerationRequest, Run
from core.logprobs import token_logprobs
from core.messages import Close, Commit, Propose
from core.model.base import Model, Rows
from core.reply import Replies
from core.session_table import SessionTable
from core.speculation_length import Others, best_length
from core.step_rule import Standing, StepCosts, seconds_to_wait
from core.verify_session import Seat, VerifySession
from core.warps import score

WORTH_OF_A_PROBE = 1.0  # tokens: not waited for it tells nothing, and one slower than a pass is not worth it


class VerifyConfig(NamedTuple):
    """Limits of the verify engine; lengths in tokens, times in seconds."""

    max_sessions: int = 32
    window: int = 16  # most tokens a Propose may carry
    num_speculative_tokens: int = 4
    prefill_chunk: int = 256
    draft_lease: float = 2.0


class _Feed(NamedTuple):
    session: VerifySession
    tokens: Sequence[int]
    proposals: tuple[int, ...]
    num_logits: int


class VerifyEngine:
    """The target and every generation in flight."""

    def __init__(
        self,
        model: Model,
        vocabulary: Vocabulary,
        config: VerifyConfig,
        clock: Callable[[], float],
        new_session: Callable[[], int] = lambda: secrets.randbits(63),
    ) -> None:
        self.config = config
        self.counts: Counter[str] = Counter()
        self.acceptance = AcceptanceEstimator()
        self.costs = StepCosts()
        self._model = model
        self._vocabulary = vocabulary
        self._clock = clock
        self._new_session = new_session
        self._replies = Replies()
        self._waited = False  # since the last pass
        self._sessions = SessionTable(model, config.max_sessions)
        self._outbox: dict[tuple[bytes, int], Commit | Close] = {}

    def gauges(self) -> Counter[str]:
        """What is held now."""
        return Counter(sessions=len(self._sessions), pages=self._model.num_used_pages)

    def open(self, choices: Sequence[GenerationRequest]) -> list[int]:
        """Take in the choices of one prompt; those with equal tokens share one prefill. Returns their numbers."""
        if len(choices) > self.config.max_sessions:
            raise InvalidRequest("n", f"{len(choices)} choices; at most {self.config.max_sessions} run at a time")
        for request in choices:
            check(request, self._vocabulary, self._model.context)
        group: list[VerifySession] = []
        for request in choices:
            group.append(self._session(request, group))
        self._sessions.add(group)
        return [session.number for session in group]

    def close(self, number: int) -> None:
        """End a session early; unknown ones are ignored."""
        session = self._sessions.get(number)
        if session is not None:
            self._finish(session)

    def receive(self, peer: bytes, message: Propose) -> None:
        """A proposal off the wire; whatever is wrong with it is counted and dropped."""
        session = self._sessions.get(message.session)
        if session is None:
            self._drop("unknown_session")
            self._outbox[peer, message.session] = Close(message.session, message.seat)
            return
        now = self._clock()
        if not self._admissible(peer, session, message, now):
            return
        seat = session.seat
        assert seat is not None
        repeated = seat.answered
        if not session.take(message):
            self._drop("stale")
            if message.base > session.length:
                return
        seat.heard(message.base, len(message.tokens), now, waited=self._waited)
        if message.base < session.length:
            self._tell(session, now)
        elif repeated:  # nothing to tell, but a draft that hears nothing for long takes the session for dead
            self._outbox[peer, session.number] = session.commit_message()

    def outgoing(self) -> list[tuple[bytes, Commit | Close]]:
        """Messages to send; each the newest for its session and peer."""
        messages = [(peer, message) for (peer, _), message in self._outbox.items()]
        self._outbox.clear()
        return messages

    def wait(self) -> float | None:
        """Seconds until the next pass should begin, 0 for now, None when there is nothing to do."""
        self._sessions.admit()
        if self._complete():
            return 0.0
        now = self._clock()
        standings = [self._standing(session, now) for session in self._sessions.leading()]
        seconds = seconds_to_wait(standings, self.costs) if standings else None
        self._waited = seconds != 0.0
        return seconds

    @torch.inference_mode()
    def step(self) -> list[tuple[int, Run]]:
        """One target pass over every running session; returns what each committed."""
        self._sessions.admit()
        runs: list[tuple[int, Run]] = []
        for session in self._complete():
            runs.append((session.number, Run((), finish_reason=session.chain.finish_reason)))
            self._finish(session)
        feeds = self._feeds()
        if not feeds:
            return runs
        began = self._clock()
        logits = self._model.forward([Rows(f.session.number, f.tokens, f.num_logits) for f in feeds])
        self.costs.observe(sum(len(f.tokens) for f in feeds), self._clock() - began)
        self.counts["steps"] += 1
        drawn_for: list[tuple[VerifySession, _Feed, torch.Tensor]] = []
        for feed, rows in zip(feeds, torch.split(logits, [f.num_logits for f in feeds]), strict=True):
            if feed.num_logits:
                drawn_for += [(session, feed, rows) for session in self._sessions.share(feed.session)]
        for (session, feed, rows), drawn in zip(drawn_for, self._draw(drawn_for), strict=True):
            runs.append((session.number, self._commit(session, rows, drawn, feed.proposals)))
        self._ask([session for session, _, _ in drawn_for])
        return runs

    # ---- sessions

    def _session(self, request: GenerationRequest, group: Sequence[VerifySession]) -> VerifySession:
        vocabulary = self._vocabulary
        context = self._model.context
        chain = Chain(request, eos_ids=vocabulary.eos_ids, context=context, tokenizer=vocabulary.raw)
        wanted = request.num_speculative_tokens
        most = self.config.num_speculative_tokens if wanted is None else min(wanted, self.config.window)
        leader = next((s for s in group if s.leader is None and s.chain.tokens == chain.tokens), None)
        return VerifySession(self._new_session(), chain, most, leader)

    def _complete(self) -> list[VerifySession]:
        """Sessions resumed when their answer was complete: they only have to be told so."""
        return [session for session in self._sessions.leading() if session.chain.finish_reason is not None]

    def _finish(self, session: VerifySession) -> None:
        self._sessions.remove(session)
        if session.seat is not None:
            self._outbox[session.seat.peer, session.number] = Close(session.number, session.seat.number)

    # ---- proposals

    def _admissible(self, peer: bytes, session: VerifySession, message: Propose, now: float) -> bool:
        """Seat, length and ids, before anything is read from the message; seats a newer draft."""
        if len(message.tokens) > self.config.window or message.base < 0:
            return self._drop("too_long")
        if not all(0 <= token < self._vocabulary.num_valid for token in message.tokens):
            return self._drop("bad_token")
        seat = session.seat
        if seat is None or message.seat > seat.number:
            if seat is not None:
                self._outbox[seat.peer, session.number] = Close(session.number, seat.number)
            session.seat = Seat(peer, message.seat, now, self._replies.of(peer))
            return True
        if message.seat < seat.number or peer != seat.peer:
            self._outbox[peer, session.number] = Close(session.number, message.seat)
            return self._drop("not_its_seat")
        return True

    def _drop(self, reason: str) -> bool:
        self.counts[f"dropped_{reason}"] += 1
        return False

    def _tell(self, session: VerifySession, now: float) -> None:
        assert session.seat is not None
        self._outbox[session.seat.peer, session.number] = session.commit_message()
        session.seat.asked(session.length, now)

    def _lapsed(self, seat: Seat, now: float) -> bool:
        """A draft that let its lease and its repeats pass is forgotten until it is heard."""
        return now - seat.heard_at > self.config.draft_lease + 4 * self.costs.seconds(1)

    def _standing(self, session: VerifySession, now: float) -> Standing:
        uncached = session.length - self._model.num_cached(session.number)
        seat = session.seat
        proposed = len(session.proposals()) if uncached == 1 else 0
        if seat is None or uncached > 1:
            return Standing(0.0, 1.0, 1.0, min(uncached, self.config.prefill_chunk), 0)
        later = session.most()
        return Standing(
            0.0 if self._lapsed(seat, now) or later <= proposed else seat.arrival(session.length, later, now),
            self.acceptance.expected_tokens(seat.adapter, proposed),
            self.acceptance.expected_tokens(seat.adapter, later) + WORTH_OF_A_PROBE * session.probing,
            1 + proposed,
            1 + later,
        )

    # ---- one pass

    def _feeds(self) -> list[_Feed]:
        budget = self.config.prefill_chunk
        feeds: list[_Feed] = []
        for session in self._sessions.leading():
            cached = self._model.num_cached(session.number)
            if session.length - cached == 1:
                proposals = session.proposals()
                feeds.append(_Feed(session, [session.chain.tokens[-1], *proposals], proposals, 1 + len(proposals)))
            elif budget > 0:
                chunk = session.chain.tokens[cached : cached + budget]
                budget -= len(chunk)
                feeds.append(_Feed(session, chunk, (), int(cached + len(chunk) == session.length)))
        return feeds

    def _draw(self, rows_of: Sequence[tuple[VerifySession, _Feed, torch.Tensor]]) -> list[list[int]]:
        """The target's token for every row of every session, taken off the device in one piece."""
        if not rows_of:
            return []
        num_valid = self._vocabulary.num_valid
        scores = [
            score(rows, s.chain.params, s.noise, s.length, s.chain.counts, feed.proposals, num_valid)
            for s, feed, rows in rows_of
        ]
        drawn = torch.cat(scores).argmax(-1).tolist()
        ends = accumulate(len(rows) for rows in scores)
        return [drawn[end - len(rows) : end] for rows, end in zip(scores, ends, strict=True)]

    def _commit(
        self, session: VerifySession, logits: torch.Tensor, drawn: list[int], proposals: tuple[int, ...]
    ) -> Run:
        chain, params = session.chain, session.chain.params
        logprobs = () if params.logprobs is None else token_logprobs(logits, drawn, params.logprobs)
        run = chain.commit(drawn, proposals, logprobs)
        session.committed(run.tokens)
        self._count(session, run)
        if run.finish_reason is not None:
            self._finish(session)
        else:
            self._model.rollback(session.number, session.length - 1)
        return run

    def _ask(self, committed: Sequence[VerifySession]) -> None:
        """Tell the drafts what was committed, and how many tokens to propose next."""
        now = self._clock()
        drafted = [s for s in committed if s.seat and s.chain.finish_reason is None and not self._lapsed(s.seat, now)]
        prospects = {session.number: self._prospect(session) for session in drafted}
        plain = len(self._sessions.leading()) - len(drafted)
        tokens = plain + sum(prospect.tokens for prospect in prospects.values())
        rows = plain + sum(prospect.rows for prospect in prospects.values())
        for session in drafted:
            assert session.seat is not None
            own = prospects[session.number]
            wait = max((p.wait for number, p in prospects.items() if number != session.number), default=0.0)
            others = Others(tokens - own.tokens, rows - own.rows, wait)
            expected = self.acceptance.expected_by_length(session.seat.adapter, session.max_proposed)
            best = best_length(expected, session.seat.reply, others, self.costs)
            session.wanted = session.seat.probe.length(best)
            session.probing = session.wanted > best
            self._tell(session, now)

    def _prospect(self, session: VerifySession) -> Others:
        """What the session's next pass is expected to be, as things stand."""
        seat, most = session.seat, session.most()
        assert seat is not None
        return Others(self.acceptance.expected_tokens(seat.adapter, most), 1 + most, seat.reply.mean(most))

    def _count(self, session: VerifySession, run: Run) -> None:
        self.counts["tokens"] += len(run.tokens)
        self.counts["proposed"] += run.proposed
        self.counts["accepted"] += run.accepted
        self.counts["plain_passes"] += run.proposed == 0
        if session.seat is not None and run.proposed:
            self.acceptance.observe(session.seat.adapter, run.proposed, run.accepted)
            if run.accepted:
                session.seat.probe.right()
