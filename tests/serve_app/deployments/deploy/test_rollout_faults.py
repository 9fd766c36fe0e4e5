"""What a rollout does when Serve, the disk or Ray's store is against it: the service keeps good drafts.

Serve and Ray's store are faked; tests/serve_app/deployments/deploy/test_rollout.py has real ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest

from core.bundle import store
from core.errors import ConfigError
from core.rollout.trial import ALL, FEWEST
from serve_app.deployments.deploy import bundle_pools, rollout
from tests.core.bundle.bundles import content
from tests.serve_app.deployments.deploy.rollout_place import PATIENCE, Place, on_trial


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
    await place.follows()
    await place.rollout.check_health()
    await place.comes(lambda: bool(place.serve.deleted))
    assert place.serve.deleted == [bad]


async def test_a_bundle_that_is_not_there_is_refused_by_name_with_those_that_are(make: Callable[..., Place]) -> None:
    place = make()
    before = place.rollout.report()
    with pytest.raises(ConfigError, match=f"^no bundle {'0' * 16} can be read: .*there are: ") as refused:
        await place.rollout.deploy("0" * 16, 0.0, force=False)
    assert all(version in str(refused.value) for version in (place.first, place.second, place.third))
    assert place.rollout.report() == before


async def test_pools_that_never_run_are_given_up(make: Callable[..., Place], monkeypatch: pytest.MonkeyPatch) -> None:
    place = make()
    monkeypatch.setattr(bundle_pools, "START_SECONDS", 0.0)
    place.serve.waits.add(place.models(place.second).pool("math"))
    await place.rollout.deploy(place.second, 0.0, force=False)
    with pytest.raises(ConfigError, match="another bundle"):
        await place.rollout.deploy(place.third, 0.0, force=False)
    await place.settled()
    assert place.serving() == (place.first, "steady")
    assert "not running after" in place.rollout.report().last


async def test_a_rollout_that_was_lost_goes_on_with_plan_and_reference(make: Callable[..., Place]) -> None:
    place = make()
    await on_trial(place, place.second)
    place.restart(place.first, "deployed")
    assert place.serving() == (place.second, "trial")
    await place.told(place.second, 400, accepted=1)
    await place.settled()
    assert place.serving() == (place.first, "steady")
    assert set(store.blocked(place.root)) == {place.second}


@pytest.mark.parametrize("late", [False, True])
async def test_a_worse_bundle_is_blocked_while_the_pools_of_the_one_before_are_starting(
    make: Callable[..., Place], monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """The pool runs after it was deployed, or by the time that a late thread deploys it."""
    place, blocked, deployed = make(), Event(), Event()
    monkeypatch.setattr(store, "block", then(store.block, blocked.set))
    await on_trial(place, place.second)
    pool = place.models(place.first).pool("math")
    del place.serve.states[pool]
    place.serve.waits.add(pool)
    runs, run_many = Event(), then(place.serve.run_many, deployed.set)
    monkeypatch.setattr(place.serve, "run_many", after(runs, run_many) if late else run_many)
    await place.told(place.second, 200, accepted=1)
    assert await asyncio.to_thread(blocked.wait, PATIENCE)
    assert late or await asyncio.to_thread(deployed.wait, PATIENCE)
    assert (place.serving(), set(store.blocked(place.root))) == ((place.second, "going back"), {place.second})
    place.serve.waits.remove(pool)
    runs.set()
    await place.settled()
    assert place.serving() == (place.first, "steady")
    assert "is blocked" in place.rollout.report().last


def then(work: Callable[..., None], done: Callable[[], None]) -> Callable[..., None]:
    """The same work, and then this."""

    def both(*which: Any, **how: Any) -> None:
        work(*which, **how)
        done()

    return both


def after(event: Event, work: Callable[..., None]) -> Callable[..., None]:
    """The same work, not before the event."""

    def waited(*which: Any, **how: Any) -> None:
        assert event.wait(PATIENCE)
        work(*which, **how)

    return waited


async def test_a_lost_rollout_still_has_its_references_and_the_answers_of_a_trial(make: Callable[..., Place]) -> None:
    place = make()
    await place.told(place.first, FEWEST * 2)
    place.restart(place.first, "deployed")
    await place.deploy(place.second)
    await place.told(place.second, FEWEST)
    place.restart(place.first, "deployed")
    report = place.rollout.report()
    assert (report.state, report.answers, report.references[ALL].answers) == ("trial", FEWEST, FEWEST * 2)


@pytest.mark.parametrize("state", ["DEPLOYING", "UNHEALTHY"])
async def test_a_pool_of_both_bundles_that_is_unwell_is_not_deployed_again(
    make: Callable[..., Place], monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    place = make()
    monkeypatch.setattr(bundle_pools, "START_SECONDS", 0.0)  # nor waited for
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


async def test_a_cluster_that_keeps_nothing_for_now_loses_no_answers(
    make: Callable[..., Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make()

    def lost(*_: object, **__: object) -> None:
        raise ConnectionError("no head")

    monkeypatch.setattr(rollout, "store_value", lost)
    await place.told(place.first, FEWEST * 2)
    await place.deploy(place.second)
    assert (place.serving(), place.rollout.report().references[ALL].answers) == ((place.second, "trial"), FEWEST * 2)


async def test_a_service_of_the_shipped_bundle_writes_nothing_into_the_package(
    make: Callable[..., Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make()
    (place.root / "proven" / place.first).unlink()
    monkeypatch.setattr(rollout, "BUNDLE_DIR", place.root)
    before = content(place.root)
    place.restart(place.first, "again")
    await place.look()
    assert (place.serving(), content(place.root)) == ((place.first, "steady"), before)


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
