"""A thread that drives an engine: everything that touches the engine happens on it, one thing after another.

Enters: work posted from other threads, frames off the sockets. An engine that raises stops the thread; `error` says
why and every later call raises it.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

import zmq

from core.errors import TaskSpecError
from core.vigil import Vigil

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")


class EngineStopped(TaskSpecError):
    """The engine's thread has ended; the cause is chained where it failed."""


class EngineThread(ABC):
    """Subclasses say what a turn is; callers `start`, `call` and `stop`."""

    def __init__(self, name: str) -> None:
        self.error: BaseException | None = None
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self._stopping = threading.Event()
        self._begun: Future[None] = Future()
        self._closing = threading.Lock()  # nothing may enter the inbox after it was emptied for the last time
        self._vigil = Vigil()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; returns when calls can be answered, and raises what kept it from beginning."""
        self._thread.start()
        self._begun.result()

    def stop(self) -> None:
        """End the thread after its current turn and wait for it."""
        self._stopping.set()
        self._ring()
        if self._thread.ident is not None:
            self._thread.join()

    def call(self, work: Callable[[], Answer]) -> Future[Answer]:
        """Run `work` on the engine's thread; the future holds what it returns or raises."""
        future: Future[Answer] = Future()
        with self._closing:
            if self._stopping.is_set():
                future.set_exception(EngineStopped(f"the engine has stopped: {self.error!r}"))
                return future
            self._inbox.put(lambda: _settle(future, work))
        self._ring()
        return future

    def _begin(self) -> None:  # noqa: B027 - most have nothing to do
        """What is done on the thread before the first turn."""

    @abstractmethod
    def _sockets(self) -> Iterable[zmq.Socket[bytes]]:
        """Sockets whose frames begin a turn."""

    @abstractmethod
    def _turn(self) -> float | None:
        """Do what can be done now; seconds until there is more, 0 for at once, None until something arrives."""

    @abstractmethod
    def _ended(self) -> None:
        """The thread is over: release sockets and tell whoever waits."""

    def _due(self) -> float:
        """Seconds within which something should arrive for which the thread had better be awake; 0 for nothing."""
        return 0.0

    def _ring(self) -> None:
        os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        try:
            self._begin()
            self._begun.set_result(None)
            while not self._stopping.is_set():
                self._drain_inbox()
                wait = self._turn()
                if wait != 0.0:
                    self._sleep(wait)
        except BaseException as error:  # whatever it was, callers must learn of it
            self.error = error
            if self._begun.done():
                logger.critical("%s has stopped", self._thread.name, exc_info=error)
            else:
                self._begun.set_exception(error)
        finally:
            with self._closing:
                self._stopping.set()
            self._drain_inbox()
            self._ended()

    def _drain_inbox(self) -> None:
        while not self._inbox.empty():  # nobody else takes anything out
            self._inbox.get_nowait()()

    def _sleep(self, seconds: float | None) -> None:
        poller = zmq.Poller()
        poller.register(self._wake, zmq.POLLIN)
        for socket in self._sockets():
            poller.register(socket, zmq.POLLIN)
        due = self._due() if seconds is None else min(self._due(), seconds)
        ready: list[tuple[object, int]] = []

        def look() -> bool:
            nonlocal ready
            ready = poller.poll(0)
            return bool(ready)

        if due <= 0.0 or not self._vigil.keep(look, due):
            ready = poller.poll(None if seconds is None else math.ceil(seconds * 1000))
        if (self._wake, zmq.POLLIN) in ready:
            os.eventfd_read(self._wake)


def _settle(future: Future[Answer], work: Callable[[], Answer]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001 - it belongs to the caller, not to the engine
        future.set_exception(error)
