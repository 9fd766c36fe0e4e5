"""Which generations the target holds: waiting for a place, running, or waiting for a prompt another one computes.

The choices of one prompt enter together and are admitted together, in the order they came. Of those with equal tokens
the first leads: it computes the prompt, the others are forked from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from core.model.base import Model
from core.verify_session import VerifySession


class SessionTable:
    """Sessions by number, and their places in the model's cache."""

    def __init__(self, model: Model, max_sessions: int) -> None:
        self._model = model
        self._max_sessions = max_sessions
        self._pending: deque[list[VerifySession]] = deque()
        self._running: dict[int, VerifySession] = {}
        self._all: dict[int, VerifySession] = {}

    def __len__(self) -> int:
        return len(self._all)

    def get(self, number: int) -> VerifySession | None:
        return self._all.get(number)

    def add(self, group: Sequence[VerifySession]) -> None:
        """Queue the choices of one prompt."""
        self._all |= {session.number: session for session in group}
        self._pending.append(list(group))

    def admit(self) -> None:
        """Let queued groups in while there is room for the next one whole."""
        while self._pending:
            group = [session for session in self._pending[0] if session.number in self._all]
            if len(self._running) + len(group) > self._max_sessions:
                return
            self._pending.popleft()
            for session in group:
                self._running[session.number] = session
                if session.leader is None:
                    self._model.open(session.number)

    def leading(self) -> list[VerifySession]:
        """Running sessions that a pass can serve: all but those whose prompt another one computes."""
        return [session for session in self._running.values() if session.leader is None]

    def share(self, leader: VerifySession) -> list[VerifySession]:
        """The leader, its prompt now cached, and those that waited for it, forked."""
        followers = self._followers(leader)
        for follower in followers:
            self._model.fork(leader.number, follower.number)
            follower.leader = None
        return [leader, *followers]

    def remove(self, session: VerifySession) -> None:
        """Free everything a session holds. If others waited for its prompt, the first of them leads them now."""
        del self._all[session.number]
        self._running.pop(session.number, None)
        self._model.close(session.number)
        first, *others = self._followers(session) or [session]
        first.leader = None
        for other in others:
            other.leader = first
        if first.number in self._running:
            self._model.open(first.number)

    def _followers(self, leader: VerifySession) -> list[VerifySession]:
        return [session for session in self._all.values() if session.leader is leader]
