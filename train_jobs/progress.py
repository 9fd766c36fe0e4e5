"""What a retraining shows while it works: stages, their units and when they will be done.

Enters: events, from wherever in the cluster a unit works, collected by an actor. Leaves: one live view on a terminal,
plain lines in a pipe, and in both a line per stage and the seconds of all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any

from rich.console import Console

from train_jobs.progress_view import Lines, Plan, Table, Unit, View, leave

Handle = Any  # a Ray actor's: its methods are not typed
Report = Callable[[str, int, int, str], None]  # unit, done, total, note

LOOK_SECONDS = 0.25  # between two looks of the view at the actor
SEND_SECONDS = 0.2  # between two events of one unit; those in between are dropped
ANSWER_SECONDS = 2.0  # a busy machine may take so long; then the view waits for the next look
MAX_PENDING = 1000  # events on their way from one process


class Progress:
    """The view of a run, for as long as the block lasts; one stage at a time.

    `stages` names all there will be, in their order, if a bar is to count them. `seconds` are those of the stages that
    had something to do.
    """

    def __init__(self, console: Console, stages: Sequence[str] = ()) -> None:
        self._console = console
        self.seconds: dict[str, float] = {}
        self._view: View = Table(console, stages) if console.is_terminal else Lines(console)
        self._board: Handle | None = None

    def __enter__(self) -> Progress:
        self._view.open()
        return self

    def __exit__(self, *_error: object) -> None:
        self._view.close()
        if len(self.seconds) > 1:
            each = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items())
            leave(self._console, f"{each}: {sum(self.seconds.values()):.1f} s in all")

    def skipped(self, name: str) -> None:
        """Show a stage whose work was found done."""
        self._view.end(name, f"{name}: done before")

    @contextmanager
    def stage(self, name: str, units: int, work: int | None = None) -> Iterator[Report]:
        """Show a stage of `units` units. What it gives may be sent to any process of the Ray this one is connected to.

        A unit is over when its `done` has reached its `total`; units that never report count as not begun. Where units
        differ in size, `work` is what their totals come to.
        """
        began = time.monotonic()
        board = self._begin(name)
        self._view.begin(name, Plan(units, work))
        outcome = "stopped after"
        try:
            with _looking(board, self._view):
                yield Sender(board, name)
            outcome = "done in"
        finally:
            seconds = self.seconds[name] = time.monotonic() - began
            self._view.end(name, f"{name}: {outcome} {seconds:.1f} s")

    def _begin(self, stage: str) -> Handle:
        import ray

        if not ray.is_initialized():  # else Ray would start one that nobody asked for
            raise RuntimeError("a stage is shown by an actor: connect to Ray first")
        if self._board is None:
            self._board = _board_here()
        ray.get(self._board.begin.remote(stage))
        return self._board


class Sender:
    """A `Report` for one stage that can be pickled; it drops what it cannot send, and never waits."""

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

        with suppress(Exception):  # the work goes on, seen or not
            if ray.is_initialized():  # else the call would start a Ray
                self._board.put.options(num_returns=0).remote(self._stage, unit, Unit(done, total, note))

    def __reduce__(self) -> tuple[object, ...]:
        return Sender, (self._board, self._stage)


class Board:
    """The actor: the newest event of each unit of the stage at work."""

    def __init__(self) -> None:
        self._stage = ""
        self._units: dict[str, Unit] = {}

    def begin(self, stage: str) -> None:
        self._stage, self._units = stage, {}

    def put(self, stage: str, unit: str, event: Unit) -> None:
        if stage == self._stage:  # else it was under way when its stage ended
            self._units[unit] = event

    def units(self) -> dict[str, Unit]:
        return self._units


def _board_here() -> Handle:
    """A board on this process's node: the view lives as long as that, whatever happens to the others."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    placed = ray.remote(Board).options(num_cpus=0, scheduling_strategy=here, max_pending_calls=MAX_PENDING)
    return placed.remote()


@contextmanager
def _looking(board: Handle, view: View) -> Iterator[None]:
    """Let a thread bring the view up to date, once more when the block is over."""
    over = Event()
    thread = Thread(target=_look, args=(board, view, over), name="progress", daemon=True)
    try:
        thread.start()  # Ctrl-C may come before it returns
        yield
    finally:
        over.set()
        if thread.ident is not None:
            thread.join()


def _look(board: Handle, view: View, over: Event) -> None:
    import ray

    last = False
    while not last and ray.is_initialized():  # else the look would start a Ray
        last = over.wait(LOOK_SECONDS)
        with suppress(Exception):  # the view may stand still, and must not stop the work
            view.show(ray.get(board.units.remote(), timeout=ANSWER_SECONDS))
