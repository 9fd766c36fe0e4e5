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
from core.bundle.proven import is_proven
from core.bundle.trial import ALL, FEWEST, Answer
from core.errors import ConfigError
from serve_app.config import Rollout as Settings
from serve_app.config import load_config
from serve_app.deployments import rollout, running_applications
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
        self.deployed: list[str] = []
        self.deleted: list[str] = []

    def status(self) -> Any:
        states = {name: SimpleNamespace(status=state, message="no room") for name, state in self.states.items()}
        return SimpleNamespace(applications=states)

    def run_many(self, targets: Sequence[Any], **_: object) -> None:
        for one in targets:
            self.deployed.append(one.name)
            state = "DEPLOY_FAILED" if one.name in self.fails else "DEPLOYING" if one.name in self.waits else "RUNNING"
            self.states[one.name] = state

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
        self.settings = Settings(follow=False).model_copy(update=settings)
        serve.run_many([SimpleNamespace(name=name) for name in self.models(self.first).applications])
        self.rollout = Rollout(self.models(self.first), "deployed")

    def restart(self, version: str, deployment: str) -> None:
        """The service is deployed again, or its rollout alone is lost if the deployment is the same."""
        self.rollout = Rollout(self.models(version), deployment)

    def models(self, version: str) -> ServedModels:
        config = load_config("family").model_copy(update={"bundle": str(self.root), "rollout": self.settings})
        return ServedModels(config, {"general": None, "math": f"/parts/{version}"}, router="/parts/r", version=version)

    async def told(self, version: str, count: int, accepted: int = 8) -> Plan | None:
        """An ingress replica tells of answers, of 10 judged tokens each."""
        answers: list[tuple[str | None, Answer]] = [(version, Answer("math", 10, accepted)) for _ in range(count)]
        return await self.rollout.follow(Heard("one", 0, frozenset(), answers))

    async def look(self) -> None:
        """The rollout looks at the directory, and does what follows from it."""
        await self.rollout.check_health()
        await self.settled()

    async def deploy(self, version: str, share: float = 0.0, *, force: bool = False) -> None:
        await self.rollout.deploy(version, share, force)
        await self.settled()

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
        running_applications,
        "bundle_targets",
        lambda served: [SimpleNamespace(name=name) for name in sorted(served.applications)],
    )
    serve = Serve()
    monkeypatch.setattr(running_applications, "serve", serve)
    monkeypatch.setattr(running_applications, "POLL_SECONDS", 0.0)

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
    assert "could not be blocked (read-only" in place.rollout.report().last


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
    monkeypatch.setattr(running_applications, "START_SECONDS", 0.0)
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
    place.restart(place.first, "deployed")
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


async def test_what_served_before_the_service_was_deployed_again_is_gone_back_to_without_a_trial(
    make: Callable[..., Place],
) -> None:
    place = make(trial_answers=100)
    await on_trial(place, place.second)
    assert not is_proven(place.root, place.second)
    await place.told(place.second, 100)
    assert place.serving() == (place.second, "steady")
    for version in (place.first, place.second):
        place.restart(place.third, f"again, before {version}")
        await place.deploy(version)
        assert place.serving() == (version, "steady")


async def test_when_another_service_blocks_a_bundle_the_one_before_comes_back_without_a_trial_or_canary(
    make: Callable[..., Place],
) -> None:
    place = make(follow=True, every_s=0.0, canary=0.1)
    store.go_live(place.root, place.second)
    place.restart(place.second, "again")
    await place.told(place.second, FEWEST * 2, accepted=9)
    store.block(place.root, place.second, "worse elsewhere")
    await place.look()
    assert place.serving() == (place.first, "steady")
    await place.told(place.first, 400, accepted=1)
    await place.settled()
    assert (place.serving(), set(store.blocked(place.root))) == ((place.first, "steady"), {place.second})


async def test_a_canary_that_was_ended_is_not_taken_up_again(make: Callable[..., Place]) -> None:
    place = make(follow=True, every_s=0.0, canary=0.1)
    store.go_live(place.root, place.second)
    await place.look()
    assert place.serving() == (place.first, "canary")
    await place.deploy(place.first)
    assert store.live_version(place.root) == place.first
    store.go_live(place.root, place.second)  # even if it is live all the same, and the rollout was lost
    place.restart(place.first, "deployed")
    await place.look()
    assert place.serving() == (place.first, "steady")


