"""`taskspec retrain --watch`: look at a service's traces from time to time, and retrain on drift or on schedule.

In the work directory:

    watch.json       what the last look found, and when a retraining was begun: `WatchState`
    reference.json   the answers that later ones are compared with (`train_jobs.watch.watched_traces`)
    0001/ 0002/ ...  the work directory of each retraining; the last ones are kept

A retraining that was killed is resumed. It learns from the traces there were when it began.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import ray
from ray.exceptions import RayError
from ray.util import metrics
from rich.console import Console

from core.atomic_files import ASIDE
from core.bundle.store import Bundle
from core.errors import ConfigError, TaskSpecError, TooFewPrompts
from core.tasks.drift import Drift, Limits, measure
from core.traces.store import TraceStore, written_at
from train_jobs.cluster.progress_view import print_line
from train_jobs.config import RetrainConfig
from train_jobs.retrain.pipeline import exclusive, retrain
from train_jobs.stages import STAGES
from train_jobs.watch.watched_traces import Distances, Epoch, WatchedTraces, distances_on_ray, freeze
from train_jobs.work.artefacts import read_json, write_json
from train_jobs.work.in_memory import forgetting, learns_in_memory, prepare
from train_jobs.work.models import live_bundle

STATE, _REFERENCE, _TRACES = "watch.json", "reference.json", "traces"
_RUN = "[0-9][0-9][0-9][0-9]"
_HOUR = 3600.0
RENEWAL = 5.0  # seconds
_log = logging.getLogger(__name__)


class WatchState(msgspec.Struct, kw_only=True):
    """What a watch knows, in watch.json.

    `looked` is the time of the last look, `answers` the number of recent answers that it compared, `version` the bundle
    that they were given under. `answered` is the time of the first answers that it ever saw, `begun` the time when the
    last retraining began, `retrained` that of the last which was finished, and `running` the name of its directory
    while it runs.
    """

    looked: datetime | None = None
    answers: int = 0
    drift: Drift | None = None
    verdict: str | None = None
    version: str | None = None
    answered: datetime | None = None
    begun: datetime | None = None
    retrained: datetime | None = None
    running: str | None = None


class WatchGauges:
    """What a watch tells Prometheus, on a Ray that runs.

    Ray forgets a gauge that is not set again within 20 s, and a watch looks less often, so a thread does that.
    """

    def __init__(self) -> None:
        of_drift = "Drift of a service's answers against the first ones under its bundle"
        self._drift = metrics.Gauge("taskspec_drift", of_drift, ("kind",))
        of_retraining = "Unix time when the last retraining began that was finished"
        self._retrained = metrics.Gauge("taskspec_retrained_timestamp_seconds", of_retraining)
        self._figures: dict[str, float] = {}
        self._retrained_at: float | None = None
        threading.Thread(target=self._renew_forever, daemon=True).start()

    def set(self, drift: Drift, retrained: datetime | None) -> None:
        """A figure that nothing can be claimed of is left out, and Ray forgets what it was."""
        figures = {kind: getattr(drift, kind) for kind in ("mix", "distance", "acceptance")}
        self._figures = {kind: figure for kind, figure in figures.items() if figure is not None}
        self._retrained_at = None if retrained is None else retrained.timestamp()
        self._renew()

    def _renew(self) -> None:
        for kind, figure in self._figures.items():
            self._drift.set(figure, {"kind": kind})
        if self._retrained_at is not None:
            self._retrained.set(self._retrained_at)

    def _renew_forever(self) -> None:
        while True:
            time.sleep(RENEWAL)
            self._renew()


def watch(config: RetrainConfig, console: Console) -> None:
    """Look and retrain until an interruption. Raises `ConfigError` for a setting to correct."""
    config = config.anchored()
    config.watched()
    prepare(config)
    with exclusive(config.work):
        watching = Watch(config, console)
        while True:
            watching.turn()
            time.sleep(config.watch.every_s)


class Watch:
    """One watch on the Ray that this process is connected to. `clock` gives Unix time."""

    def __init__(
        self,
        config: RetrainConfig,
        console: Console,
        clock: Callable[[], float] = time.time,
        distances: Callable[[RetrainConfig, Path | None], Distances] = distances_on_ray,
    ) -> None:
        self.state = _kept(config.work / STATE)
        self._config = config
        self._directory = config.watched()
        self._console = console
        self._clock = clock
        self._distances = distances
        self._made = 0.0  # when the live bundle was, as of the last look
        self._watched: tuple[Epoch, WatchedTraces] | None = None
        self._gauges: WatchGauges | None = None

    def turn(self) -> None:
        """Resume what was killed, look, and retrain if there is a reason.

        Raises `ConfigError` for a setting to correct. What the disk or Ray refuses is printed: the next turn may do
        better.
        """
        try:
            self.resume()
            reason = self.reason(self.look())
            if reason is not None:
                self.retrain(reason)
        except ConfigError:  # of a worker: then it is an exception of Ray's, too
            raise
        except (OSError, RayError) as error:
            print_line(self._console, f"Trying again in {self._config.watch.every_s:g} s: {error}")

    def look(self) -> Drift:
        """Measure the drift now; keep, export and print it.

        Raises `ConfigError` if the answers are kept in memory, as they may be since the last look, and `work` is not.
        """
        prepare(self._config)
        settings, state = self._config.watch, self.state
        bundle = live_bundle(self._config)
        self._made = _seconds(None if bundle is None else bundle.manifest.created)
        traces = self._traces(bundle)
        sides = traces.compared(settings.reference, settings.recent, after=_seconds(state.begun))
        drift = measure(*sides, Limits(settings.threshold, settings.fall, settings.min_answers))
        state.looked, state.answers = self._now(), drift.recent
        if state.answered is None and (shards := TraceStore(self._directory).shards()):
            state.answered = _moment(written_at(shards[0]))
        state.drift, state.verdict = drift, drift.verdict
        state.version = None if bundle is None else bundle.manifest.version
        self._keep()
        self._export(drift)
        print_line(self._console, _line(state, drift))
        return drift

    def reason(self, drift: Drift) -> str | None:
        """Why to retrain now; None if there is no reason."""
        if drift.drifted:
            return f"drift, {drift.verdict}"
        hours, last = self._config.watch.at_least_every_h, max(self._made, _seconds(self.state.begun))
        if hours is None or not any(written_at(shard) > last for shard in TraceStore(self._directory).shards()):
            return None
        passed = (self._clock() - (last or _seconds(self.state.answered))) / _HOUR
        since = "the last one" if last else "the first answers"
        return f"{hours:g} hours have passed since {since}" if passed >= hours else None

    def retrain(self, reason: str) -> None:
        """Retrain in the next directory; a failure is printed. Raises `ConfigError` for a setting to correct."""
        earlier = max((int(run.name) for run in self._runs()), default=0)
        self.state.begun, self.state.running = self._now(), f"{earlier + 1:04d}"
        self._keep()
        print_line(self._console, f"Retraining {self.state.running}: {reason}")
        self._run(self.state.running)

    def resume(self) -> None:
        """Go on with the retraining that was killed, if there is one."""
        if self.state.running is not None:
            print_line(self._console, f"Retraining {self.state.running} was interrupted and is resumed")
            self._run(self.state.running)

    def _run(self, name: str) -> None:
        """Do a retraining, note its end, delete old ones."""
        directory = self._config.work / name
        frozen = directory / _TRACES
        try:
            prepare(self._config)
            with forgetting(self._config, frozen, frozen.with_name(ASIDE + _TRACES)):
                freeze(self._directory, frozen)
                outcome = retrain(run_config(self._config, directory), STAGES, self._console)
        except TooFewPrompts as error:
            print_line(self._console, f"Retraining {name} was too early: {error}")
        except ConfigError:  # the same reason is to count when the setting is corrected
            self.state.begun, self.state.running = self.state.retrained, None
            self._keep()
            raise
        except (TaskSpecError, RayError, OSError) as error:
            self._print_failure(directory, error)
        except Exception as error:  # noqa: BLE001 - resumed, it would fail in the same way for ever
            _log.exception("retraining %s", name)
            self._print_failure(directory, error)
        else:
            outcome.print(self._console)
            self.state.retrained = self.state.begun
        self.state.running = None
        try:
            self._keep()
        finally:  # the more so if the disk is full
            self._prune()

    def _print_failure(self, directory: Path, error: Exception) -> None:
        results = "" if learns_in_memory(self._config) else f", its results are in {directory}"
        print_line(self._console, f"Retraining {directory.name} failed{results}: {error}")

    def _prune(self) -> None:
        """Delete all but the last retrainings, and the traces that those learned from."""
        runs = self._runs()
        for old in runs[: -self._config.watch.keep]:
            shutil.rmtree(old)
        for run in runs[-self._config.watch.keep :]:
            shutil.rmtree(run / _TRACES, ignore_errors=True)

    def _runs(self) -> list[Path]:
        return sorted(self._config.work.glob(_RUN))

    def _traces(self, bundle: Bundle | None) -> WatchedTraces:
        """The answers under this bundle since the last retraining, whose own draft they may not have had yet."""
        version = None if bundle is None else bundle.manifest.version
        epoch = Epoch(version, max(self._made, _seconds(self.state.retrained)))
        if self._watched is None or self._watched[0] != epoch:
            distances = self._distances(self._config, None if bundle is None else bundle.centroids)
            self._watched = epoch, WatchedTraces(self._directory, self._config.work / _REFERENCE, epoch, distances)
        return self._watched[1]

    def _export(self, drift: Drift) -> None:
        if ray.is_initialized():
            self._gauges = self._gauges or WatchGauges()
            self._gauges.set(drift, self.state.retrained)

    def _now(self) -> datetime:
        return _moment(self._clock())

    def _keep(self) -> None:
        write_json(self._config.work / STATE, self.state)


def run_config(config: RetrainConfig, directory: Path) -> RetrainConfig:
    """That of one retraining of a watch: its own work directory, the traces put there, no more CPUs than allowed."""
    collect = config.collect.model_copy(update={"traces": directory / _TRACES})
    own = config.model_copy(update={"work": directory, "collect": collect})
    return own if config.watch.max_cpus is None else own.within(config.watch.max_cpus)


def _kept(file: Path) -> WatchState:
    """Raises `ConfigError` if the file is damaged."""
    if not file.exists():
        return WatchState()
    try:
        return read_json(file, WatchState)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{file} is not the state of a watch: {error}; delete it to watch anew") from error


def _moment(seconds: float) -> datetime:
    """Of a Unix time."""
    return datetime.fromtimestamp(seconds, UTC)


def _seconds(moment: datetime | None) -> float:
    """Unix time; 0 for never."""
    return 0.0 if moment is None else moment.timestamp()


def _line(state: WatchState, drift: Drift) -> str:
    figures = (("mix", drift.mix), ("distance", drift.distance), ("fall of acceptance", drift.acceptance))
    shown = ", ".join(f"{name} {'-' if figure is None else f'{figure:.2f}'}" for name, figure in figures)
    sides = f"{drift.recent} answers against {drift.reference} under {state.version or 'no bundle'}"
    return f"{state.looked:%Y-%m-%d %H:%M:%S} UTC: {sides}: {shown}: {drift.verdict}"
