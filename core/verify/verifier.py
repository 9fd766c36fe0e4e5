"""The target with its engine, thread and wire: a plain object, in a Ray replica or in a process of its own.

Requests come from any thread. Runs are handed to the caller's sink on the engine's thread.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

import torch
import zmq

from core.draft_key import DraftKey
from core.generation import GenerationRequest, Run, Vocabulary
from core.model.base import Model
from core.policy.cost_model import profile
from core.verify.engine import VerifyConfig, VerifyEngine
from core.wire.engine_thread import EngineStopped, EngineThread
from core.wire.messages import Address
from core.wire.transport import VerifierWire

Sink = Callable[[int, Run | BaseException], object]  # (index of the choice, its run or why there will be none)


class Opened(NamedTuple):
    """Sessions by number. `declined` says of each draft whether it would not pay (`DraftPolicy.declined`)."""

    sessions: list[int]
    declined: dict[DraftKey, bool]


class Verifier(EngineThread):
    """Runs the verify engine until stopped.

    The model is loaded on the engine's thread, and nothing else in the process should compute with torch: OpenMP keeps
    a team of threads for every thread that ever did, and once teams outnumber the cores each product begins by waking
    its team (22 became 43 ms for a token of the 100M target on two cores).
    """

    def __init__(
        self, load: Callable[[], Model], vocabulary: Vocabulary, config: VerifyConfig, host: str = "127.0.0.1"
    ) -> None:
        super().__init__("verifier")
        self._load = load
        self._vocabulary = vocabulary
        self._config = config
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._wire = VerifierWire(self._context, host)
        self._sinks: dict[int, tuple[int, Sink]] = {}
        self._unheard: set[int] = set()  # sessions of which no run has been handed out
        self._runs: list[tuple[int, Run]] = []

    @property
    def address(self) -> Address:
        return self._wire.address

    def open(self, choices: Sequence[GenerationRequest], sink: Sink) -> Future[Opened]:
        """Start the choices of one prompt; the future holds their sessions, or the `InvalidRequest`."""
        return self.call(lambda: self._open(choices, sink))

    def prepare(self, grammar: str) -> None:
        """Compile a grammar ahead of `open`, on the thread of the caller. Raises `InvalidRequest`."""
        self._engine.grammars.begin(grammar)

    def close(self, numbers: Iterable[int]) -> Future[None]:
        """End sessions early: no further run comes out of them."""
        return self.call(lambda: self._close(numbers))

    def counts(self) -> Future[Counter[str]]:
        """What the engine and the wire have counted, with its gauges (`VerifyEngine.gauges`)."""
        return self.call(lambda: self._engine.counts + self._wire.counts + self._engine.gauges())

    def _begin(self) -> None:
        model = self._load()
        self._engine = VerifyEngine(model, self._vocabulary, self._config, time.monotonic)
        a_core_is_left = torch.get_num_threads() < len(os.sched_getaffinity(0))
        self._engine.policy.lookahead = a_core_is_left or model.device.type != "cpu"
        profile(model, time.monotonic, self._engine.policy.costs)

    def _open(self, choices: Sequence[GenerationRequest], sink: Sink) -> Opened:
        numbers = self._engine.open(choices)
        self._sinks |= {number: (index, sink) for index, number in enumerate(numbers)}
        self._unheard.update(numbers)
        forced = any(request.always_draft for request in choices)
        return Opened(numbers, {} if forced else self._engine.declined(choices[0].params.temperature))

    def _close(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._sinks.pop(number, None)
            self._unheard.discard(number)
            self._engine.close(number)

    def _sockets(self) -> Iterable[zmq.Socket[bytes]]:
        return (self._wire.socket,)

    def _turn(self) -> float | None:
        self._receive()
        wait = self._engine.wait()
        if not wait:  # the next pass can begin: commits whose answers it does not wait for are sent only now
            self._wire.send(self._engine.outgoing())
            self._deliver()
        runs = self._engine.step() if wait == 0.0 else []
        if runs:  # branches that came meanwhile may be answers
            self._receive()
        self._wire.send(self._engine.urgent())
        self._runs += runs
        if any(number in self._unheard for number, _ in runs):
            self._deliver()
        for number, failure in self._engine.failures():
            self._unheard.discard(number)
            if number in self._sinks:
                index, sink = self._sinks.pop(number)
                sink(index, failure)
        return wait

    def _receive(self) -> None:
        for peer, message in self._wire.receive():
            self._engine.receive(peer, message)

    def _deliver(self) -> None:
        """Hand out the runs of the last pass.

        They are handed out while the target computes the next pass: before it, their way to the client would delay the
        drafts' proposals. First runs are handed out at once.
        """
        runs, self._runs = self._runs, []
        for number, run in runs:
            if number not in self._sinks:  # closed meanwhile
                continue
            index, sink = self._sinks[number]
            self._unheard.discard(number)
            if run.finish_reason is not None:
                del self._sinks[number]
            sink(index, run)

    def _ended(self) -> None:
        self._wire.close()
        self._context.term()
        self._deliver()
        stopped = EngineStopped(f"the verifier has stopped: {self.error!r}")
        stopped.__cause__ = self.error
        for index, sink in self._sinks.values():
            sink(index, stopped)
        self._sinks.clear()
