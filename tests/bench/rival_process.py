"""What others decode with, each in a process of its own, which keeps its model and answers one job after another."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import TracebackType
from typing import NamedTuple, Protocol

from tests.bench.engines import Answered

_DEFAULTS = {"GOMP_SPINCOUNT": "300000"}  # libgomp's own, and not what our target is started with


class Job(NamedTuple):
    """A prompt to continue in one of the rival's ways; None is plain decoding."""

    tokens: tuple[int, ...]
    max_tokens: int
    temperature: float
    seed: int
    way: str | None = None


Answering = Callable[[Job], Answered]


class Rival(Protocol):
    """What a process is given, and makes what answers of."""

    def load(self) -> Answering: ...


class RivalProcess:
    """A context manager; the model is loaded when it begins."""

    def __init__(self, rival: Rival) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, rival), daemon=True)
        with _environment(_DEFAULTS):
            self._process.start()
        theirs.close()
        self._pipe.recv()

    def __enter__(self) -> RivalProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipe.close()
        self._process.join()

    def answer(self, job: Job) -> Answered:
        self._pipe.send(job)
        answered: Answered = self._pipe.recv()
        return answered


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """For what is started in it."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
        os.environ.update(before)


def _serve(pipe: Connection, rival: Rival) -> None:
    answer = rival.load()
    pipe.send(None)
    try:
        while True:
            pipe.send(answer(pipe.recv()))
    except EOFError:
        return
