"""One generation as the verify engine sees it: its committed chain and the draft that accelerates it.

Enters: proposals off the wire, checked here before anything else. Leaves: the candidate run for the next pass.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.commit import Chain
from core.messages import Commit, Propose
from core.step_rule import MAX_MISSES, Smoothed

ASKS_REMEMBERED = 8


class Seat:
    """The draft that holds a session: who it is, what it knows, what it has in hand for the next pass.

    `base` is the highest count of committed tokens heard from it; `candidate` the proposed tokens that follow the
    committed ones; `answered` whether it has spoken since the last commit; `reply` how long it takes to answer and
    `usual_length` how many tokens it then brings, both None until seen.
    """

    def __init__(self, peer: bytes, number: int, now: float) -> None:
        self.peer = peer
        self.number = number
        self.adapter = peer.partition(b"#")[0].decode("ascii", "replace")
        self.reply: Smoothed | None = None
        self.base = 0
        self.candidate: tuple[int, ...] = ()
        self.usual_length: int | None = None
        self.answered = False
        self.heard_at = now
        self.misses = 0
        self._asks: dict[int, float] = {}  # committed length -> when the draft was told of it
        self._missed = False

    def asked(self, length: int, now: float) -> None:
        """A Commit up to `length` was sent; its answer is what the next pass may wait for."""
        if length not in self._asks:
            self._asks[length] = now
            self._missed = False
        while len(self._asks) > ASKS_REMEMBERED:
            del self._asks[min(self._asks)]

    def heard(self, base: int, now: float) -> None:
        """A Propose with `base` arrived; only the answer to an ask measures the reply and forgives earlier misses.

        Anything else would let a draft that chatters without answering be waited for at every pass.
        """
        self.heard_at = now
        self.base = max(self.base, base)
        asked_at = self._asks.pop(base, None)
        if asked_at is None:
            return
        self.misses = 0
        if self.reply is None:
            self.reply = Smoothed(now - asked_at)
        else:
            self.reply.observe(now - asked_at)

    def arrival(self, length: int, now: float) -> float:
        """Seconds until the answer to the ask at `length` is expected; 0 when there is nothing to wait for.

        A draft that has never answered is not waited for. An ask whose latest time has passed is a miss; after two
        the draft is not waited for until it answers again.
        """
        asked_at = self._asks.get(length)
        if self.reply is None or asked_at is None or self.answered or self._missed or self.misses >= MAX_MISSES:
            return 0.0
        elapsed = now - asked_at
        if elapsed >= self.reply.latest:
            self._missed = True
            self.misses += 1
            return 0.0
        return max(self.reply.mean - elapsed, self.reply.deviation)


class VerifySession:
    """One generation: chain, seat, and how far its own prefill is."""

    def __init__(self, number: int, chain: Chain, max_proposed: int, leader: VerifySession | None) -> None:
        self.number = number
        self.chain = chain
        self.max_proposed = max_proposed
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
        if self.seat is None or self.followers:
            return ()
        candidate = self.seat.candidate
        return candidate[: self.chain.limit_proposals(min(len(candidate), self.max_proposed))]

    def lead_on(self) -> VerifySession:
        """Hand the followers to the first of them, which is returned."""
        (first, *others), self.followers = self.followers, []
        first.leader, first.followers = None, others
        for other in others:
            other.leader = first
        return first

    def expected_length(self) -> int:
        """How many proposals the draft is expected to bring when it is waited for."""
        usual = self.seat.usual_length if self.seat is not None else 0
        return self.chain.limit_proposals(self.max_proposed if usual is None else min(usual, self.max_proposed))

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
            seat.usual_length = len(run)
        return True

    def committed(self, tokens: Sequence[int]) -> None:
        """The chain grew by `tokens`: keep what of the candidate still continues it."""
        if self.seat is None:
            return
        candidate = self.seat.candidate
        self.seat.candidate = candidate[len(tokens) :] if candidate[: len(tokens)] == tuple(tokens) else ()
        self.seat.answered = False

    def commit_message(self) -> Commit:
        assert self.seat is not None
        base = self.seat.base
        return Commit(self.number, base, tuple(self.chain.tokens[base:]))
