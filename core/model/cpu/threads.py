"""Chooses the number of CPU threads of a target, by timing passes with 1, 2, 4, ... of them.

A pass waits for memory, and the number of cores that keep it busy depends on the machine. Every thread is a core that
drafts and the HTTP face do without, so a service leaves them one. With passes on both of two cores a pass took 0.6
of the time, but over HTTP one, four and sixteen streams got 46, 120 and 237 tokens a second, for 50, 150 and 275 with
one core left, and with drafts 114, 235 and 346 for 127, 247 and 355 (taskspec bench, 100M target, AMX).
"""

from __future__ import annotations

import math
import os
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

from core.model.base import Model, Rows
from core.model.causal_lm import load_model
from core.model.config import ModelConfig

_WORTH = 0.8  # of the time with half as many threads: what more of them must come down to
_SAMPLE = 1 << 28  # bytes of weights, more than caches hold
_ROWS = (1, 5)  # of passes without proposals, and with some
_CALM, _PATIENCE = 16, 5.0  # turns that nobody disturbed, of each; seconds after which those that were must do
_SESSION = -1


@dataclass
class _Candidate:
    """A model on so many threads; `quickest` are seconds by rows, `calm` counts turns."""

    threads: int
    model: Model
    quickest: dict[int, float] = field(default_factory=lambda: dict.fromkeys(_ROWS, math.inf))
    calm: int = 0

    @property
    def seconds(self) -> float:
        return sum(self.quickest.values())

    def take_turn(self) -> None:
        torch.set_num_threads(self.threads)
        displaced = _displaced()
        self.model.open(_SESSION)
        for rows in _ROWS:
            began = time.perf_counter()
            self.model.forward([Rows(_SESSION, [0] * rows, rows)])
            self.quickest[rows] = min(self.quickest[rows], time.perf_counter() - began)
        self.model.close(_SESSION)
        self.calm += _displaced() == displaced


def choose_threads(directory: Path, dtype: torch.dtype, *, decoder: str = "auto", others: int = 1) -> int:
    """As many as this model is worth, which torch has afterwards; some of its layers stand for all of them.

    `others`: cores that are left to them. Each doubling that is tried takes `_PATIENCE` seconds at the most.
    """
    limit = len(os.sched_getaffinity(0)) - others
    if limit < 2:
        torch.set_num_threads(1)
        return 1
    config = ModelConfig.load(directory)
    layers = min(config.num_layers, -(-_SAMPLE // (config.layer_weights * dtype.itemsize)))
    sample = partial(load_model, directory, dtype=dtype, num_pages=1, decoder=decoder, num_layers=layers)
    return worthwhile(sample, limit)


def worthwhile(load: Callable[[], Model], limit: int) -> int:
    """Of 1, 2, 4, ... threads up to `limit`, the last doubling that was worth its cores; torch has so many after it.

    A model that is loaded must compute on as many threads as torch has then.
    """
    best = _candidate(load, 1)
    for threads in _doublings(limit):
        other = _candidate(load, threads)
        _take_turns(best, other)
        if other.seconds > _WORTH * best.seconds:
            break
        best = other
    torch.set_num_threads(best.threads)
    return best.threads


def _doublings(limit: int) -> Iterator[int]:
    threads = 2
    while threads <= limit:
        yield threads
        threads *= 2


def _candidate(load: Callable[[], Model], threads: int) -> _Candidate:
    torch.set_num_threads(threads)
    return _Candidate(threads, load())


def _take_turns(best: _Candidate, other: _Candidate) -> None:
    best.calm = 0
    started = time.perf_counter()
    while min(best.calm, other.calm) < _CALM and time.perf_counter() - started < _PATIENCE:
        best.take_turn()
        other.take_turn()


def _displaced() -> int:
    """How often threads of this process have had to give way to others on their core."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
