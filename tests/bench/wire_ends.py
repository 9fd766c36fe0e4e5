"""Both ends of a round: a draft that proposes, and what answers it over the wire, a Serve handle or an actor call.

The message is the same each time: a `Propose` of six tokens, answered by a `Commit` of four. Over the wire it is
encoded, encrypted and framed as in the service; Serve and Ray take it as the object that it is.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import zmq

from core.draft_key import GENERAL, DraftKey
from core.wire.engine_thread import EngineThread
from core.wire.messages import Address, Commit, Propose
from core.wire.transport import DraftWire, VerifierWire

HOST = "127.0.0.1"
SESSION = 0x5EED_0000_0000_0001  # as long as real ones
PROPOSED, COMMITTED = tuple(range(1000, 1006)), tuple(range(1000, 1004))
PATIENCE_MS = 10_000

RoundTrip = Callable[[Propose], Awaitable[Commit]]


def proposal(number: int) -> Propose:
    return Propose(SESSION, 0, 300 + number, PROPOSED)


def answer(proposed: Propose) -> Commit:
    return Commit(proposed.session, proposed.base, COMMITTED)


class AnsweringThread(EngineThread):
    """A verifier's end of the wire that answers at once, in a thread as an engine's."""

    def __init__(self) -> None:
        super().__init__("answering")
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._wire = VerifierWire(self._context, HOST)
        self.address: Address = self._wire.address

    def _sockets(self) -> Iterable[zmq.Socket[bytes]]:
        return [self._wire.socket]

    def _turn(self) -> None:
        self._wire.send([(peer, answer(proposed)) for peer, proposed in self._wire.receive()])

    def _ended(self) -> None:
        self._wire.close()
        self._context.term()


class WireEnd:
    """A draft's end of the wire; it waits for its answer where it stands."""

    def __init__(self, verifier: Address) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._wire = DraftWire(self._context, DraftKey(GENERAL))
        self._peer = self._wire.connect(verifier)
        self._poller = zmq.Poller()
        self._poller.register(self._wire.sockets[self._peer], zmq.POLLIN)

    async def round_trip(self, proposed: Propose) -> Commit:
        self._wire.send([(self._peer, proposed)])
        assert self._poller.poll(PATIENCE_MS), "no answer came over the wire"
        [(_, commit)] = self._wire.receive()
        assert isinstance(commit, Commit)
        return commit

    def close(self) -> None:
        self._wire.close()
        self._context.term()


class Verifier:
    """Answers in a process of its own, as a Serve deployment or as a plain actor."""

    def __init__(self) -> None:
        self._answering = AnsweringThread()
        self._answering.start()

    def address(self) -> Address:
        return self._answering.address

    async def commit(self, proposed: Propose) -> Commit:
        return answer(proposed)


class PlainVerifier:
    """An actor whose calls are not asynchronous, which is the quickest kind."""

    def commit(self, proposed: Propose) -> Commit:
        return answer(proposed)


class Draft:
    """A deployment that asks: over a handle of `verifier`, over the wire to it, and by calls of the actor `plain`."""

    def __init__(self, verifier: Any, plain: Any) -> None:
        self._verifier = verifier
        self._plain = plain

    async def measure(self, count: int, warm_up: int) -> dict[str, list[float]]:
        """Seconds of `count` round trips of each kind."""
        wire = WireEnd(await self._verifier.address.remote())
        try:
            return await interleaved(
                {
                    "wire": wire.round_trip,
                    "serve handle": self._over_handle,
                    "actor call": self._over_actor,
                },
                count,
                warm_up,
            )
        finally:
            wire.close()

    async def _over_handle(self, proposed: Propose) -> Commit:
        commit: Commit = await self._verifier.commit.remote(proposed)
        return commit

    async def _over_actor(self, proposed: Propose) -> Commit:
        commit: Commit = await self._plain.commit.remote(proposed)
        return commit


async def interleaved(kinds: dict[str, RoundTrip], count: int, warm_up: int) -> dict[str, list[float]]:
    """Round trips of every kind in turn, another one first each time; seconds of those after the warm-up."""
    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    names = list(kinds)
    for number in range(warm_up + count):
        for kind in itertools.chain(names[number % len(names) :], names[: number % len(names)]):
            proposed = proposal(number)
            began = time.perf_counter()
            commit = await kinds[kind](proposed)
            seconds = time.perf_counter() - began
            assert commit == answer(proposed)
            if number >= warm_up:
                taken[kind].append(seconds)
    return taken
