"""Progress of a retraining: units of work on any node report to an actor, and a view here shows them.

A stage consists of units (shards, runs, drafts). `train_jobs.cluster.progress_view` draws them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any

from rich.console import Console

from train_jobs.cluster.progress_view import ProgressView, StageSize, UnitProgress, print_line

Handle = Any  # of a Ray actor, whose methods have no types
ReportProgress = Callable[[str, int, int, str], None]  # unit, done, total, note

POLL_SECONDS = 0.25  # between two updates of the view
SEND_SECONDS = 0.2  # between two reports of one unit; those in between are dropped
ANSWER_SECONDS = 2.0  # of the actor; after that the view waits for its next update
MAX_PENDING = 1000  # reports in flight from one process


class Progress:
    """A context manager that shows one stage at a time.

    `stages` names all stages in order, which the view counts. `seconds` are those of the stages that ran.
    """

    def __init__(self, console: Console, stages: Sequence[str] = ()) -> None:
        self._console = console
        self.seconds: dict[str, float] = {}
        self._view = ProgressView(console, stages)
        self._board: Handle | None = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_error: object) -> None:
        self._view.close()
        if len(self.seconds) > 1:
            each = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items())
            print_line(self._console, f"{each}: {sum(self.seconds.values()):.1f} s in all")

    def skipped(self, name: str) -> None:
        """Show a stage that was done before."""
        self._view.end(f"{name}: done before")

    @contextmanager
    def stage(self, name: str, units: int, work: int | None = None) -> Iterator[ReportProgress]:
        """Show a stage of `units` units; yields the function by which any process of the cluster reports.

        A unit is over when its `done` reaches its `total`; a unit that never reports counts as not begun. If units
        differ in size, `work` is the sum of their totals.
        """
        began = time.monotonic()
        board = self._begin(name)
        self._view.begin(name, StageSize(units, work))
        outcome = "stopped after"
        try:
            with _updating(board, self._view):
                yield ProgressSender(board, name)
            outcome = "done in"
        finally:
            seconds = self.seconds[name] = time.monotonic() - began
            self._view.end(f"{name}: {outcome} {seconds:.1f} s")

    def _begin(self, stage: str) -> Handle:
        import ray

        if not ray.is_initialized():  # else Ray would start one
            raise RuntimeError("progress is collected by an actor: connect to Ray first")
        if self._board is None:
            self._board = _board_here()
        ray.get(self._board.begin.remote(stage))
        return self._board


class ProgressSender:
    """A picklable `ReportProgress` for one stage. It never blocks; a report that cannot be sent is dropped."""

    def __init__(self, board: Handle, stage: str) -> None:
        self._board = board
        self._stage = stage
        self._sent: dict[str, float] = {}

    def __call__(self, unit: str, done: int, total: int, note: str) -> None:
        now = time.monotonic()
        if done < total and now - self._sent.get(unit, -SEND_SECONDS) < SEND_SECONDS:
            return
        self._sent[unit] = now
        import ray

        with suppress(Exception):  # the work matters, its display does not
            if ray.is_initialized():  # else the call would start a Ray
                self._board.put.options(num_returns=0).remote(self._stage, unit, UnitProgress(done, total, note))

    def __reduce__(self) -> tuple[object, ...]:
        return ProgressSender, (self._board, self._stage)


class ProgressBoard:
    """The actor: the latest report of each unit of the current stage."""

    def __init__(self) -> None:
        self._stage = ""
        self._units: dict[str, UnitProgress] = {}

    def begin(self, stage: str) -> None:
        self._stage, self._units = stage, {}

    def put(self, stage: str, unit: str, report: UnitProgress) -> None:
        if stage == self._stage:  # else it arrived after its stage had ended
            self._units[unit] = report

    def units(self) -> dict[str, UnitProgress]:
        return self._units


def _board_here() -> Handle:
    """A board on this process's node, so that it lives as long as the view."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    placed = ray.remote(ProgressBoard).options(num_cpus=0, scheduling_strategy=here, max_pending_calls=MAX_PENDING)
    return placed.remote()


@contextmanager
def _updating(board: Handle, view: ProgressView) -> Iterator[None]:
    """Update the view from a thread during the block, and once more at its end."""
    over = Event()
    thread = Thread(target=_update, args=(board, view, over), name="progress", daemon=True)
    try:
        thread.start()  # Ctrl-C may come before it returns
        yield
    finally:
        over.set()
        if thread.ident is not None:
            thread.join()


def _update(board: Handle, view: ProgressView, over: Event) -> None:
    import ray

    last = False
    while not last and ray.is_initialized():  # else the call would start a Ray
        last = over.wait(POLL_SECONDS)
        with suppress(Exception):  # the view may freeze, but must not stop the work
            view.show(ray.get(board.units.remote(), timeout=ANSWER_SECONDS))
