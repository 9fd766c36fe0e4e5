"""A thread that owns an engine and its sockets; everything that touches the engine runs on it, in sequence.

Other threads post work to it, and frames arrive on its sockets. If the engine raises, the thread stops, `error` holds
the cause, and every later call fails with it.
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

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")


class EngineStopped(TaskSpecError):
    """The engine's thread has ended; the message holds the cause if the engine failed."""


class EngineThread(ABC):
    """Subclasses define a turn; callers use `start`, `call` and `stop`."""

    def __init__(self, name: str) -> None:
        self.error: BaseException | None = None
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self._stopping = threading.Event()
        self._begun: Future[None] = Future()
        self._closing = threading.Lock()  # nothing may enter the inbox after its last emptying
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; returns once calls are served, and raises the error if `_begin` failed."""
        self._thread.start()
        self._begun.result()

    def stop(self) -> None:
        """Stop the thread after its current turn and join it."""
        self._stopping.set()
        self._ring()
        if self._thread.ident is not None:
            self._thread.join()

    def call(self, work: Callable[[], Answer]) -> Future[Answer]:
        """Run `work` on the engine's thread; the future holds its result or exception."""
        future: Future[Answer] = Future()
        with self._closing:
            if self._stopping.is_set():
                future.set_exception(EngineStopped(f"the engine has stopped: {self.error!r}"))
                return future
            self._inbox.put(lambda: _settle(future, work))
        self._ring()
        return future

    def _begin(self) -> None:  # noqa: B027 - most subclasses need none
        """Runs on the thread before the first turn."""

    @abstractmethod
    def _sockets(self) -> Iterable[zmq.Socket[bytes]]:
        """The sockets whose frames start a turn."""

    @abstractmethod
    def _turn(self) -> float | None:
        """Do the work that is ready. Returns the seconds until the next turn: 0 for at once, None until an arrival."""

    @abstractmethod
    def _ended(self) -> None:
        """Runs when the thread ends: release the sockets and wake all waiters."""

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
        except BaseException as error:  # callers must learn of any failure
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
        while not self._inbox.empty():  # only this thread takes items out
            self._inbox.get_nowait()()

    def _sleep(self, seconds: float | None) -> None:
        poller = zmq.Poller()
        poller.register(self._wake, zmq.POLLIN)
        for socket in self._sockets():
            poller.register(socket, zmq.POLLIN)
        ready = poller.poll(None if seconds is None else math.ceil(seconds * 1000))
        if (self._wake, zmq.POLLIN) in ready:
            os.eventfd_read(self._wake)


def _settle(future: Future[Answer], work: Callable[[], Answer]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001 - the error is the caller's, not the engine's
        future.set_exception(error)
