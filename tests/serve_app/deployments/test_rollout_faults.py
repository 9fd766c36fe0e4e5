"""What a rollout does when Serve, the disk or the order of events is against it: the service keeps good drafts.

Serve and Ray's store are faked; tests/serve_app/deployments/test_rollout.py has real ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.bundle import store
from core.bundle.trial import ALL, FEWEST, Answer
from core.errors import ConfigError
from serve_app.config import Rollout as Settings
from serve_app.config import load_config
from serve_app.deployments import rollout
from serve_app.deployments.plan import Heard, Plan
from serve_app.deployments.rollout import Rollout
from serve_app.deployments.served_models import ServedModels
from tests.core.bundle.bundles import publish_adapters


class Serve:
    """Applications by name with their states. Those in `fails` fail, those in `waits` never run."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.fails: set[str] = set()
        self.waits: set[str] = set()
        self.deleted: list[str] = []

    def status(self) -> Any:
        states = {name: SimpleNamespace(status=state, message="no room") for name, state in self.states.items()}
        return SimpleNamespace(applications=states)

    def run_many(self, targets: Sequence[Any], **_: object) -> None:
        for one in targets:
            state = "DEPLOY_FAILED" if one.name in self.fails else "DEPLOYING" if one.name in self.waits else "RUNNING"
            self.states[one.name] = state

    def delete(self, name: str) -> None:
        del self.states[name]
        self.deleted.append(name)


class Place:
    """A directory of three bundles, the first of them live, and the rollout of a service that serves it."""

    def __init__(self, directory: Path, serve: Serve, **settings: object) -> None:
        self.root, self.serve = directory / "root", serve
        self.first, self.second, self.third = (
            publish_adapters(self.root, directory, number, live=number == 1).version for number in (1, 2, 3)
        )
        self.settings = Settings(follow=False).model_copy(update=settings)
        serve.run_many([SimpleNamespace(name=name) for name in self.models(self.first).applications])
        self.rollout = Rollout(self.models(self.first), "deployed")

    def models(self, version: str) -> ServedModels:
        config = load_config("family").model_copy(update={"bundle": str(self.root), "rollout": self.settings})
        return ServedModels(config, {"general": None, "math": f"/parts/{version}"}, router="/parts/r", version=version)

    async def told(self, version: str, count: int, accepted: int = 8) -> Plan | None:
        """An ingress replica tells of answers, of 10 judged tokens each."""
        answers: list[tuple[str | None, Answer]] = [(version, Answer("math", 10, accepted)) for _ in range(count)]
        return await self.rollout.follow(Heard("one", 0, frozenset(), answers))

    async def settled(self) -> None:
        if self.rollout._work is not None:
            await asyncio.wait([self.rollout._work])

    def serving(self) -> tuple[str | None, str]:
        report = self.rollout.report()
        return report.version, report.state


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Place]:
    kept: dict[bytes, bytes] = {}
    fake = SimpleNamespace(
        _internal_kv_get=kept.get, _internal_kv_put=lambda key, value, **_: kept.update({key: value})
    )
    monkeypatch.setattr(rollout, "internal_kv", fake)
    monkeypatch.setattr(
        rollout, "bundle_targets", lambda served: [SimpleNamespace(name=name) for name in sorted(served.applications)]
    )
    serve = Serve()
    monkeypatch.setattr(rollout, "serve", serve)

    def made(**settings: object) -> Place:
        place = Place(tmp_path, serve, **settings)
        monkeypatch.setattr(rollout, "with_version", lambda _, version: place.models(version))
        return place

    return made


async def on_trial(place: Place, version: str) -> None:
    """With a reference of the bundle before."""
    await place.told(place.first, FEWEST * 2)
    await place.rollout.deploy(version, 0.0, force=False)
    await place.settled()
    assert place.serving() == (version, "trial")


