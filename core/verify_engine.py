"""Continuous batching of target passes over sessions with and without drafts; pure: no thread, socket or clock.

Enters: generation requests, proposals. Leaves: committed runs per session and messages for the drafts. Every pass
takes one row per session plus its proposals, and prefill chunks beside them; proposals change which pass a token
comes out of, never the token (design 5).
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch

from core.admission import Vocabulary, check
from core.commit import Chain
from core.crowd import Crowd
from core.errors import ConfigError, InvalidRequest, OutOfPages
from core.generation import GenerationRequest, Run
from core.logprobs import token_logprobs
from core.messages import Close, Commit, Propose
from core.model.base import Model
from core.preparing import Preparing
from core.seats import Seats
from core.session_table import SessionTable
from core.step_costs import StepCosts
from core.step_rule import Standing, seconds_to_wait
from core.target_pass import Feed, gather
from core.verify_session import VerifySession
from core.warps import Sampling, score


class VerifyConfig(NamedTuple):
    """Limits of the verify engine; lengths in tokens, times in seconds."""

    max_sessions: int = 32
    window: int = 16  # most tokens a Propose may carry
    num_speculative_tokens: int = 4
    prefill_chunk: int = 256
    draft_lease: float = 2.0


class _Drawn(NamedTuple):
    """A session whose next tokens a pass computed: what it was fed, and the target's logits [num_logits, V]."""

    session: VerifySession
    feed: Feed
    logits: torch.Tensor


