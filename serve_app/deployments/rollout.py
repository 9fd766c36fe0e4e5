"""The rollout: takes up new bundles in a running service, judges them, and goes back to the one before if one is worse.

A new bundle's pools and router start beside those that serve. Then ingress replicas begin answers with it: a share of
them during a canary, else all. Answers that run keep what they began with, and what nothing uses any more ends. The
answers of the new bundle are its trial (`core.bundle.trial`). Nothing of this shows in an answer, since answers do not
depend on drafts.

Ingress replicas ask for the plan every second (`follow`), so they go on if the rollout is lost. What it must remember
is in the store of the Ray cluster, and lasts as long as the service does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import ray.cloudpickle as pickle
from ray import serve
from ray.experimental import internal_kv
from ray.serve.schema import ApplicationStatus

from core.bundle import store
from core.bundle.trial import ALL, Answer, Record, Records, Trial, Worse
from core.errors import ConfigError
from serve_app.deployments.bundle_applications import bundle_targets
from serve_app.deployments.plan import Heard, Plan
from serve_app.deployments.rollout_report import RolloutReport, State
from serve_app.deployments.served_models import ServedModels, bundle_root, with_version

FORGOTTEN = 30.0  # seconds after which an ingress replica that says nothing is taken to be gone

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Kept:
    """What outlasts a replica of the rollout: the plan, and of a bundle on trial the one before and what it reached."""

    plan: Plan
    before: ServedModels | None = None
    references: Mapping[str, Record] = field(default_factory=dict)


class Rollout:
    """The one replica of the rollout. `deployment` names this deployment of the service in the cluster's store."""

    def __init__(self, served: ServedModels, deployment: str) -> None:
        root = bundle_root(served.config)
        assert root is not None
        self._root: Path = root
        self._config = served.config
        self._key = f"taskspec-rollout-{deployment}".encode()
        self._records = Records()  # of the bundle that serves
        self._trial: Trial | None = None
        self._before: ServedModels | None = None
        self._state: State = "steady"
        self._last = ""
        self._refused: set[str] = set()  # versions that could not be taken up
        self._heard: dict[str, tuple[float, Heard]] = {}
        self._work: asyncio.Task[None] | None = None  # a bundle is being taken up, or one gone back to
        self._cleaning: asyncio.Task[None] | None = None
        self._looked_at = -float("inf")
        self._plan = Plan(time.time_ns(), served)
        kept: bytes | None = internal_kv._internal_kv_get(self._key)
        if kept is not None:
            self._resume(pickle.loads(kept))

    async def follow(self, heard: Heard) -> Plan | None:
        """Called by ingress replicas: takes what they tell, and returns the plan if they follow another one."""
        self._heard[heard.replica] = time.monotonic(), heard
        for version, answer in heard.answers:
            self._observe(version, answer)
        return None if heard.plan == self._plan.number else self._plan

    async def deploy(self, version: str, share: float, force: bool) -> str:
        """Take up a bundle; returns what is begun, in words. `share` is that of a canary, 0 for none.

        One that was live before is what somebody goes back to, and not on trial but as a canary.

        Raises `ConfigError` if the bundle cannot be served, is blocked and not forced, or another is being taken up.
        """
        if self._working():
            raise ConfigError("another bundle is being taken up; wait until `taskspec status` does not say so")
        candidate, now = self._plan.candidate, self._plan.served
        if version == now.version:
            return await self._stay()
        if candidate is not None and version == candidate.version:
            return self._reshare(candidate, share)
        if candidate is not None:
            raise ConfigError(
                f"bundle {candidate.version} is a canary. Deploy it to every prompt, or end it with "
                f"`taskspec bundles deploy {now.version}`."
            )
        reason = store.blocked(self._root).get(version)
        if reason is not None and not force:
            raise ConfigError(f"bundle {version} is blocked: {reason}.\nWrite --force to deploy it all the same.")
        served = await asyncio.to_thread(with_version, self._config, version)
        self._begin(served, share, trial=share > 0.0 or not store.was_live(self._root, version))
        return f"bundle {version} is being taken up"

    def report(self) -> RolloutReport:
        """What `taskspec status` shows."""
        return RolloutReport(
            self._plan.served.version,
            None if self._plan.candidate is None else self._plan.candidate.version,
            self._plan.share,
            self._state,
            self._last,
            dict((self._trial.records if self._trial else self._records).found),
            dict(self._trial.references) if self._trial else {},
            store.blocked(self._root),
        )

    async def check_health(self) -> None:
        """Serve calls this every second: the time to look for a new bundle, and to end what nothing uses."""
        now = time.monotonic()
        self._heard = {name: (at, heard) for name, (at, heard) in self._heard.items() if now - at < FORGOTTEN}
        if self._working():
            return
        if self._config.rollout.follow and now - self._looked_at >= self._config.rollout.every_s:
            self._looked_at = now
            await self._look()
        if self._followed() and not self._working() and (self._cleaning is None or self._cleaning.done()):
            self._cleaning = asyncio.create_task(self._end_unused())

    async def _look(self) -> None:
        """Take up the live bundle of the directory, if it is another one."""
        version = store.live_version(self._root)
        if version is None or version in self._plan.versions | self._refused or self._plan.candidate is not None:
            return
        try:
            served = await asyncio.to_thread(with_version, self._config, version)
        except ConfigError as error:
            self._refuse(version, str(error))
            return
        self._begin(served, self._config.rollout.canary, trial=True)

    def _working(self) -> bool:
        return self._work is not None and not self._work.done()

    def _on_trial(self) -> ServedModels:
        return self._plan.candidate or self._plan.served

    def _begin(self, served: ServedModels, share: float, *, trial: bool) -> None:
        self._work = asyncio.create_task(self._take_up(served, share, trial=trial))

    async def _take_up(self, served: ServedModels, share: float, *, trial: bool) -> None:
        self._say("starting", f"bundle {served.version}: its pools are starting")
        try:
            await self._start(served)
        except Exception as error:  # noqa: BLE001 - whatever Serve raises, the service goes on with what it has
            self._refuse(str(served.version), f"its pools did not start: {getattr(error, 'cause', error)}")
            return
        if trial:
            self._trial, self._before = Trial(self._references(served)), self._plan.served
        else:
            self._trial, self._before, self._records = None, None, Records()
        if share:
            self._go(Plan(time.time_ns(), self._plan.served, served, share))
            self._say("canary", f"bundle {served.version} has {share:.0%} of the prompts")
        else:
            await self._go_over(served)

    def _references(self, served: ServedModels) -> dict[str, Record]:
        """What a new bundle is held to; by task only if prompts are routed as before."""
        known = self._records.references()
        if self._trial is not None:  # or else one that begins to serve would be held to nothing
            known = dict(self._trial.references) | self._trial.records.references()
        return known if served.router == self._plan.served.router else {ALL: known[ALL]} if ALL in known else {}

    async def _start(self, served: ServedModels) -> None:
        """Start the pools and the router that do not run yet. Raises `RuntimeError` if one cannot be deployed."""
        if self._cleaning is not None:
            await self._cleaning  # it may be ending one of them
        running = {name for name, one in serve.status().applications.items() if one.status == ApplicationStatus.RUNNING}
        missing = [one for one in bundle_targets(served) if one.name not in running]
        if missing:
            await asyncio.to_thread(serve.run_many, missing)

    async def _go_over(self, served: ServedModels) -> None:
        """Every prompt goes to this bundle from now on; its trial goes on."""
        await asyncio.to_thread(store.go_live, self._root, str(served.version))
        self._go(Plan(time.time_ns(), served))
        self._say("trial" if self._trial else "steady", f"bundle {served.version} serves every prompt")

    async def _stay(self) -> str:
        """Keep to the bundle that serves; a canary ends."""
        now, candidate = self._plan.served, self._plan.candidate
        if candidate is None:
            return f"bundle {now.version} serves already"
        if now.version is not None:
            await asyncio.to_thread(store.go_live, self._root, now.version)
        self._trial, self._before = None, None
        self._go(Plan(time.time_ns(), now))
        self._say("steady", f"the canary of bundle {candidate.version} was ended")
        return self._last

    def _reshare(self, candidate: ServedModels, share: float) -> str:
        if not share:
            self._work = asyncio.create_task(self._go_over(candidate))
            return f"bundle {candidate.version} goes from a canary to every prompt"
        self._go(Plan(time.time_ns(), self._plan.served, candidate, share))
        self._say("canary", f"bundle {candidate.version} has {share:.0%} of the prompts")
        return self._last

    def _observe(self, version: str | None, answer: Answer) -> None:
        if self._trial is None:
            if version == self._plan.served.version:
                self._records.add(answer)
            return
        if version != self._on_trial().version:
            return
        worse, trial, limits = self._trial.observe(answer), self._trial, self._config.rollout
        if self._working():
            return
        if worse is not None:
            self._work = asyncio.create_task(self._go_back(worse))
        elif self._plan.candidate is not None and trial.answers >= limits.canary_answers:
            self._work = asyncio.create_task(self._go_over(self._plan.candidate))
        elif self._plan.candidate is None and trial.answers >= limits.trial_answers:
            self._pass(trial)

    def _pass(self, trial: Trial) -> None:
        self._records, self._trial, self._before = trial.records, None, None
        self._keep()
        self._say("steady", f"bundle {self._plan.served.version} has passed its trial of {trial.answers} answers")

    async def _go_back(self, worse: Worse) -> None:
        """Block the bundle on trial, and serve the one before."""
        version, before = str(self._on_trial().version), self._before
        assert before is not None
        self._say("going back", f"bundle {version} is rolled back: {worse}")
        await asyncio.to_thread(store.block, self._root, version, str(worse))
        await self._start(before)
        if self._plan.candidate is None:  # else the records of the one before go on
            self._records = Records()
        self._trial, self._before = None, None
        self._go(Plan(time.time_ns(), before))
        self._say("steady", f"bundle {version} was rolled back and is blocked: {worse}")

    def _refuse(self, version: str, reason: str) -> None:
        self._refused.add(version)
        self._say("steady", f"bundle {version} is not served: {reason}")

    def _followed(self) -> bool:
        """Whether every ingress replica follows the plan, and no answer uses another bundle."""
        heard = [heard for _, heard in self._heard.values()]
        return bool(heard) and all(
            one.plan == self._plan.number and one.running <= self._plan.versions for one in heard
        )

    async def _end_unused(self) -> None:
        """Take down pools and routers that are not in the plan."""
        for name, application in (await asyncio.to_thread(serve.status)).applications.items():
            if name in self._plan.applications or not name.startswith(("draft-", "router@")):
                continue
            if application.status in (ApplicationStatus.RUNNING, ApplicationStatus.UNHEALTHY):
                await asyncio.to_thread(serve.delete, name)

    def _go(self, plan: Plan) -> None:
        self._plan = plan
        self._keep()

    def _keep(self) -> None:
        references = self._trial.references if self._trial else {}
        kept = Kept(self._plan, self._before, references)
        internal_kv._internal_kv_put(self._key, pickle.dumps(kept), overwrite=True)

    def _resume(self, kept: Kept) -> None:
        """Go on after this replica was lost. A trial begins anew, held to the same."""
        self._plan, self._before = kept.plan, kept.before
        if self._before is None:
            return
        self._trial = Trial(kept.references)
        self._state = "canary" if self._plan.candidate else "trial"

    def _say(self, state: State, what: str) -> None:
        self._state, self._last = state, what
        logger.info("%s", what)
