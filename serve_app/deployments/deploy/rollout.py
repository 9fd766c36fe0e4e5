"""The deployment that takes up new bundles, canaries first if so configured, and goes back from those that do worse.

What is to be done is decided in `core.rollout`. This actor performs it: a new bundle's pools and router start beside
those that serve, then ingress replicas begin answers with it. Answers that run keep what they began with, and what
nothing uses any more ends. Nothing of this shows in an answer, since answers do not depend on drafts.

Ingress replicas ask for the plan every second (`follow`), so they go on if this replica is lost. Its state is in the
store of the Ray cluster, and lasts as long as the service does. Which bundles are live, blocked or proven is in their
directory, for all services.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.bundle import store
from core.bundle.proven import is_proven, prove
from core.errors import ConfigError
from core.family import BUNDLE_DIR
from core.rollout import events
from core.rollout.events import Effect, Event, Release, Version
from core.rollout.state import RolloutState, first_state, todo
from core.rollout.step import RolloutRules, step
from core.rollout.trial import FEWEST
from serve_app.deployments.deploy.bundle_pools import PoolsNotRunning, end_all_but, start
from serve_app.deployments.models.plan import FollowerReport, Plan
from serve_app.deployments.models.served_models import ServedModels, bundle_root, with_version
from serve_app.deployments.telemetry.replica_log import log_into_replica
from serve_app.deployments.telemetry.reports import RolloutReport
from serve_app.deployments.telemetry.rollout_metrics import RolloutMetrics
from serve_app.ray_private import load_value, store_value

SILENCE = 30.0  # seconds after which an ingress replica that says nothing is gone

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredRollout:
    """What outlasts a replica of the rollout: its state, but for the last answers (`FEWEST` at most)."""

    state: RolloutState
    plan: Plan
    models: dict[Version, ServedModels]


class Rollout:
    """The one replica of the rollout. `deployment` names this deployment of the service in the cluster's store."""

    def __init__(self, served: ServedModels, deployment: str) -> None:
        log_into_replica()
        self._config, self._root = served.config, bundle_root(served.config)
        rollout = served.config.rollout
        self._every_s = rollout.every_s
        self._metrics = RolloutMetrics()
        self._rules = RolloutRules(rollout.follow, rollout.canary, rollout.canary_answers, rollout.trial_answers)
        self._key = f"taskspec-rollout-{deployment}"
        self._unstored = 0  # answers
        self._followers: dict[str, tuple[float, FollowerReport]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: asyncio.Task[None] | None = None
        self._looked_at = -float("inf")
        first = first_state(Release(served.version, served.router), store.live_version(self._root))
        stored: StoredRollout | None = load_value(self._key)
        now = stored or StoredRollout(first, Plan(time.time_ns(), served), {served.version: served})
        self._state, self._plan, self._models = now.state, now.plan, dict(now.models)
        self._resuming = stored is not None
        # After a loss nothing is ended until all ingress replicas were heard again.
        self._end_from = time.monotonic() + SILENCE if self._resuming else -float("inf")
        if not self._resuming:
            self._perform(todo(first))

    async def follow(self, report: FollowerReport) -> Plan | None:
        """Called by ingress replicas: takes what they report, and returns the plan if they follow another one."""
        self._resume()
        self._followers[report.replica] = time.monotonic(), report
        for version, answer in report.answers:
            self._take(events.AnswerEnded(version, answer))
        return None if report.plan == self._plan.number else self._plan

    async def deploy(self, version: str, share: float, force: bool) -> str:
        """Begin to take up a bundle; returns that in words. `share` is that of a canary, 0 for none.

        Raises `ConfigError` if it is not in the directory, if it is blocked and not forced, or if another one is being
        taken up, or is on trial in the way of a canary.
        """
        self._resume()
        if version != events.NONE and version not in self._models:
            store.show(self._root, version)  # raises if it is not there
        live, reason = store.live_version(self._root), store.blocked(self._root).get(version)
        self._take(events.Deploy(version, share, force, live, is_proven(self._root, version), reason))
        return self._state.last

    def report(self) -> RolloutReport:
        """What `taskspec status` shows."""
        state = self._state
        served, candidate, share = state.split
        comparison = state.comparison
        return RolloutReport(
            served,
            candidate,
            share,
            state.name,
            state.last,
            dict(state.stats),
            dict(comparison.references) if comparison else {},
            store.blocked(self._root),
            {task: math.exp(bets.log_money) for task, bets in comparison.bets.items()} if comparison else {},
            math.exp(comparison.log_ruin) if comparison else None,
        )

    async def check_health(self) -> None:
        """Serve calls this every second: the time to look for a new bundle, and to end what nothing uses."""
        self._resume()
        self._metrics.export(self._state.name, self._plan)
        now = time.monotonic()
        self._followers = {name: (at, report) for name, (at, report) in self._followers.items() if now - at < SILENCE}
        if now - self._looked_at >= self._every_s:
            self._looked_at = now
            live = store.live_version(self._root)
            proven = live is not None and is_proven(self._root, live)
            self._take(events.Looked(live, proven, store.blocked(self._root)))
        if self._all_follow() and now >= self._end_from:
            self._take(events.AllFollow())

    def _resume(self) -> None:
        """Perform what the replica before left under way, which needs the event loop."""
        if self._resuming:
            self._resuming = False
            self._perform(todo(self._state))

    def _take(self, event: Event) -> None:
        before = self._state
        self._state, effects = step(before, event, self._rules)
        if self._state.last != before.last:
            logger.info("%s", self._state.last)
        if self._state.split != before.split:
            served, candidate, share = self._state.split
            self._plan = Plan(time.time_ns(), self._models[served], self._models[candidate] if share else None, share)
        counted = isinstance(event, events.AnswerEnded) and not effects and self._state.last == before.last
        self._unstored += counted
        if self._unstored >= FEWEST or (self._state != before and not counted):
            self._store()
        self._perform(effects)

    def _store(self) -> None:
        self._unstored = 0
        versions = {*self._state.in_use, self._state.base}
        self._models = {version: models for version, models in self._models.items() if version in versions}
        try:
            store_value(self._key, StoredRollout(self._state, self._plan, self._models))
        except Exception:  # the head of the cluster is lost for now: the next time
            logger.exception("the store of the cluster")

    def _perform(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case events.Start(version, others):
                    self._begin(self._start(version, others))
                case events.Block(version, reason):
                    self._begin(self._block(version, reason))
                case events.GoLive(version, instead_of):
                    self._begin(self._go_live(version, instead_of))
                case events.Prove(version):
                    self._prove(version)
                case events.EndOthers() if self._ending is None or self._ending.done():
                    self._ending = self._begin(end_all_but(self._plan.applications))

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)  # the event loop itself keeps no reference
        task.add_done_callback(self._tasks.discard)
        return task

    async def _start(self, version: Version, others: tuple[Version, ...]) -> None:
        try:
            served = self._models.get(version)
            if served is None:
                served = await asyncio.to_thread(with_version, self._config, str(version))
            await self._run_pools(served)
            for other in others:
                with suppress(PoolsNotRunning):  # answers without drafts are slower and as good
                    await self._run_pools(self._models[other])
            reason = store.blocked(self._root).get(str(version))
        except Exception as error:  # whatever Serve or the disk raises, the service goes on with what it has
            logger.warning("bundle %s does not start", version, exc_info=True)
            self._take(events.NotStarted(version, str(error), final=isinstance(error, ConfigError | PoolsNotRunning)))
            return
        self._models[version] = served
        self._take(events.Started(Release(version, served.router), reason))

    async def _run_pools(self, served: ServedModels) -> None:
        """None is being ended meanwhile, so those of the plan need not be waited for."""
        if self._ending is not None:
            await asyncio.wait([self._ending])
        await start(served, self._plan.applications)

    async def _block(self, version: str, reason: str) -> None:
        self._take(events.BlockingEnded(await _error_of(store.block, self._root, version, reason)))

    async def _go_live(self, version: str, instead_of: Version) -> None:
        self._take(events.GoLiveEnded(await _error_of(_make_live, self._root, version, instead_of)))

    def _prove(self, version: str) -> None:
        if self._root == BUNDLE_DIR:  # package data, which no service writes to
            return
        try:
            prove(self._root, version)
        except OSError as error:  # read-only, as that of an installed package may be: only a trial more some day
            logger.warning("bundle %s is not noted as proven: %s", version, error)

    def _all_follow(self) -> bool:
        """Whether every ingress replica follows the plan, and no answer uses another bundle."""
        reports = [report for _, report in self._followers.values()]
        return bool(reports) and all(
            report.plan == self._plan.number and report.running <= self._plan.versions for report in reports
        )


def _make_live(root: Path, version: str, instead_of: Version) -> None:
    if store.live_version(root) == instead_of:
        store.go_live(root, version)


async def _error_of(work: Callable[..., None], *arguments: object) -> str | None:
    """Do it in a thread, as who publishes may hold the lock for long; why it failed, if it did."""
    try:
        await asyncio.to_thread(work, *arguments)
    except Exception as error:  # whatever the disk raises, the service goes on
        logger.exception("the directory of bundles")
        return str(error)
    return None