async def test_a_worse_bundle_is_blocked_while_the_pools_of_the_one_before_are_starting(
    make: Callable[..., Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, blocked, block = make(), asyncio.Event(), store.block
    loop = asyncio.get_running_loop()

    def told(*which: Any) -> None:
        block(*which)
        loop.call_soon_threadsafe(blocked.set)

    monkeypatch.setattr(store, "block", told)
    await on_trial(place, place.second)
    pool = place.models(place.first).pool("math")
    del place.serve.states[pool]
    place.serve.waits.add(pool)
    await place.told(place.second, 200, accepted=1)
    async with asyncio.timeout(60):
        await blocked.wait()
    assert (place.serving(), set(store.blocked(place.root))) == ((place.second, "going back"), {place.second})
    place.serve.states[pool] = "RUNNING"
    await place.settled()
    assert place.serving() == (place.first, "steady")
    assert "is blocked" in place.rollout.report().last


async def test_a_bundle_without_a_reference_serves_and_is_said_not_to_be_judged(make: Callable[..., Place]) -> None:
    place = make(trial_answers=100)
    await place.told(place.first, FEWEST - 1)
    await place.deploy(place.second)
    await place.told(place.second, 100, accepted=1)
    assert place.serving() == (place.second, "steady")
    assert "not judged" in place.rollout.report().last


async def test_a_lost_rollout_still_has_its_references_and_the_answers_of_a_trial(make: Callable[..., Place]) -> None:
    place = make()
    await place.told(place.first, FEWEST * 2)
    place.restart(place.first, "deployed")
    await place.deploy(place.second)
    await place.told(place.second, FEWEST)
    place.restart(place.first, "deployed")
    report = place.rollout.report()
    assert (report.state, report.answers, report.references[ALL].answers) == ("trial", FEWEST, FEWEST * 2)


async def test_a_canary_that_came_before_there_was_a_reference_is_judged_once_there_is_one(
    make: Callable[..., Place],
) -> None:
    place = make()
    await place.deploy(place.second, 0.1)
    await place.told(place.second, 50, accepted=1)
    assert place.rollout.report().references == {}
    await place.told(place.first, FEWEST)
    assert place.rollout.report().references[ALL].answers == FEWEST
    await place.told(place.second, 100, accepted=1)
    await place.settled()
    assert (place.serving(), set(store.blocked(place.root))) == ((place.first, "steady"), {place.second})


@pytest.mark.parametrize("state", ["DEPLOYING", "UNHEALTHY"])
async def test_a_pool_of_both_bundles_that_is_unwell_is_not_deployed_again(
    make: Callable[..., Place], monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    place = make()
    monkeypatch.setattr(running_applications, "START_SECONDS", 0.0)  # nor waited for
    shared, own = (place.models(place.second).pool(task) for task in ("general", "math"))
    assert shared in place.models(place.first).applications
    place.serve.states[shared] = state
    place.serve.deployed.clear()
    await place.deploy(place.second)
    assert place.serving() == (place.second, "trial")
    assert (place.serve.deployed, place.serve.states[shared]) == ([own], state)


@pytest.mark.parametrize("state", ["DEPLOY_FAILED", "DELETING"])
async def test_a_pool_that_failed_or_is_ending_is_deployed_again(make: Callable[..., Place], state: str) -> None:
    place = make()
    own = place.models(place.second).pool("math")
    place.serve.states[own] = state
    place.serve.deployed.clear()
    await place.deploy(place.second)
    assert (place.serve.deployed, place.serve.states[own]) == ([own], "RUNNING")


@pytest.mark.parametrize("canary", [0.0, 0.1])
async def test_a_newer_live_bundle_takes_the_place_of_one_whose_drafts_never_propose(
    make: Callable[..., Place], canary: float
) -> None:
    place = make(follow=True, every_s=0.0, canary=canary)
    await place.told(place.first, FEWEST * 2)
    for version in (place.second, place.third):
        store.go_live(place.root, version)
        await place.look()
        assert version in (place.rollout.report().version, place.rollout.report().candidate)
    assert not is_proven(place.root, place.second)
    await place.told(place.third, 400, accepted=1)
    await place.settled()
    assert (place.serving(), set(store.blocked(place.root))) == ((place.first, "steady"), {place.third})


async def test_a_canary_in_place_of_a_bundle_on_trial_has_the_one_before_beside_it(make: Callable[..., Place]) -> None:
    place = make(follow=True, every_s=0.0, canary=0.1)
    store.go_live(place.root, place.second)
    await place.look()
    await place.deploy(place.second)
    assert place.serving() == (place.second, "trial")
    del place.serve.states[place.models(place.first).pool("math")]  # as no answer uses it
    store.go_live(place.root, place.third)
    await place.look()
    report = place.rollout.report()
    assert (report.version, report.candidate, report.state) == (place.first, place.third, "canary")
    assert place.serve.states[place.models(place.first).pool("math")] == "RUNNING"


async def test_a_cluster_that_keeps_nothing_for_now_loses_no_answers(
    make: Callable[..., Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make()

    def lost(*_: object, **__: object) -> None:
        raise ConnectionError("no head")

    monkeypatch.setattr(rollout.internal_kv, "_internal_kv_put", lost)
    await place.told(place.first, FEWEST * 2)
    await place.deploy(place.second)
    assert (place.serving(), place.rollout.report().references[ALL].answers) == ((place.second, "trial"), FEWEST * 2)


async def test_the_prompts_of_a_service_without_a_bundle_can_be_kept_from_a_canary(make: Callable[..., Place]) -> None:
    place = make()
    place.rollout = Rollout(ServedModels(place.models(place.first).config), "without")
    await place.deploy(place.second, 0.1)
    assert place.serving() == (None, "canary")
    await place.deploy("none")
    assert place.serving() == (None, "steady")
    assert await place.rollout.deploy("none", 0.0, force=False) == "bundle none serves already"


async def test_a_directory_that_takes_no_notes_serves_all_the_same(make: Callable[..., Place]) -> None:
    place = make()
    await on_trial(place, place.second)
    (place.root / "proven" / place.first).unlink()
    (place.root / "proven").rmdir()
    (place.root / "proven").write_bytes(b"")
    await place.deploy(place.first)
    assert place.serving() == (place.first, "steady")
    place.restart(place.first, "again")
    assert place.serving() == (place.first, "steady")
