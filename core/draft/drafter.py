"""A draft with its engine, thread and wire: a plain object, in a Ray replica or in a process of its own.

Sessions are opened from any thread; a callback says when a session is over.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

import zmq

from core.draft.engine import DraftConfig, DraftEngine
from core.draft_key import DraftKey
from core.model.base import Model
from core.wire.engine_thread import EngineThread
from core.wire.messages import OpenSession
from core.wire.transport import DraftWire


class Drafter(EngineThread):
    """Runs the draft engine until stopped. `key` tells the verifier what it drafts with."""

    def __init__(self, model: Model[Any], num_valid: int, config: DraftConfig, key: DraftKey) -> None:
        super().__init__("drafter")
        self._engine = DraftEngine(model, num_valid, config, time.monotonic)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._wire = DraftWire(self._context, key)
        self._on_close: dict[int, Callable[[], object]] = {}

    def open(self, opened: OpenSession, on_close: Callable[[], object]) -> Future[None]:
        """Join a generation.

        `on_close` is called on the engine's thread when the verifier ends it or falls silent, or when it is opened
        again with a later epoch.
        """
        return self.call(lambda: self._open(opened, on_close))

    def close(self, opened: OpenSession) -> Future[None]:
        """Leave a generation, unless a later epoch of it has been opened since."""
        return self.call(lambda: self._close(opened))

    def counts(self) -> Future[Counter[str]]:
        """What the engine and the wire have counted, with the `sessions` and `pages` held now."""
        return self.call(lambda: self._engine.counts + self._wire.counts + self._engine.gauges())

    def _begin(self) -> None:
        self._engine.warm_up()

    def _open(self, opened: OpenSession, on_close: Callable[[], object]) -> None:
        self._over(opened.session)  # a caller that was lost may never close what it opened
        peers = self._wire.peers()
        peer = self._wire.connect(opened.verifier)
        self._engine.open(opened, peer)
        if peer not in peers:  # a new verifier may stand in for one that is gone
            self._leave_idle_peers()
        self._on_close[opened.session] = on_close

    def _close(self, opened: OpenSession) -> None:
        if self._engine.epoch(opened.session) == opened.epoch:
            self._engine.close(opened.session)
            self._on_close.pop(opened.session, None)

    def _sockets(self) -> Iterable[zmq.Socket[bytes]]:
        return self._wire.sockets.values()

    def _turn(self) -> float | None:
        ended = [self._engine.receive(peer, message) for peer, message in self._wire.receive()]
        expired = self._engine.expired()
        for number in [number for number in ended if number is not None] + expired:
            self._over(number)
        if expired:  # a verifier that fell silent may be gone for good
            self._leave_idle_peers()
        self._wire.send(self._engine.outgoing())  # proposals that are complete already do not wait for the others
        self._engine.step()
        self._wire.send(self._engine.outgoing())
        return self._engine.wait()

    def _leave_idle_peers(self) -> None:
        for peer in self._wire.peers() - self._engine.peers():
            self._wire.disconnect(peer)

    def _over(self, number: int) -> None:
        on_close = self._on_close.pop(number, None)
        if on_close is not None:
            on_close()

    def _ended(self) -> None:
        self._wire.close()
        self._context.term()
        for number in list(self._on_close):
            self._over(number)
