"""Ray is started once for the file; the last test ends it."""

from __future__ import annotations

import io
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray
from rich.console import Console

from train_jobs.cluster import progress_view
from train_jobs.cluster.progress import Progress, ReportProgress
from train_jobs.cluster.progress_view import ProgressView, StageSize, UnitProgress

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ "  # rich's
CODES = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")


class Screen:
    """A console whose output can be read, as a pipe or as a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        self._file = io.StringIO()
        self.console = Console(file=self._file, force_terminal=terminal, width=100, _environ={})

    def frame(self) -> list[str]:
        """Lines on the terminal, as they were drawn last, without the spinner."""
        self.console._live_stack[-1].refresh()
        lines = [line.lstrip(SPINNER) for line in self.new()]
        return lines[max(at for at, line in enumerate(lines) if line.startswith("align")) :]

    def new(self) -> list[str]:
        """Lines since the last call."""
        text = CODES.sub("", self._file.getvalue()).replace("\r", "\n")
        self._file.seek(0)
        self._file.truncate()
        return [line.rstrip() for line in text.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def on_ray() -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="ts") as directory:
        ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, _temp_dir=directory)
        yield
        ray.shutdown()


def eventually(holds: Callable[[], bool], report: Callable[[], None]) -> None:
    """Report over and over until it is seen: events are not acknowledged."""
    for _ in range(200):
        report()
        if holds():
            return
        ray.get(_wait.remote())
    raise AssertionError("not within 10 s: what was reported is shown")


@ray.remote
def _wait() -> None:
    import time

    time.sleep(0.05)


@ray.remote
def work(report: ReportProgress, unit: str, steps: int) -> None:
    for step in range(steps):
        report(unit, step + 1, steps, f"loss {step}")


@pytest.mark.cluster
@pytest.mark.usefixtures("on_ray")
def test_what_tasks_on_the_cluster_report_is_seen_and_each_stage_ends_with_its_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress_view, "LINE_SECONDS", 0.0)
    screen, seen = Screen(terminal=False), list[str]()

    def shown() -> bool:
        seen.extend(screen.new())
        return any("align: 1 of 2" in line and "slow 3/10 loss 0.5" in line for line in seen)

    with Progress(screen.console, ("collect", "align", "publish")) as progress:
        progress.skipped("collect")
        with progress.stage("align", 2) as report:
            ray.get(work.remote(report, "fast", 1000))
            eventually(shown, lambda: report("slow", 3, 10, "loss 0.5"))
        with progress.stage("publish", 1):
            pass
    seen += screen.new()
    assert seen[:2] == ["collect: done before", "align: begun, 0 of 2"]
    assert re.fullmatch(r"align [\d.]+ s, publish [\d.]+ s: [\d.]+ s in all", seen[-1])
    assert [line for line in seen if re.fullmatch(r"(align|publish): done in [\d.]+ s", line)] == [
        next(line for line in seen if line.startswith("align: done")),
        seen[-2],
    ]
    assert list(progress.seconds) == ["align", "publish"]


@pytest.mark.cluster
@pytest.mark.usefixtures("on_ray")
def test_what_a_stage_left_under_way_is_not_seen_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_view, "LINE_SECONDS", 0.0)
    screen, seen = Screen(terminal=False), list[str]()

    def shown() -> bool:
        seen.extend(screen.new())
        return any("new 1/2" in line for line in seen)

    with Progress(screen.console) as progress:
        with progress.stage("align", 1) as late:
            pass
        with progress.stage("router", 1) as report:
            late("old", 1, 2, "")
            eventually(shown, lambda: report("new", 1, 2, ""))
    assert not any("old" in line for line in seen)


@pytest.mark.cluster
@pytest.mark.usefixtures("on_ray")
def test_a_stage_that_fails_says_after_how_long() -> None:
    screen = Screen(terminal=False)
    with pytest.raises(ZeroDivisionError), Progress(screen.console) as progress, progress.stage("align", 1):
        _ = 1 / 0
    assert re.fullmatch(r"align: stopped after [\d.]+ s", screen.new()[-1])


def test_a_terminal_shows_which_stage_it_is_and_every_unit_at_work() -> None:
    screen = Screen(terminal=True)
    view = ProgressView(screen.console, ("collect", "partition", "align"))
    view.end("collect: done before")
    view.begin("partition", StageSize(1))
    view.end("partition: done in 1.0 s")
    view.begin("align", StageSize(3))
    screen.new()
    view.show({"math": UnitProgress(1, 4, "loss 0.71"), "[x]": UnitProgress(4, 4, ""), "code": UnitProgress(0, 9, "")})
    assert screen.frame() == ["align (stage 3 of 3): 1 of 3", "math 1/4 loss 0.71", "code 0/9"]
    view.show({"math": UnitProgress(4, 4, ""), "[x]": UnitProgress(4, 4, "")})
    shown = screen.frame()
    assert "2 of 3" in shown[0]
    assert not any("math" in line for line in shown)
    view.begin("align: ranks", StageSize(2))
    view.show({})
    assert screen.frame() == ["align: ranks: 0 of 2"]
    view.end("align: done in 2.0 s")
    view.close()
    assert "align: done in 2.0 s" in screen.new()


def test_a_pipe_gets_a_line_now_and_then_with_the_time_left_by_the_work_done(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    screen = Screen(terminal=False)
    lines = ProgressView(screen.console)
    lines.begin("align", StageSize(4))
    lines.show({"resumed": UnitProgress(9, 9, ""), "math": UnitProgress(0, 10, "")})  # the first was done before
    now = 5.0
    lines.show({"resumed": UnitProgress(9, 9, ""), "math": UnitProgress(2, 10, "loss 1")})
    now = 10.0
    lines.show({"resumed": UnitProgress(9, 9, ""), "math": UnitProgress(5, 10, "loss 0.5")})
    assert screen.new() == ["align: begun, 0 of 4", "align: 1 of 4, 0:00:50 left; math 5/10 loss 0.5"]


def test_the_time_left_of_units_of_unlike_size_is_by_their_work(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    screen = Screen(terminal=False)
    lines = ProgressView(screen.console)
    lines.begin("align", StageSize(3, work=700))
    lines.show({"mixed": UnitProgress(0, 500, "")})
    now = 50.0
    lines.show({"mixed": UnitProgress(500, 500, "")})
    assert screen.new()[-1] == "align: 1 of 3, 0:00:20 left"


@pytest.mark.cluster
@pytest.mark.usefixtures("on_ray")
def test_a_report_neither_fails_nor_waits_nor_starts_a_ray_when_the_view_or_ray_has_gone() -> None:
    with Progress(Screen(terminal=False).console) as progress, progress.stage("align", 1) as report:
        board: Any = report._board  # type: ignore[attr-defined]
        ray.kill(board)
        ray.get(work.remote(report, "elsewhere", 50))
        report("here", 1, 1, "")
    ray.shutdown()
    report("here", 1, 1, "")
    assert not ray.is_initialized()
    with (
        pytest.raises(RuntimeError, match="connect to Ray first"),
        Progress(Screen(terminal=False).console) as progress,
    ):
        progress.stage("align", 1).__enter__()
    assert not ray.is_initialized()
