"""Continuous batching of target passes over sessions with and without drafts; pure: no thread, socket or clock.

Enters: generation requests, proposals. Leaves: committed runs per session and messages for the drafts. Every pass
takes one row per session plus its proposals, and prefill chunks beside them; proposals change which pass a token
comes out of, never the token (design 5).
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from core.admission import Vocabulary, check
from core.commit import Chain
from core.errors import InvalidRequest, OutOfPages
from core.estimator import AcceptanceEstimator
from core.generation import GenerationRequest, Run
from core.logprobs import token_logprobs
from core.messages import Close, Commit, Propose
from core.model.base import Model
from core.session_table import SessionTable
from core.step_rule import Standing, StepCosts, seconds_to_wait
from core.target_pass import Feed, gather
from core.verify_session import Seat, VerifySession
from core.warps import sample


class VerifyConfig(NamedTuple):
    """Limits of the verify engine; lengths in tokens, times in seconds."""

    max_sessions: int = 32
    window: int = 16  # most tokens a Propose may carry
    num_speculative_tokens: int = 4
    prefill_chunk: int = 256
    draft_lease: float = 2.0


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
        self._sessions = SessionTable(model, config.max_sessions, self.counts)
        self._outbox: dict[tuple[bytes, int], Commit | Close] = {}

    def gauges(self) -> Counter[str]:
        """What is held now; `remembered_pages` are held for no session and given up for any."""
        return Counter(
            sessions=len(self._sessions),
            pages=self._model.num_used_pages,
            remembered_pages=self._model.num_remembered_pages,
        )

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
        seat.heard(message.base, now)
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
        return seconds_to_wait(standings, self.costs) if standings else None

    @torch.inference_mode()
    def step(self) -> list[tuple[int, Run]]:
        """One target pass over every running session; returns what each committed."""
        self._sessions.admit()
        runs: list[tuple[int, Run]] = []
        for session in self._complete():
            runs.append((session.number, Run((), finish_reason=session.chain.finish_reason)))
            self._finish(session)
        feeds, logits = self._forward()
        for feed, rows in zip(feeds, torch.split(logits, [f.num_logits for f in feeds]), strict=True):
            if feed.num_logits:
                runs += [(s.number, self._commit(s, rows, feed.proposals)) for s in self._sessions.share(feed.session)]
            else:
                self._sessions.keep(feed.session)
        return runs

    # ---- sessions

    def _session(self, request: GenerationRequest, group: Sequence[VerifySession]) -> VerifySession:
        vocabulary = self._vocabulary
        context = self._model.context
        chain = Chain(request, eos_ids=vocabulary.eos_ids, context=context, tokenizer=vocabulary.raw)
        wanted = request.num_speculative_tokens
        most = self.config.num_speculative_tokens if wanted is None else min(wanted, self.config.window)
        leader = None
        if chain.finish_reason is None:  # else there is nothing to compute, nor to wait for
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
            session.seat = Seat(peer, message.seat, now)
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
        later = session.expected_length()
        return Standing(
            0.0 if self._lapsed(seat, now) or later <= proposed else seat.arrival(session.length, now),
            self.acceptance.expected_tokens(seat.adapter, proposed),
            self.acceptance.expected_tokens(seat.adapter, later),
            1 + proposed,
            1 + later,
        )

    # ---- one pass

    def _forward(self) -> tuple[list[Feed], torch.Tensor]:
        """What the pass was fed, and its logits [sum of num_logits, V]; sessions are preempted until it has room."""
        while feeds := gather(self._sessions, self._model, self.config.prefill_chunk):
            began = self._clock()
            try:
                logits = self._model.forward([feed.rows for feed in feeds])
            except OutOfPages:
                if not self._sessions.preempt():
                    raise
                continue
            self.costs.observe(sum(len(feed.tokens) for feed in feeds), self._clock() - began)
            self.counts["steps"] += 1
            return feeds, logits
        return [], torch.empty(0)

    def _commit(self, session: VerifySession, logits: torch.Tensor, proposals: tuple[int, ...]) -> Run:
        chain, params, num_valid = session.chain, session.chain.params, self._vocabulary.num_valid
        drawn = sample(logits, params, chain.choice, session.length, chain.counts, proposals, num_valid)
        logprobs = () if params.logprobs is None else token_logprobs(logits, drawn, params.logprobs)
        run = chain.commit(drawn, proposals, logprobs)
        session.committed(run.tokens)
        self._sessions.keep(session)
        self._count(session, run)
        if run.finish_reason is not None:
            self._finish(session)
        else:
            now = self._clock()
            if session.seat is not None and not self._lapsed(session.seat, now):
                self._tell(session, now)
        return run

    def _count(self, session: VerifySession, run: Run) -> None:
        self.counts["tokens"] += len(run.tokens)
        self.counts["proposed"] += run.proposed
        self.counts["accepted"] += run.accepted
        self.counts["plain_passes"] += run.proposed == 0
        if session.seat is not None and run.proposed:
            self.acceptance.observe(session.seat.adapter, run.proposed, run.accepted)
