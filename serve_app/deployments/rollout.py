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
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import ray.cloudpickle as pickle
from ray import serve
from ray.experimental import internal_kv
from ray.serve.schema import ApplicationStatus, ServeStatus

from core.bundle import store
from core.bundle.trial import ALL, Answer, Record, Records, Trial, Worse
from core.errors import ConfigError, TaskSpecError
from serve_app.deployments.bundle_applications import bundle_targets
from serve_app.deployments.plan import Heard, Plan
from serve_app.deployments.rollout_report import RolloutReport, State
from serve_app.deployments.served_models import ServedModels, bundle_root, with_version

FORGOTTEN = 30.0  # seconds after which an ingress replica that says nothing is taken to be gone
START_SECONDS = 900.0  # for the pools of a bundle; large models take minutes
POLL_SECONDS = 0.2
NONE = "none"  # stands for the version of a service without a bundle

logger = logging.getLogger(__name__)


class NotStarted(TaskSpecError):
    """The pools of a bundle did not start."""


@dataclass(frozen=True)
class Kept:
    """What outlasts a replica of the rollout: the plan; of a bundle on trial the one before and what it is held to;
    and the versions that have served every prompt and were not rolled back."""

    plan: Plan
    before: ServedModels | None = None
    references: Mapping[str, Record] | None = None
    proven: frozenset[str | None] = field(default_factory=frozenset)


