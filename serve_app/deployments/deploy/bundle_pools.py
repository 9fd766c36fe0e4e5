"""Starts the pools and the router of a bundle on the Serve that runs, and ends those that no bundle uses any more."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Set

from ray import serve
from ray.serve.schema import ApplicationStatus, ApplicationStatusOverview

from core.errors import TaskSpecError
from serve_app.deployments.deploy.bundle_applications import bundle_targets
from serve_app.deployments.deploy.failures import failure_of
from serve_app.deployments.models.served_models import ServedModels

START_SECONDS = 900.0  # for the pools of a bundle; large models take minutes
POLL_SECONDS = 0.2
GONE = (ApplicationStatus.DEPLOY_FAILED, ApplicationStatus.DELETING)

logger = logging.getLogger(__name__)


class PoolsNotRunning(TaskSpecError):
    """The pools of a bundle did not start."""


async def start(served: ServedModels, in_use: Set[str]) -> None:
    """Start what is not there or has failed, and wait until all of it runs. Raises `PoolsNotRunning`.

    What is there, though not well, is left alone: to deploy it again would restart all its replicas, and undo their
    number if `taskspec scale` has set it. Those `in_use` are not waited for, either: answers go on without them now.
    """
    states = (await asyncio.to_thread(serve.status)).applications
    targets = bundle_targets(served)
    missing = [target for target in targets if target.name not in states or states[target.name].status in GONE]
    awaited = {target.name for target in targets} - (in_use - {target.name for target in missing})
    if missing:
        await asyncio.to_thread(serve.run_many, missing, wait_for_applications_running=False)
    deadline = time.monotonic() + START_SECONDS
    while waiting := awaited - _running(states := (await asyncio.to_thread(serve.status)).applications):
        for name in sorted(waiting & states.keys()):
            if states[name].status == ApplicationStatus.DEPLOY_FAILED:
                raise PoolsNotRunning(f"{name}: {failure_of(states[name])}")
        if time.monotonic() > deadline:
            names = ", ".join(sorted(waiting))
            raise PoolsNotRunning(
                f"{names}: not running after {START_SECONDS:.0f} s; `serve status` says what is missing"
            )
        await asyncio.sleep(POLL_SECONDS)


async def end_all_but(in_use: Set[str]) -> None:
    """Take down the pools and routers that are not among these."""
    for name, application in (await asyncio.to_thread(serve.status)).applications.items():
        ours = name.startswith(("draft-", "router@")) and name not in in_use
        if ours and application.status != ApplicationStatus.DELETING:
            try:
                await asyncio.to_thread(serve.delete, name)
            except Exception:  # the controller was lost, or it drains for long: the next time
                logger.exception("ending %s", name)


def _running(applications: Mapping[str, ApplicationStatusOverview]) -> set[str]:
    return {name for name, state in applications.items() if state.status == ApplicationStatus.RUNNING}
