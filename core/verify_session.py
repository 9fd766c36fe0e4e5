"""One generation as the verify engine sees it: its committed chain and the draft that accelerates it.

Enters: proposals off the wire, checked here before anything else. Leaves: the candidate run for the next pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from core.asking import Ask
from core.commit import Chain
from core.company import Cohort
from core.dice import NoiseWindow
from core.messages import Commit, Propose
from core.reply import Reply
from core.step_rule import MAX_MISSES

ASKS_REMEMBERED = 8
_INSTANT = 1e-6  # seconds; nobody waits for less
_BEYOND = 1.5  # times the wait in vain is taken to be what the answer took; at 1, every answer could just be missed


@dataclass(slots=True)
class _Asked:
    """When a draft was asked, and the seconds that its answer was waited for so far."""

    at: float
    in_vain: float = 0.0


class Seat:
    """The draft that holds a session: who it is, what it knows, what it has in hand for the next pass.

    `base` is the highest count of committed tokens heard from it; `candidate` the proposed tokens that follow the
    committed ones; `answered` whether it has spoken since the last commit; `idle` whether it was last told that nothing
    is wanted of it; `reply` how long its process takes to answer.
    """

    def __init__(self, peer: bytes, number: int, now: float, reply: Reply) -> None:
        self.peer = peer
        self.number = number
        self.adapter = peer.rpartition(b"#")[0].decode(errors="replace")
        self.reply = reply
        self.base = 0
        self.candidate: tuple[int, ...] = ()
        self.answered = False
        self.idle = False
        self.heard_at = now
        self.misses = 0
        self.ahead: Propose | None = None  # with branches for the next verdict
        self._asks: dict[int, _Asked] = {}  # by the committed length that the draft was told
        self._missed = False

    def asked(self, length: int, now: float) -> None:
        """A Commit up to `length` was sent; its answer is what the next pass may wait for."""
        if length not in self._asks:
            self._asks[length] = _Asked(now)
            self._missed = False
        while len(self._asks) > ASKS_REMEMBERED:
            del self._asks[min(self._asks)]

    def heard(self, message: Propose, now: float, *, waited: bool) -> bool:
        """A proposal arrived; only the answer to an ask, which makes this true, measures the reply and forgives earlier
        misses.

        Anything else would let a draft that chatters without answering be waited for at every pass. What was read
        only after a pass, not `waited` for, may have come long before, but not before the pass began without it, and by
        what the draft says that it took it had to travel as those do that are waited for.
        """
        num_tokens = len(message.tokens)
        took = message.took if message.took is not None and message.took >= 0.0 else math.inf
        self.heard_at = now
        self.base = max(self.base, message.base)
        ask = self._asks.pop(message.base, None)
        if ask is None:
            return False
        self.misses = 0
        seconds = now - ask.at
        least = min(seconds, _BEYOND * ask.in_vain)
        if waited:
            self.reply.observe(num_tokens, seconds)
            if took < math.inf:
                self.reply.trip.observe(max(0.0, seconds - took))
        elif self.reply.known and least > self.reply.unforeseen(num_tokens):
            self.reply.observe(num_tokens, least)
        else:
            self.reply.observe_at_most(num_tokens, min(seconds, took + self.reply.trip.mean))
        return True

    def foreseen(self, length: int) -> None:
        """The candidate, a branch, is the answer to the ask at `length`."""
        self._asks.pop(length, None)
        self.answered = True
        self.misses = 0
        self.reply.observe_foreseen()

    def arrival(self, length: int, likely: float, most: int, now: float) -> float:
        """Seconds until the answer to the ask at `length` is expected, `likely` tokens and `most` at the most; 0 with
        nothing to wait for.

        A draft that has never answered is not waited for. An ask whose latest time has passed is a miss; after two
        the draft is not waited for until it answers again.
        """
        ask = self._asks.get(length)
        if not self.reply.known or ask is None or self.answered or self._missed or self.misses >= MAX_MISSES:
            return 0.0
        ask.in_vain = elapsed = now - ask.at
        usual = self.reply.unforeseen(most)
        for moment in (self.reply.unforeseen(likely), usual, usual + self.reply.deviation, self.reply.latest(most)):
            if moment - elapsed > _INSTANT:
                return moment - elapsed
        self._missed = True
        self.misses += 1
        return 0.0


class VerifySession:
    """One generation: chain, seat, and how far its own prefill is."""

    def __init__(self, number: int, chain: Chain, max_proposed: int, leader: VerifySession | None) -> None:
        self.number = number
        self.chain = chain
        self.noise = NoiseWindow(chain.params.seed, chain.choice)
        self.max_proposed = max_proposed
        self.plan = Ask(max_proposed)  # what is best to ask of its draft, where the drafts of all are asked
        self.ask = self.plan  # of the draft's next proposal
        self.before = self.plan  # the ask before, by which branches are drafted
        self.asked = max_proposed  # the most tokens that the draft may have known to be asked for
        self.probing = False  # it is asked to see how good the draft is
        self.scouting = False  # it has its draft only for that, and no proposal of it has been verified yet
        self.cohort: Cohort | None = None  # those it came with, where it may have a draft
        self.leader = leader  # its prompt is computed by this session, then forked
        self.followers: list[VerifySession] = []  # whose leader this one is
        self.seat: Seat | None = None
        if leader is not None:
            leader.followers.append(self)

    @property
    def length(self) -> int:
        return len(self.chain.tokens)

    def proposals(self) -> tuple[int, ...]:
        """What would be put to the target if a pass began now; nothing where the pass is others' too."""
        return () if self.seat is None or self.followers else self.seat.candidate[: self.most()]

    def most(self) -> int:
        """How many proposals the next pass would take of it."""
        return self.chain.limit_proposals(self.ask.most) if self.seat is not None else 0

    def planned(self) -> int:
        """How many proposals the next pass would take by the plan."""
        return self.chain.limit_proposals(self.plan.most) if self.seat is not None else 0

    def lead_on(self) -> VerifySession:
        """Hand the followers to the first of them, which is returned."""
        (first, *others), self.followers = self.followers, []
        first.leader, first.followers = None, others
        for other in others:
            other.leader = first
        return first

    def take(self, propose: Propose) -> bool:
        """Hold the proposal up against the committed tokens; False if it contradicts them and was dropped."""
        seat, tokens = self.seat, self.chain.tokens
        assert seat is not None
        known = len(tokens) - propose.base
        if known < 0 or tuple(tokens[propose.base : propose.base + len(propose.tokens)]) != propose.tokens[:known]:
            return False
        run = propose.tokens[known:]
        if seat.candidate[: len(run)] != run:
            seat.candidate = run
        if known == 0:
            seat.answered = True
        return True

    def look_ahead(self, propose: Propose) -> None:
        """Of branches for the last verdict the longest that foresaw it is the draft's answer to it.

        Unless that ends where the ask before it did, and by now more is asked for: then the draft will say more.
        """
        seat, known = self.seat, self.length - propose.base
        assert seat is not None
        if seat.answered or known >= max(map(len, propose.branches)):
            return
        verdict = tuple(self.chain.tokens[propose.base :])
        answer = max((branch[known:] for branch in propose.branches if branch[:known] == verdict), key=len, default=())
        if answer:
            seat.candidate = answer
            self.asked = min(self.ask.most, self.before.most)
            if not self.before.most <= len(answer) < self.planned():
                seat.foreseen(self.length)

    def committed(self, tokens: Sequence[int]) -> None:
        """The chain grew by `tokens`: keep what of the candidate still continues it."""
        if self.seat is None:
            return
        candidate = self.seat.candidate
        self.seat.candidate = candidate[len(tokens) :] if candidate[: len(tokens)] == tuple(tokens) else ()
        self.seat.answered = False

    def commit_message(self, *, prepare: bool) -> Commit:
        assert self.seat is not None
        base = self.seat.base
        wanted = None if self.ask.most == self.max_proposed else self.ask.most
        return Commit(self.number, base, tuple(self.chain.tokens[base:]), wanted, self.ask.worth, prepare)
