"""When a watch retrains, what it keeps and says, and that what it may take of the machine is limited."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import WorkerCrashedError
from rich.console import Console

from core.bundle.store import publish
from core.errors import ConfigError, TooFewPrompts
from core.traces.store import TraceStore, written_at
from tests.serve_app.deployments.telemetry.recording import recorded_values
from tests.train_jobs.small import SMALL
from tests.train_jobs.watching import answers, record
from train_jobs.config import RetrainConfig
from train_jobs.watch import watch as module
from train_jobs.watch.watch import Watch, WatchState, run_config
from train_jobs.watch.watched_traces import Distances
from train_jobs.work.models import model_pair

HOUR = 3600.0


class Clock:
    """Unix time that stands still."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def config(directory: Path, **watch: Any) -> RetrainConfig:
    places = {name: str(directory / name) for name in ("work", "bundles")}
    (directory / "work").mkdir(exist_ok=True)
    sizes = {"reference": 200, "recent": 200}
    return RetrainConfig(**SMALL | places | {"collect": {"traces": str(directory / "traces")}, "watch": sizes | watch})


def not_embedded(_config: RetrainConfig, _centroids: Path | None) -> Distances:
    return lambda traces: [None] * len(traces)


def watching(settings: RetrainConfig, clock: Clock | None = None) -> tuple[Watch, StringIO]:
    out = StringIO()
    console = Console(file=out, width=300)
    return Watch(settings, console, clock or Clock(2e9), not_embedded), out


def state(directory: Path) -> Any:
    return json.loads((directory / "work" / "watch.json").read_text())


def test_a_look_is_kept_and_printed_with_its_figures(tmp_path: Path) -> None:
    for chat in (0.1, 0.1):
        record(tmp_path / "traces", answers(200, chat=chat))
    watch, out = watching(config(tmp_path))
    drift = watch.look()
    assert (drift.mix, drift.acceptance, drift.drifted) == (0.0, 0.0, False)
    assert watch.reason(drift) is None
    kept = state(tmp_path)
    assert (kept["looked"], kept["answers"], kept["verdict"]) == ("2033-05-18T03:33:20Z", 200, "stable")
    assert (kept["drift"]["mix"], kept["drift"]["distance"]) == (0.0, None)
    assert (kept["retrained"], kept["version"]) == (None, None)
    assert out.getvalue() == (
        "2033-05-18 03:33:20 UTC: 200 answers against 200 under no bundle: "
        "mix 0.00, distance -, fall of acceptance 0.00: stable\n"
    )


