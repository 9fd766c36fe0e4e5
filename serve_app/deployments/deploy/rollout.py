"""The rollout: takes up new bundles in a running service, judges them, and goes back to the one before if one is worse.

A new bundle's pools and router start beside those that serve. Then ingress replicas begin answers with it: a share of
them during a canary, else all. Answers that run keep what they began with, and what nothing uses any more ends. The
answers of the new bundle are its trial (`core.bundle.trial`), unless it has proven itself before. Nothing of this shows
in an answer, since answers do not depend on drafts.

Ingress replicas ask for the plan every second (`follow`), so they go on if the rollout is lost. What it must remember
is in the store of the Ray cluster, and lasts as long as the service does. Which bundles are live, blocked or proven is
in their directory, for all services.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ray.cloudpickle as pickle
from ray.experimental import internal_kv

from core.bundle import store
from core.bundle.proven import is_proven, prove
from core.bundle.trial import ALL, FEWEST, Answer, Record, Records, Trial, Worse
from core.errors import ConfigError
from serve_app.deployments.deploy.running_applications import NotStarted, end_all_but, start
from serve_app.deployments.models.plan import Heard, Plan
from serve_app.deployments.models.served_models import ServedModels, bundle_root, with_version
from serve_app.deployments.telemetry.replica_log import log_into_replica
from serve_app.deployments.telemetry.reports import NONE, RolloutReport, State

FORGOTTEN = 30.0  # seconds after which an ingress replica that says nothing is taken to be gone

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Kept:
    """What outlasts a replica of the rollout: all that it has learnt, but for the last answers (`FEWEST` at most)."""

    plan: Plan
    trial: Trial | None
    before: ServedModels | None
    records: Records
    refused: frozenset[str]


class Rollout:
    """The one replica of the rollout. `deployment` names this deployment of the service in the cluster's store.

    What takes time is done by one task, `_work`, which begins before anything is awaited. So two bundles are never
    taken up at a time.
    """

    def __init__(self, served: ServedModels, deployment: str) -> None:
        log_into_replica()
        self._root = bundle_root(served.config)
        self._config = served.config
        self._key = f"taskspec-rollout-{deployment}".encode()
        self._plan = Plan(time.time_ns(), served)
        self._records = Records()  # of the bundle to go back to
        self._trial: Trial | None = None
        self._before: ServedModels | None = None  # that bundle while there is a trial; else it is the one that serves
        self._refused: set[str] = set()  # versions that could not be taken up, were ended or rolled back
        self._last = ""
        self._heard: dict[str, tuple[float, Heard]] = {}
        self._work: asyncio.Task[None] | None = None
        self._doing: State | None = None
        self._cleaning: asyncio.Task[None] | None = None
        self._looked_at = self._clean_from = -float("inf")
        self._unkept = 0  # answers since this was last kept
        kept: bytes | None = internal_kv._internal_kv_get(self._key)
        if kept is not None:
            self._resume(pickle.loads(kept))
        else:
            self._prove()

    async def follow(self, heard: Heard) -> Plan | None:
        """Called by ingress replicas: takes what they tell, and returns the plan if they follow another one."""
        self._heard[heard.replica] = time.monotonic(), heard
        for version, answer in heard.answers:
            self._observe(version, answer)
        self._unkept += len(heard.answers)
        if self._unkept >= FEWEST:
            self._keep()
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
        trial = share > 0.0 or not (force or self._is_proven(version))
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
            self._cleaning = asyncio.create_task(end_all_but(self._plan.applications))

    @property
    def _state(self) -> State:
        if self._doing is not None:
            return self._doing
        return "canary" if self._plan.candidate else "trial" if self._trial else "steady"

    @property
    def _on_trial(self) -> ServedModels:
        return self._plan.candidate or self._plan.served

    @property
    def _base(self) -> ServedModels:
        """The bundle that one on trial is held to, and that is gone back to; without a trial the one that serves."""
        return self._before or self._plan.served

    def _is_proven(self, version: str) -> bool:
        return version == self._base.version or is_proven(self._root, version)

    def _look(self) -> None:
        """Take up the live bundle of the directory, if it is another one. A canary or a trial ends without a result."""
        version = store.live_version(self._root)
        if version is None or self._working() or version in self._plan.versions | self._refused:
            return
        trial = not self._is_proven(version)
        self._begin("starting", self._take_up(version, self._config.rollout.canary if trial else 0.0, trial=trial))

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
            await start(served, await self._in_use())
        except (ConfigError, NotStarted) as error:
            self._refused.add(version)
            self._keep()
            self._say(f"bundle {version} is not served: {error}")
            return
        self._refused.discard(version)
        if share and self._base.version != self._plan.served.version:
            with suppress(NotStarted):  # its pools ended when every prompt went to the bundle on trial
                await start(self._base, await self._in_use())
        base, references = self._base, self._references(served)
        if not trial and version != base.version:
            self._records = Records()
        self._trial, self._before = (Trial(references), base) if trial else (None, None)
        if not share:
            await self._go_over(served, live)
            return
        self._go(Plan(time.time_ns(), base, served, share))
        self._say(f"bundle {version} has {share:.0%} of the prompts")

    async def _in_use(self) -> set[str]:
        """The applications of the plan. Others may be started from now on: none is being ended."""
        if self._cleaning is not None:
            await asyncio.wait([self._cleaning])
        return self._plan.applications

    async def _go_over(self, served: ServedModels, live: str | None) -> None:
        """Every prompt goes to this bundle from now on, and it is made live, unless another one is by now."""
        self._go(Plan(time.time_ns(), served))
        self._say(f"bundle {served.version} serves every prompt")
        if self._trial is None:
            self._prove()
        if store.live_version(self._root) == live != served.version:
            await asyncio.to_thread(store.go_live, self._root, str(served.version))

    def _stay(self) -> str:
        """Keep to the bundle that serves; a canary ends, and is not live any more."""
        now, candidate = self._plan.served.version, self._plan.candidate
        if candidate is None:
            return f"bundle {now or NONE} serves already"
        self._trial, self._before = None, None
        self._refused.add(str(candidate.version))
        self._go(Plan(time.time_ns(), self._plan.served))
        self._say(f"the canary of bundle {candidate.version} was ended")
        if now is not None and store.live_version(self._root) == candidate.version:
            self._begin("going back", asyncio.to_thread(store.go_live, self._root, now))
        return self._last

    def _reshare(self, candidate: ServedModels, share: float) -> str:
        if not share:
            self._begin("starting", self._go_over(candidate, store.live_version(self._root)))
            return f"bundle {candidate.version} goes from a canary to every prompt"
        self._go(Plan(time.time_ns(), self._plan.served, candidate, share))
        self._say(f"bundle {candidate.version} has {share:.0%} of the prompts")
        return self._last

    def _references(self, served: ServedModels) -> dict[str, Record]:
        """What a new bundle is held to; by task only if prompts are routed as before.

        One that replaces another on trial is held to the same, or else drafts could get worse little by little.
        """
        known = self._records.references()
        return known if served.router == self._base.router else {ALL: known[ALL]} if ALL in known else {}

    def _observe(self, version: str | None, answer: Answer) -> None:
        candidate, limits = self._plan.candidate, self._config.rollout
        if version == self._plan.served.version == self._base.version:
            self._records.add(answer)
            references = {} if candidate is None else self._references(candidate)
            if references and self._trial is not None and not self._trial.references:
                self._trial = Trial(references)  # till now there was nothing to hold the canary to
        trial = self._trial
        if trial is None or version != self._on_trial.version:
            return
        worse = trial.observe(answer)
        if self._working():
            return
        if worse is not None:
            self._begin("going back", self._go_back(worse))
        elif candidate is not None and trial.answers >= limits.canary_answers:
            self._begin("starting", self._go_over(candidate, store.live_version(self._root)))
        elif candidate is None and trial.answers >= limits.trial_answers:
            self._pass(trial)

    def _pass(self, trial: Trial) -> None:
        self._records, self._trial, self._before = trial.records, None, None
        self._go(self._plan)
        self._prove()
        how = f"has passed its trial of {trial.answers} answers"
        if not trial.references:
            how = f"serves every prompt, not judged: the one before had fewer than {FEWEST} drafted answers"
        self._say(f"bundle {self._plan.served.version} {how}")

    async def _go_back(self, worse: Worse) -> None:
        """Block the bundle on trial, and serve the one before."""
        version, base = str(self._on_trial.version), self._base
        self._say(f"bundle {version} is rolled back: {worse}")
        self._refused.add(version)
        self._keep()
        work = asyncio.to_thread(store.block, self._root, version, str(worse))
        blocking = asyncio.gather(work, return_exceptions=True)  # at once; but who publishes may hold the lock for long
        with suppress(NotStarted):  # answers without drafts are slower and as good
            await start(base, await self._in_use())
        self._trial, self._before = None, None
        self._go(Plan(time.time_ns(), base))
        [error] = await blocking
        how = "is blocked" if error is None else f"could not be blocked ({error})"
        self._say(f"bundle {version} was rolled back and {how}: {worse}")

    def _followed(self) -> bool:
        """Whether every ingress replica follows the plan, and no answer uses another bundle."""
        heard = [heard for _, heard in self._heard.values()]
        return bool(heard) and all(
            one.plan == self._plan.number and one.running <= self._plan.versions for one in heard
        )

    def _prove(self) -> None:
        """Remember in the directory that the bundle that serves has no need of a trial any more."""
        if self._plan.served.version is not None:
            try:
                prove(self._root, self._plan.served.version)
            except OSError as error:  # read-only, as that of an installed package may be: only a trial more some day
                logger.warning("bundle %s is not noted as proven: %s", self._plan.served.version, error)

    def _go(self, plan: Plan) -> None:
        """Follow this plan from now on, and keep it."""
        self._plan = plan
        self._keep()

    def _keep(self) -> None:
        self._unkept = 0
        kept = Kept(self._plan, self._trial, self._before, self._records, frozenset(self._refused))
        try:
            internal_kv._internal_kv_put(self._key, pickle.dumps(kept), overwrite=True)
        except Exception:  # the head of the cluster is lost for now: the next time
            logger.exception("the store of the cluster")

    def _resume(self, kept: Kept) -> None:
        """Go on after this replica was lost."""
        self._plan, self._trial, self._before = kept.plan, kept.trial, kept.before
        self._records, self._refused = kept.records, set(kept.refused)
        self._clean_from = time.monotonic() + FORGOTTEN  # until all ingress replicas were heard again

    def _say(self, what: str) -> None:
        self._last = what
        logger.info("%s", what)
