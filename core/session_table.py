"""Which generations the target holds: waiting for room, running, or waiting for a prompt another one computes.

The choices of one prompt enter together and are admitted together, in the order they came. Of those with equal tokens
the first leads: it computes the prompt, the others are forked from it. Whoever runs came before whoever waits; so when
pages run out, the last to be admitted makes room for those before it, and the first always comes to its end.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from core.model.base import Model
from core.model.pages import PAGE_SIZE, pages_for
from core.verify_session import VerifySession


class SessionTable:
    """Sessions by number, and their places in the model's cache.

    Into `counts` go `prompt_tokens`, the tokens that sessions began with, once more after a preemption;
    `prefix_hit_tokens`, those of them that were found computed; and `preemptions`.
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

    def get(self, number: int) -> VerifySession | None:
        return self._all.get(number)

    def add(self, group: Sequence[VerifySession]) -> None:
        """Queue the choices of one prompt."""
        self._all |= {session.number: session for session in group}
        self._waiting.append(list(group))

    def admit(self) -> None:
        """Let waiting groups in while there are places and pages for the next one whole.

        With none running the next is let in whatever it will need: what turns out too much is preempted.
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
        """The session admitted last gives up its pages and waits before all others; False where it is the only one.

        Those that wait for its prompt wait with it. Its seat stays; its tokens are computed again as a prompt is.
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
        """Running sessions that a pass can serve: all but those whose prompt another one computes."""
        return [session for session in self._running.values() if session.leader is None]

    def recall(self, session: VerifySession) -> int:
        """How many tokens the session's cache holds, now that it has been given what others computed meanwhile."""
        self._counts["prefix_hit_tokens"] += self._model.recall(session.number, session.chain.tokens)
        return self._model.num_cached(session.number)

    def keep(self, session: VerifySession) -> None:
        """Forget what is cached behind the committed tokens; others may find the rest from now on.

        Of the last committed token too, whose place may be taken by a proposal that was not accepted.
        """
        cached = self._model.num_cached(session.number)
        self._model.rollback(session.number, min(cached, session.length - 1))
        self._model.remember(session.number, session.chain.tokens)

    def share(self, leader: VerifySession) -> list[VerifySession]:
        """The leader, its prompt now cached, and those that waited for it, forked."""
        followers, leader.followers = leader.followers, []
        for follower in followers:
            self._model.fork(leader.number, follower.number)
            follower.leader = None
        return [leader, *followers]

    def remove(self, session: VerifySession) -> None:
        """Free everything a session holds. If others waited for its prompt, the first of them leads them now."""
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
        """Returns how many of its tokens were found computed."""
        self._model.open(session.number)
        return self._model.recall(session.number, session.chain.tokens)

    def _count(self, begun: VerifySession, hit: int) -> None:
        self._counts["prompt_tokens"] += begun.length
        self._counts["prefix_hit_tokens"] += hit

    def _owed(self, sessions: Sequence[VerifySession]) -> int:
        """Pages these have yet to take for their tokens so far and a page's worth of further ones each."""
        owed = 0
        for session in sessions:
            if session.leader is None:
                soon = session.length + min(PAGE_SIZE, session.chain.remaining)
                owed += pages_for(soon) - pages_for(self._model.num_cached(session.number))
            else:
                owed += 1
        return owed