def test_prometheus_is_told_of_the_drift_and_of_the_last_retraining(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = recorded_values(monkeypatch, "taskspec_")
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    for _ in range(2):
        record(tmp_path / "traces", answers(200))
    watch, _ = watching(config(tmp_path))
    watch.look()
    assert recorded == {("drift", "mix"): [0.0], ("drift", "acceptance"): [0.0]}  # the distance is not known
    watch.state.retrained = datetime.fromtimestamp(1.5e9, UTC)
    watch.look()
    assert recorded["retrained_timestamp_seconds",] == [1.5e9]


def test_the_drift_of_a_bundle_is_not_told_of_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = recorded_values(monkeypatch, "taskspec_")
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    for _ in range(2):
        record(tmp_path / "traces", answers(200))
    settings = config(tmp_path)
    watch, _ = watching(settings)
    watch.look()
    assert ("drift", "mix") in recorded
    publish(settings.bundles, {}, router=None, **model_pair(settings)._asdict())
    recorded.clear()
    watch.look()
    assert not recorded


def test_drift_is_a_reason_and_few_answers_are_none(tmp_path: Path) -> None:
    record(tmp_path / "traces", answers(200, chat=0.04))
    record(tmp_path / "traces", answers(199, chat=0.5))
    watch, out = watching(config(tmp_path))
    assert watch.reason(watch.look()) is None
    assert out.getvalue().endswith(": too few answers\n")
    record(tmp_path / "traces", answers(1))
    reason = watch.reason(watch.look())
    assert reason is not None
    assert reason.startswith("drift, task mix 1.")
    assert "`chat` 4% to 50%" in reason


def test_only_answers_under_the_live_bundle_count(tmp_path: Path) -> None:
    settings = config(tmp_path)
    manifest = publish(settings.bundles, {}, router=None, **model_pair(settings)._asdict())
    record(tmp_path / "traces", answers(200, "another", chat=0.9))
    for _ in range(2):
        record(tmp_path / "traces", answers(200, manifest.version))
    watch, _ = watching(settings)
    drift = watch.look()
    assert (drift.reference, drift.recent, drift.mix) == (200, 200, 0.0)
    assert state(tmp_path)["version"] == manifest.version


def test_the_schedule_counts_from_the_last_retraining_and_needs_new_answers(tmp_path: Path) -> None:
    shard = record(tmp_path / "traces", answers(10))
    begun = written_at(shard) - HOUR
    clock = Clock(begun + 23 * HOUR)
    watch, _ = watching(config(tmp_path, at_least_every_h=24), clock)
    watch.state.begun = datetime.fromtimestamp(begun, UTC)
    assert watch.reason(watch.look()) is None
    clock.now = begun + 24 * HOUR + 1
    assert watch.reason(watch.look()) == "24 hours have passed since the last one"
    watch.state.begun = datetime.fromtimestamp(written_at(shard) + 1, UTC)
    clock.now += 100 * HOUR
    assert watch.reason(watch.look()) is None


def test_without_a_schedule_time_is_no_reason(tmp_path: Path) -> None:
    record(tmp_path / "traces", answers(10))
    watch, _ = watching(config(tmp_path), Clock(4e9))
    assert watch.reason(watch.look()) is None


def test_what_a_watch_knows_outlives_it_and_a_damaged_file_is_told(tmp_path: Path) -> None:
    settings = config(tmp_path)
    watch, _ = watching(settings)
    watch.state.retrained = datetime.fromtimestamp(1.5e9, UTC)
    watch.look()
    again, _ = watching(settings)
    assert again.state == watch.state
    (settings.work / "watch.json").write_text("{")
    with pytest.raises(ConfigError, match=r"watch\.json is not the state of a watch: .*; delete it"):
        watching(settings)


def test_a_retraining_has_its_own_directory_and_traces_and_a_setting_to_correct_ends_the_watch(tmp_path: Path) -> None:
    record(tmp_path / "traces", answers(2))
    settings = RetrainConfig(**config(tmp_path).model_dump() | {"target": {"model": "family:nothing"}})
    (settings.work / "0007").mkdir()
    watch, out = watching(settings)
    with pytest.raises(ConfigError, match="nothing"):
        watch.retrain("drift, so much")
    assert out.getvalue().startswith("Retraining 0008: drift, so much\n")
    assert len(list((settings.work / "0008" / "traces").glob("*.parquet"))) == 1
    assert (state(tmp_path)["running"], state(tmp_path)["begun"]) == (None, None)


def test_with_too_few_prompts_the_watch_goes_on_and_waits_for_more(tmp_path: Path) -> None:
    """The pipeline refuses so few before it needs a cluster."""
    last = record(tmp_path / "traces", answers(2))
    clock = Clock(written_at(last) + HOUR + 1)
    watch, out = watching(config(tmp_path, at_least_every_h=1), clock)
    watch.turn()
    assert "Retraining 0001: 1 hours have passed since the first answers\n" in out.getvalue()
    assert "Retraining 0001 was too early: collect: no prompts for" in out.getvalue()
    assert (state(tmp_path)["running"], state(tmp_path)["retrained"]) == (None, None)
    clock.now += 10 * HOUR
    watch.turn()
    assert "Retraining 0002" not in out.getvalue()


def test_the_schedule_counts_from_the_first_answers_even_after_they_were_deleted(tmp_path: Path) -> None:
    first = record(tmp_path / "traces", answers(1))
    clock = Clock(written_at(first) + 1)
    watch, _ = watching(config(tmp_path, at_least_every_h=24), clock)
    assert watch.reason(watch.look()) is None
    first.unlink()
    record(tmp_path / "traces", answers(1))
    clock.now += 24 * HOUR - 2
    assert watch.reason(watch.look()) is None
    clock.now += 2
    assert watch.reason(watch.look()) == "24 hours have passed since the first answers"


def test_a_killed_retraining_is_resumed_in_its_directory_from_its_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = record(tmp_path / "traces", answers(2))
    settings = config(tmp_path)
    frozen = settings.work / "0003" / "traces"
    shutil.copytree(tmp_path / "traces", frozen)
    record(tmp_path / "traces", answers(500))
    watch, out = watching(settings)
    watch.state = WatchState(running="0003", begun=datetime.fromtimestamp(1.5e9, UTC))
    learned = list[list[str]]()

    def seen(run: RetrainConfig, *_given: object) -> None:
        assert run.collect.traces is not None
        learned.append([file.name for file in run.collect.traces.iterdir()])
        raise TooFewPrompts("so few")

    monkeypatch.setattr(module, "retrain", seen)
    watch.turn()
    assert out.getvalue().startswith("Retraining 0003 was interrupted and is resumed\n")
    assert learned == [[shard.name]]
    assert not (settings.work / "0004").exists()


def test_a_failure_is_told_and_the_watch_goes_on_when_there_are_new_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault: the disk is full."""

    def full(*_given: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(module, "retrain", full)
    record(tmp_path / "traces", answers(200))
    last = record(tmp_path / "traces", answers(200, chat=0.5))
    watch, out = watching(config(tmp_path, keep=2), Clock(written_at(last) + 1))
    reason = watch.reason(watch.look())
    for _ in range(3):
        watch.retrain(str(reason))
    work = tmp_path / "work"
    assert f"Retraining 0003 failed, its results are in {work / '0003'}: No space left on device\n" in out.getvalue()
    assert sorted(run.name for run in work.glob("0*")) == ["0002", "0003"]
    assert not list(work.glob("*/traces"))
    assert (state(tmp_path)["running"], state(tmp_path)["retrained"]) == (None, None)
    assert watch.reason(watch.look()) is None
    assert state(tmp_path)["answers"] == 0


def test_what_no_one_foresaw_fails_one_retraining_and_is_logged_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(*_given: object) -> None:
        raise ValueError("there is nothing to compare")

    monkeypatch.setattr(module, "retrain", wrong)
    record(tmp_path / "traces", answers(2))
    watch, out = watching(config(tmp_path))
    watch.retrain("drift")
    assert "Retraining 0001 failed, its results are in " in out.getvalue()
    assert "in wrong" in caplog.text
    assert (state(tmp_path)["running"], state(tmp_path)["retrained"]) == (None, None)
    again, out = watching(config(tmp_path))
    again.turn()
    assert "resumed" not in out.getvalue()


@pytest.mark.parametrize("error", [OSError("Input/output error"), WorkerCrashedError()])
def test_what_the_disk_or_ray_refuses_at_a_look_ends_no_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A fault: a shard cannot be read, a worker is lost."""
    record(tmp_path / "traces", answers(200))
    watch, out = watching(config(tmp_path, every_s=7))

    def refused(*_given: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(TraceStore, "read", refused)
        watch.turn()
    assert out.getvalue() == f"Trying again in 7 s: {error}\n"
    watch.turn()
    assert "200 answers" not in out.getvalue().splitlines()[0]
    assert state(tmp_path)["verdict"] == "too few answers"


def test_a_disk_that_stays_full_after_a_failure_ends_no_watch_and_old_retrainings_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault: the disk is full, also for what the watch itself keeps."""

    def full(*_given: object) -> None:
        monkeypatch.setattr(module, "write_json", full)
        raise OSError("No space left on device")

    last = record(tmp_path / "traces", answers(2))
    settings = config(tmp_path, at_least_every_h=1, keep=1)
    (settings.work / "0001").mkdir()
    watch, out = watching(settings, Clock(written_at(last) + HOUR + 1))
    with monkeypatch.context() as patched:
        patched.setattr(module, "retrain", full)
        watch.turn()
        assert out.getvalue().endswith("Trying again in 600 s: No space left on device\n")
        assert state(tmp_path)["running"] == "0002"
    monkeypatch.undo()
    assert [run.name for run in settings.work.glob("0*")] == ["0002"]
    watch.turn()
    assert "resumed" not in out.getvalue()
    assert state(tmp_path)["running"] is None


def test_a_run_learns_from_its_traces_with_no_more_cpus_than_allowed(tmp_path: Path) -> None:
    workers = {"align": {"worker": {"num_cpus": 2}}, "evaluate": {"worker": {"at_once": 1}}}
    settings = RetrainConfig(**config(tmp_path, max_cpus=5).model_dump() | workers)
    found = run_config(settings, tmp_path / "work" / "0001")
    assert (found.work, found.collect.traces) == (tmp_path / "work" / "0001", tmp_path / "work" / "0001" / "traces")
    assert {section: worker.at_once for section, worker in found.workers().items()} == {
        "collect": 5,
        "partition": 5,
        "align": 2,
        "router": 5,
        "evaluate": 1,
    }
    unlimited = run_config(config(tmp_path), tmp_path / "work" / "0001")
    assert {worker.at_once for worker in unlimited.workers().values()} == {None}


def test_there_is_nothing_to_watch_without_traces(tmp_path: Path) -> None:
    settings = RetrainConfig(**SMALL | {"work": str(tmp_path / "work")})
    with pytest.raises(
        ConfigError, match=r"--watch looks at what a service recorded: write `collect: \{traces: DIR\}`"
    ):
        module.watch(settings, Console(file=StringIO()))
    assert not (tmp_path / "work").exists()
