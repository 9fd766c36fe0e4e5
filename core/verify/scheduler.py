"""Admission and preemption: which sessions run, which wait for room, and which wait for a shared prompt.

The choices of one prompt are admitted together, first come, first served. Of choices with equal tokens the first one
leads: it computes the prompt, and the others are forked from it. If pages run out, the session admitted last makes room
for those before it, so the first always comes to its end.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from core.model.base import Model
from core.model.pages import PAGE_SIZE, pages_for
from core.verify.session import VerifySession


class Scheduler:
    """Sessions by number, and their places in the model's cache.

    It counts `prompt_tokens`, the tokens that sessions began with, again after a preemption; `prefix_hit_tokens`, those
    of them that were cached; and `preemptions`.
    """

    def __init__(self, model: Model, max_sessions: int, counts: Counter[str]) -> None:
        self._model = model
        self._max_sessions = max_sessions
        self._counts = counts
        self._waiting: deque[list[VerifySession]] = deque()
        self._running: dict[int, VerifySession] = {}
        self._all: dict[int, VerifySession] = {}

    def __len__(self) -> int:
        return len(self._all)

    @property
    def num_waiting(self) -> int:
        """The sessions without a place or pages."""
        return sum(map(len, self._waiting))

    def get(self, number: int) -> VerifySession | None:
        return self._all.get(number)

    def add(self, group: Sequence[VerifySession]) -> None:
        """Queue the choices of one prompt."""
        self._all |= {session.number: session for session in group}
        self._waiting.append(list(group))

    def admit(self) -> None:
        """Admit waiting groups while there are places and pages for a whole group.

        With none running, the next is admitted whatever it will need; sessions that turn out too large are preempted.
        """
        while self._waiting:
            group = self._waiting[0]
            leaders = [session for session in group if session.leader is None]
            if len(self._running) + len(group) > self._max_sessions:
                return
            hits = [self._open(session) for session in leaders]
            if self._running and self._owed([*self._running.values(), *group]) > self._model.num_free_pages:
                for session in leaders:
                    self._model.close(session.number)
                return
            self._waiting.popleft()
            self._running |= {session.number: session for session in group}
            for session, hit in zip(leaders, hits, strict=True):
                self._count(session, hit)

    def preempt(self) -> bool:
        """Take the pages of the session admitted last and queue it first; False if it is the only one.

        Those that wait for its prompt wait with it. Its draft stays linked; its tokens are computed again.
        """
        *others, last = self.leading()
        if not others:
            return False
        group = [last, *last.followers]
        for session in group:
            del self._running[session.number]
        self._model.close(last.number)
        self._waiting.appendleft(group)
        self._counts["preemptions"] += 1
        return True

    def leading(self) -> list[VerifySession]:
        """Running sessions, but for those that wait for a leader's prompt."""
        return [session for session in self._running.values() if session.leader is None]

    def recall(self, session: VerifySession) -> int:
        """Reuse what other sessions have computed meanwhile; returns the number of cached tokens."""
        if not session.scores_prompt:
            self._counts["prefix_hit_tokens"] += self._model.lookup_prefix(session.number, session.chain.tokens)
        return self._model.num_cached(session.number)

    def keep(self, session: VerifySession) -> None:
        """Roll the cache back to the committed tokens but the last, and let other sessions reuse it.

        The place of the last one may hold a rejected proposal.
        """
        cached = self._model.num_cached(session.number)
        self._model.rollback(session.number, min(cached, session.length - 1))
        self._model.store_prefix(session.number, session.chain.tokens)

    def share(self, leader: VerifySession) -> list[VerifySession]:
        """The leader, its prompt now cached, and those that waited for it, forked."""
        followers, leader.followers = leader.followers, []
        for follower in followers:
            self._model.fork(leader.number, follower.number)
            follower.leader = None
        return [leader, *followers]

    def remove(self, session: VerifySession) -> None:
        """Free everything a session holds. The first of its followers becomes their leader."""
        del self._all[session.number]
        if self._running.pop(session.number, None) is None:
            self._leave_queue(session)
        self._model.close(session.number)
        if session.leader is not None:
            session.leader.followers.remove(session)
        elif session.followers:
            first = session.lead_on()
            if first.number in self._running:
                self._count(first, self._open(first))

    def _leave_queue(self, session: VerifySession) -> None:
        group = next(group for group in self._waiting if session in group)
        group.remove(session)
        if not group:
            self._waiting.remove(group)

    def _open(self, session: VerifySession) -> int:
        """Returns the number of its tokens that were cached already."""
        self._model.open(session.number)
        return 0 if session.scores_prompt else self._model.lookup_prefix(session.number, session.chain.tokens)

    def _count(self, session: VerifySession, hit: int) -> None:
        self._counts["prompt_tokens"] += session.length
        self._counts["prefix_hit_tokens"] += hit

    def _owed(self, sessions: Sequence[VerifySession]) -> int:
        """Pages that these have yet to take for their tokens so far, and for a page of further tokens each."""
        owed = 0
        for session in sessions:
            if session.leader is None:
                soon = session.length + min(PAGE_SIZE, session.chain.remaining)
                owed += pages_for(soon) - pages_for(self._model.num_cached(session.number))
            else:
                owed += 1
        return owed