class VerifyEngine:
    """The target and every generation in flight.

    `counts`: of passes `steps`, and of what they did for a session each: `tokens`, `proposed`, `accepted` and the
    `plain_passes` without proposals; microseconds `stepping_us`, and `waiting_us` for proposals; what was `dropped_*`.
    """

    def __init__(
        self,
        model: Model,
        vocabulary: Vocabulary,
        config: VerifyConfig,
        clock: Callable[[], float],
        new_session: Callable[[], int] = lambda: secrets.randbits(63),
    ) -> None:
        if vocabulary.num_valid > model.vocab_size:
            raise ConfigError(
                f"the tokenizer has {vocabulary.num_valid} ids and the target only {model.vocab_size}: of two models?"
            )
        self.config = config
        self.counts: Counter[str] = Counter()
        self.costs = StepCosts()
        self._model = model
        self._vocabulary = vocabulary
        self._clock = clock
        self._new_session = new_session
        self._sessions = SessionTable(model, config.max_sessions, self.counts)
        self._crowd = Crowd()
        self._waiting_since: float | None = None
        self._ended: float | None = None  # the last pass; None where there was nothing to do since
        self._preparing = Preparing()
        self._seats = Seats(
            self.counts,
            self.costs,
            self._preparing,
            window=config.window,
            num_valid=vocabulary.num_valid,
            lease=config.draft_lease,
        )

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
        self._crowd.observe(len(self._sessions), self._clock())
        for session in group:
            self._seats.joined(session, self._expected())
        return [session.number for session in group]

    def close(self, number: int) -> None:
        """End a session early; unknown ones are ignored."""
        session = self._sessions.get(number)
        if session is not None:
            self._finish(session)

    def receive(self, peer: bytes, message: Propose) -> None:
        """A proposal off the wire; whatever is wrong with it is counted and dropped."""
        self._seats.receive(peer, self._sessions.get(message.session), message, self._clock())

    def outgoing(self) -> list[tuple[bytes, Commit | Close]]:
        """Messages to send; each the newest for its session and peer."""
        return self._seats.outgoing()

    def urgent(self) -> list[tuple[bytes, Commit | Close]]:
        """Of the messages to send those that the next pass may wait for an answer to."""
        return self._seats.urgent()

    def wanted(self) -> dict[str, bool]:
        """Whether new sessions should have an adapter's drafts; of all that were asked, the last asked last."""
        return self._seats.wanted(self._expected(), self.config.num_speculative_tokens)

    def others_wanted(self) -> bool:
        """Whether they should have those of an adapter that was never asked."""
        return self._seats.others_wanted(self._expected(), self.config.num_speculative_tokens)

    def scout(self, numbers: Sequence[int]) -> int | None:
        """Which of these sessions, just opened, should have its draft even where that is not wanted, if one should."""
        session = self._seats.scout(filter(None, map(self._sessions.get, numbers)))
        return None if session is None else session.number

    def wait(self) -> float | None:
        """Seconds until the next pass should begin, 0 for now, None when there is nothing to do."""
        self._sessions.admit()
        if self._complete():
            return 0.0
        now = self._clock()
        standings = [self._standing(session, now) for session in self._sessions.leading()]
        seconds = seconds_to_wait(standings, self.costs) if standings else None
        self._seats.waited = seconds != 0.0
        if seconds is None:
            self._waiting_since = self._ended = None
        elif seconds and self._waiting_since is None:
            self._waiting_since = now
        return seconds

    @torch.inference_mode()
    def step(self) -> list[tuple[int, Run]]:
        """One target pass over every running session; returns what each committed."""
        began = self._clock()
        self._sessions.admit()
        runs: list[tuple[int, Run]] = []
        for session in self._complete():
            runs.append((session.number, Run((), finish_reason=session.chain.finish_reason)))
            self._finish(session)
        feeds, logits = self._forward()
        drawn: list[_Drawn] = []
        for feed, rows in zip(feeds, torch.split(logits, [feed.num_logits for feed in feeds]), strict=True):
            if feed.num_logits:
                drawn += [_Drawn(session, feed, rows) for session in self._sessions.share(feed.session)]
            else:
                self._sessions.keep(feed.session)
        for one, tokens in zip(drawn, self._draw(drawn, logits), strict=True):
            runs.append((one.session.number, self._commit(one, tokens)))
        unfinished = [one.session for one in drawn if one.session.chain.finish_reason is None]
        ended = self._clock()
        self._compare(feeds, ended)
        self._seats.ask(unfinished, len(self._sessions.leading()), ended)
        self._count_time(began, ended)
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

    def _expected(self) -> int:
        """How many sessions a new one will run beside."""
        expected = max(len(self._sessions), round(self._crowd.mean(self._clock())))
        return min(max(1, expected), self.config.max_sessions)

    def _complete(self) -> list[VerifySession]:
        """Sessions resumed when their answer was complete: they only have to be told so."""
        return [session for session in self._sessions.leading() if session.chain.finish_reason is not None]

    def _finish(self, session: VerifySession) -> None:
        self._sessions.remove(session)
        self._crowd.observe(len(self._sessions), self._clock())
        self._seats.leave(session)

    def _standing(self, session: VerifySession, now: float) -> Standing:
        uncached = session.length - self._model.num_cached(session.number)
        if uncached > 1:
            return Standing(0.0, 1.0, 1.0, min(uncached, self.config.prefill_chunk), 0)
        return self._seats.standing(session, now)

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
            if logits.is_cuda:  # it has its work by now, and is not done
                torch.cuda.synchronize(logits.device)
            self.costs.observe(sum(len(feed.tokens) for feed in feeds), self._clock() - began)
            self.counts["steps"] += 1
            return feeds, logits
        return [], torch.empty(0)

    def _draw(self, drawn: Sequence[_Drawn], logits: torch.Tensor) -> list[list[int]]:
        """The target's token for every row of every session, taken off the device in one piece."""
        if not drawn:
            return []
        sessions = [
            Sampling(one.chain.params, one.noise, one.length, one.chain.counts, feed.proposals)
            for one, feed, _ in drawn
        ]
        ends = list(accumulate(one.rows for one in sessions))
        if ends[-1] > len(logits):  # a prompt's row is drawn from by all who share it
            logits = torch.cat([one.logits for one in drawn])
        tokens = score(logits, sessions, self._vocabulary.num_valid).argmax(-1).tolist()
        return [tokens[begin:end] for begin, end in pairwise([0, *ends])]

    def _commit(self, drawn: _Drawn, tokens: list[int]) -> Run:
        session, proposals = drawn.session, drawn.feed.proposals
        top = session.chain.params.logprobs
        run = session.chain.commit(tokens, proposals, () if top is None else token_logprobs(drawn.logits, tokens, top))
        session.committed(run.tokens)
        self._sessions.keep(session)
        self._count(run)
        self._seats.verified(session, run)
        if run.finish_reason is not None:
            self._finish(session)
        return run

    def _compare(self, feeds: Sequence[Feed], ended: float) -> None:
        """What a pass for which drafts were asked, without prompts, took since the last one with what it should."""
        before, self._ended = self._ended, ended
        asked = any(feed.session.seat is not None and not feed.session.seat.idle for feed in feeds)
        expected = self.costs.at_rest(sum(feed.num_logits for feed in feeds))
        drawn = all(feed.num_logits == len(feed.tokens) for feed in feeds)
        if before is not None and ended > before and asked and drawn and expected:
            self._preparing.observe(ended - before, expected)

    def _count_time(self, began: float, ended: float) -> None:
        if self._waiting_since is not None:
            self.counts["waiting_us"] += round(1e6 * (began - self._waiting_since))
            self._waiting_since = None
        self.counts["stepping_us"] += round(1e6 * (ended - began))

    def _count(self, run: Run) -> None:
        self.counts["tokens"] += len(run.tokens)
        self.counts["proposed"] += run.proposed
        self.counts["accepted"] += run.accepted
        self.counts["plain_passes"] += run.proposed == 0