class Rollout:
    """The one replica of the rollout. `deployment` names this deployment of the service in the cluster's store.

    What takes time is done by one task, `_work`, which begins before anything is awaited. So two bundles are never
    taken up at a time.
    """

    def __init__(self, served: ServedModels, deployment: str) -> None:
        self._root = bundle_root(served.config)
        self._config = served.config
        self._key = f"taskspec-rollout-{deployment}".encode()
        self._plan = Plan(time.time_ns(), served)
        self._records = Records()  # of the bundle that serves; while it is on trial, of the one before
        self._trial: Trial | None = None
        self._before: ServedModels | None = None  # the bundle to go back to from that on trial
        self._proven: set[str | None] = {served.version}
        self._refused: set[str] = set()  # versions that could not be taken up, or were rolled back
        self._last = ""
        self._heard: dict[str, tuple[float, Heard]] = {}
        self._work: asyncio.Task[None] | None = None
        self._doing: State | None = None
        self._cleaning: asyncio.Task[None] | None = None
        self._looked_at = self._clean_from = -float("inf")
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
        """Begin to take up a bundle; returns that in words. `share` is that of a canary, 0 for none.

        One that has served before, or is forced, is not on trial but as a canary: somebody goes back to it.

        Raises `ConfigError` if it is blocked and not forced, or if another one is being taken up, or is on trial in the
        way of a canary.
        """
        candidate, now = self._plan.candidate, self._plan.served
        if self._working():
            raise ConfigError("another bundle is being taken up; wait until `taskspec status` does not say so")
        if version == (now.version or NONE):
            return self._stay()
        if candidate is not None and version == candidate.version:
            return self._reshare(candidate, share)
        if candidate is not None:
            raise ConfigError(
                f"bundle {candidate.version} is a canary. Deploy it to every prompt, or end it with "
                f"`taskspec bundles deploy {now.version or NONE}`."
            )
        if share and self._trial is not None:
            raise ConfigError(f"bundle {now.version} is on trial; wait until it has passed, or leave --canary out")
        reason = store.blocked(self._root).get(version)
        if reason is not None and not force:
            raise ConfigError(f"bundle {version} is blocked: {reason}.\nWrite --force to deploy it all the same.")
        trial = share > 0.0 or not (force or version in self._proven)
        self._begin("starting", self._take_up(version, share, trial=trial))
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
        if self._config.rollout.follow and now - self._looked_at >= self._config.rollout.every_s:
            self._looked_at = now
            self._look()
        idle = not self._working() and (self._cleaning is None or self._cleaning.done())
        if idle and self._followed() and now >= self._clean_from:
            self._cleaning = asyncio.create_task(self._end_unused())

    @property
    def _state(self) -> State:
        if self._doing is not None:
            return self._doing
        return "canary" if self._plan.candidate else "trial" if self._trial else "steady"

    @property
    def _on_trial(self) -> ServedModels:
        return self._plan.candidate or self._plan.served

    def _look(self) -> None:
        """Take up the live bundle of the directory, if it is another one. A canary waits for the end of a trial."""
        version, share = store.live_version(self._root), self._config.rollout.canary
        if version is None or version in self._plan.versions | self._refused:
            return
        if not (self._working() or self._plan.candidate is not None or (share and self._trial is not None)):
            self._begin("starting", self._take_up(version, share, trial=True))

    def _working(self) -> bool:
        return self._work is not None and not self._work.done()

    def _begin(self, doing: State, work: Coroutine[Any, Any, None]) -> None:
        self._doing = doing
        self._work = asyncio.create_task(self._guarded(work))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # whatever Serve or the disk raises, the service goes on with what it has
            logger.exception("rollout")
            self._last = f"failed: {error}"
        finally:
            self._doing = None

    async def _take_up(self, version: str, share: float, *, trial: bool) -> None:
        self._say(f"bundle {version}: its pools are starting")
        live = store.live_version(self._root)
        try:
            served = await asyncio.to_thread(with_version, self._config, version)
            await self._start(served)
        except (ConfigError, NotStarted) as error:
            self._refused.add(version)
            self._say(f"bundle {version} is not served: {error}")
            return
        held_to = Trial(self._references(served)) if trial else None
        if share:
            self._trial, self._before = held_to, self._plan.served
            self._go(Plan(time.time_ns(), self._plan.served, served, share))
            self._say(f"bundle {version} has {share:.0%} of the prompts")
        else:
            await self._go_over(served, held_to, live)

    async def _go_over(self, served: ServedModels, trial: Trial | None, live: str | None) -> None:
        """Every prompt goes to this bundle from now on, and it is made live, unless another one is by now."""
        if trial is None:
            self._before, self._records = None, Records()
        elif self._trial is None or self._plan.candidate is not None:
            self._before = self._plan.served
        self._trial = trial
        self._go(Plan(time.time_ns(), served))
        self._say(f"bundle {served.version} serves every prompt")
        if store.live_version(self._root) == live != served.version:
            await asyncio.to_thread(store.go_live, self._root, str(served.version))

    def _stay(self) -> str:
        """Keep to the bundle that serves; a canary ends."""
        now, candidate = self._plan.served, self._plan.candidate
        if candidate is None:
            return f"bundle {now.version} serves already"
        self._trial, self._before = None, None
        self._refused.add(str(candidate.version))  # or it would be followed again if it is live
        self._go(Plan(time.time_ns(), now))
        self._say(f"the canary of bundle {candidate.version} was ended")
        return self._last

    def _reshare(self, candidate: ServedModels, share: float) -> str:
        if not share:
            live = store.live_version(self._root)
            self._begin("starting", self._go_over(candidate, self._trial, live))
            return f"bundle {candidate.version} goes from a canary to every prompt"
        self._go(Plan(time.time_ns(), self._plan.served, candidate, share))
        self._say(f"bundle {candidate.version} has {share:.0%} of the prompts")
        return self._last

    def _references(self, served: ServedModels) -> dict[str, Record]:
        """What a new bundle is held to; by task only if prompts are routed as before.

        One that replaces another on trial is held to the same, or else drafts could get worse little by little.
        """
        if self._trial is None:
            known, before = self._records.references(), self._plan.served
        else:
            known, before = self._trial.references, self._before or self._plan.served
        return known if served.router == before.router else {ALL: known[ALL]} if ALL in known else {}

    async def _start(self, served: ServedModels) -> None:
        """Start the pools and the router that do not run yet. Raises `NotStarted`."""
        if self._cleaning is not None:
            await asyncio.wait([self._cleaning])  # it may be ending one of them
        running = _running(await asyncio.to_thread(serve.status))
        missing = [one for one in bundle_targets(served) if one.name not in running]
        if not missing:
            return
        await asyncio.to_thread(serve.run_many, missing, wait_for_applications_running=False)
        names, deadline = {one.name for one in missing}, time.monotonic() + START_SECONDS
        while not names <= _running(found := await asyncio.to_thread(serve.status)):
            for name in names & found.applications.keys():
                if found.applications[name].status == ApplicationStatus.DEPLOY_FAILED:
                    raise NotStarted(f"{name}: {found.applications[name].message}")
            if time.monotonic() > deadline:
                waiting = ", ".join(sorted(names - _running(found)))
                raise NotStarted(
                    f"{waiting}: not running after {START_SECONDS:.0f} s; `serve status` says what is missing"
                )
            await asyncio.sleep(POLL_SECONDS)

    def _observe(self, version: str | None, answer: Answer) -> None:
        candidate, trial, limits = self._plan.candidate, self._trial, self._config.rollout
        if version == self._plan.served.version and (trial is None or candidate is not None):
            self._records.add(answer)
        if trial is None or version != self._on_trial.version:
            return
        worse = trial.observe(answer)
        if self._working():
            return
        if worse is not None:
            self._begin("going back", self._go_back(worse))
        elif candidate is not None and trial.answers >= limits.canary_answers:
            self._begin("starting", self._go_over(candidate, trial, store.live_version(self._root)))
        elif candidate is None and trial.answers >= limits.trial_answers:
            self._pass(trial)

    def _pass(self, trial: Trial) -> None:
        self._records, self._trial, self._before = trial.records, None, None
        self._go(self._plan)
        self._say(f"bundle {self._plan.served.version} has passed its trial of {trial.answers} answers")

    async def _go_back(self, worse: Worse) -> None:
        """Serve the bundle before that on trial, and block that one."""
        version, before = str(self._on_trial.version), self._before
        assert before is not None
        self._say(f"bundle {version} is rolled back: {worse}")
        self._refused.add(version)
        self._proven.discard(version)
        with suppress(NotStarted):  # answers without drafts are slower and as good
            await self._start(before)
        self._trial, self._before = None, None
        self._go(Plan(time.time_ns(), before))
        self._say(f"bundle {version} was rolled back and is blocked: {worse}")
        await asyncio.to_thread(store.block, self._root, version, str(worse))

    def _followed(self) -> bool:
        """Whether every ingress replica follows the plan, and no answer uses another bundle."""
        heard = [heard for _, heard in self._heard.values()]
        return bool(heard) and all(
            one.plan == self._plan.number and one.running <= self._plan.versions for one in heard
        )

    async def _end_unused(self) -> None:
        """Take down pools and routers that are not in the plan."""
        for name, application in (await asyncio.to_thread(serve.status)).applications.items():
            ours = name.startswith(("draft-", "router@")) and name not in self._plan.applications
            if ours and application.status != ApplicationStatus.DELETING:
                try:
                    await asyncio.to_thread(serve.delete, name)
                except Exception:  # the controller was lost, or it drains for long: the next time
                    logger.exception("ending %s", name)

    def _go(self, plan: Plan) -> None:
        """Follow this plan from now on, and keep it."""
        if self._trial is None and plan.candidate is None:
            self._proven.add(plan.served.version)
        self._plan = plan
        references = None if self._trial is None else self._trial.references
        kept = Kept(plan, self._before, references, frozenset(self._proven))
        internal_kv._internal_kv_put(self._key, pickle.dumps(kept), overwrite=True)

    def _resume(self, kept: Kept) -> None:
        """Go on after this replica was lost. A trial begins anew, held to the same."""
        self._plan, self._before, self._proven = kept.plan, kept.before, set(kept.proven)
        self._trial = None if kept.references is None else Trial(kept.references)
        self._clean_from = time.monotonic() + FORGOTTEN  # until all ingress replicas were heard again

    def _say(self, what: str) -> None:
        self._last = what
        logger.info("%s", what)


def _running(status: ServeStatus) -> set[str]:
    return {name for name, one in status.applications.items() if one.status == ApplicationStatus.RUNNING}
