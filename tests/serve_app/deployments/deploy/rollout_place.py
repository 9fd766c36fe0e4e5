"""A rollout whose Serve is faked, with the directory of bundles that it follows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from core.rollout.trial import FEWEST, JudgedAnswer
from serve_app.config import RolloutSettings, load_config
from serve_app.deployments.deploy.rollout import Rollout
from serve_app.deployments.models.plan import FollowerReport, Plan
from serve_app.deployments.models.served_models import ServedModels
from tests.core.bundle.bundles import publish_adapters

PATIENCE = 60.0  # seconds for what a rollout does with a faked Serve


class Serve:
    """Applications by name with the states that they come to. Those in `fails` fail.

    Those in `waits` are seen to deploy. What is taken out of it runs from then on, even if a rollout's late thread
    deploys it only afterwards: nothing that a test has said is overwritten.
    """

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.fails: set[str] = set()
        self.waits: set[str] = set()
        self.deployed: list[str] = []
        self.deleted: list[str] = []

    def status(self) -> Any:
        seen = {name: "DEPLOYING" if name in self.waits else state for name, state in self.states.copy().items()}
        applications = {
            name: SimpleNamespace(status=state, message="no room", deployments={}) for name, state in seen.items()
        }
        return SimpleNamespace(applications=applications)

    def run_many(self, targets: Sequence[Any], **_: object) -> None:
        for one in targets:
            self.deployed.append(one.name)
            self.states[one.name] = "DEPLOY_FAILED" if one.name in self.fails else "RUNNING"

    def delete(self, name: str) -> None:
        del self.states[name]
        self.deleted.append(name)


class Place:
    """A directory of three bundles, the first of them live, and the rollout of a service that serves it.

    Each has a draft for math; that for the other prompts and the router are the same.
    """

    def __init__(self, directory: Path, serve: Serve, **settings: object) -> None:
        self.root, self.serve = directory / "root", serve
        self.first, self.second, self.third = (
            publish_adapters(self.root, directory, number, live=number == 1).version for number in (1, 2, 3)
        )
        self.settings = RolloutSettings(follow=False).model_copy(update=settings)
        serve.run_many([SimpleNamespace(name=name) for name in self.models(self.first).applications])
        self.rollout = Rollout(self.models(self.first), "deployed")

    def restart(self, version: str, deployment: str) -> None:
        """The service is deployed again, or its rollout alone is lost if the deployment is the same."""
        self.rollout = Rollout(self.models(version), deployment)

    def models(self, version: str) -> ServedModels:
        config = load_config("family").model_copy(update={"bundle": str(self.root), "rollout": self.settings})
        return ServedModels(config, {"general": None, "math": f"/parts/{version}"}, router="/parts/r", version=version)

    async def told(self, version: str, count: int, accepted: int | None = 8) -> Plan | None:
        """An ingress replica tells of answers, of 10 judged tokens each, or of none if no draft proposed any."""
        answer = None if accepted is None else JudgedAnswer("math", 10, accepted)
        answers: list[tuple[str | None, JudgedAnswer | None]] = [(version, answer)] * count
        return await self.rollout.follow(FollowerReport("one", 0, frozenset(), answers))

    async def follows(self) -> None:
        """The one ingress replica follows the plan, and runs no answer."""
        plan = await self.told(self.first, 0)
        assert plan is not None
        await self.rollout.follow(FollowerReport("one", plan.number, frozenset(), []))

    async def look(self) -> None:
        """The rollout looks at the directory, and does what follows from it."""
        await self.rollout.check_health()
        await self.settled()

    async def deploy(self, version: str, share: float = 0.0, *, force: bool = False) -> None:
        await self.rollout.deploy(version, share, force)
        await self.settled()

    async def settled(self) -> None:
        """What the rollout does has come to its end; it does so within `PATIENCE`."""
        await self.comes(lambda: self.rollout.report().state not in ("starting", "going back"))

    async def comes(self, holds: Callable[[], bool]) -> None:
        """It holds within `PATIENCE`."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, f"{self.rollout.report()}; Serve has {self.serve.status().applications}"
            await asyncio.sleep(0.001)

    def serving(self) -> tuple[str | None, str]:
        report = self.rollout.report()
        return report.version, report.state


async def on_trial(place: Place, version: str) -> None:
    """With a reference of the bundle before."""
    await place.told(place.first, FEWEST * 2)
    await place.rollout.deploy(version, 0.0, force=False)
    await place.settled()
    assert place.serving() == (version, "trial")