async def test_answers_that_end_while_the_bundle_is_made_live_count_for_the_bundle_that_they_had(
    make: Callable[..., Place],
) -> None:
    place = make()
    await on_trial(place, place.second)
    await place.told(place.first, 100, accepted=0)
    assert place.serving() == (place.second, "trial")
    assert ALL not in place.rollout.report().records
    assert store.live_version(place.root) == place.second


async def test_a_worse_bundle_goes_even_if_the_directory_cannot_be_written(
    make: Callable[..., Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make()
    await on_trial(place, place.second)

    def refused(*_: object) -> None:
        raise OSError("read-only file system")

    monkeypatch.setattr(store, "block", refused)
    await place.told(place.second, 200, accepted=1)
    await place.settled()
    assert place.serving() == (place.first, "steady")
    assert "read-only" in place.rollout.report().last


async def test_pools_that_fail_leave_the_service_as_it_is_and_are_taken_down(make: Callable[..., Place]) -> None:
    place = make()
    bad = place.models(place.second).pool("math")
    place.serve.fails.add(bad)
    await place.rollout.deploy(place.second, 0.0, force=False)
    await place.settled()
    assert place.serving() == (place.first, "steady")
    assert "no room" in place.rollout.report().last
    await place.rollout.follow(Heard("one", place.rollout._plan.number, frozenset(), []))
    await place.rollout.check_health()
    assert place.rollout._cleaning is not None
    await place.rollout._cleaning
    assert place.serve.deleted == [bad]


async def test_pools_that_never_run_are_given_up(make: Callable[..., Place], monkeypatch: pytest.MonkeyPatch) -> None:
    place = make()
    monkeypatch.setattr(rollout, "START_SECONDS", 0.0)
    place.serve.waits.add(place.models(place.second).pool("math"))
    await place.rollout.deploy(place.second, 0.0, force=False)
    with pytest.raises(ConfigError, match="another bundle"):
        await place.rollout.deploy(place.third, 0.0, force=False)
    await place.settled()
    assert place.serving() == (place.first, "steady")
    assert "not running after" in place.rollout.report().last


async def test_a_bundle_that_replaces_one_on_trial_is_held_to_the_same(make: Callable[..., Place]) -> None:
    place = make()
    await on_trial(place, place.second)
    await place.told(place.second, FEWEST * 2, accepted=9)
    await place.rollout.deploy(place.third, 0.0, force=False)
    await place.settled()
    assert place.rollout.report().references[ALL].mean == pytest.approx(0.8)
    await place.told(place.third, 400, accepted=1)
    await place.settled()
    assert place.serving() == (place.first, "steady")


async def test_a_canary_waits_for_a_trial_and_can_be_ended(make: Callable[..., Place]) -> None:
    place = make(trial_answers=100)
    await on_trial(place, place.second)
    with pytest.raises(ConfigError, match="on trial"):
        await place.rollout.deploy(place.third, 0.1, force=False)
    await place.told(place.second, 100)
    assert place.serving() == (place.second, "steady")
    await place.rollout.deploy(place.third, 0.1, force=False)
    await place.settled()
    assert place.serving() == (place.second, "canary")
    await place.rollout.deploy(place.second, 0.0, force=False)
    assert place.serving() == (place.second, "steady")


async def test_a_rollout_that_was_lost_goes_on_with_plan_and_reference(make: Callable[..., Place]) -> None:
    place = make()
    await on_trial(place, place.second)
    place.rollout = Rollout(place.models(place.first), "deployed")
    assert place.serving() == (place.second, "trial")
    await place.told(place.second, 400, accepted=1)
    await place.settled()
    assert place.serving() == (place.first, "steady")
    assert set(store.blocked(place.root)) == {place.second}


async def test_what_has_served_before_is_gone_back_to_without_a_trial(make: Callable[..., Place]) -> None:
    place = make()
    await on_trial(place, place.second)
    await place.rollout.deploy(place.first, 0.0, force=False)
    await place.settled()
    assert place.serving() == (place.first, "steady")
    assert store.live_version(place.root) == place.first
