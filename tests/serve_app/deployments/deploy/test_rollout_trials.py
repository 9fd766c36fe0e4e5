"""Which bundles a rollout tries, what they are held to, and what is gone back to.

Serve and Ray's store are faked; tests/serve_app/deployments/deploy/test_rollout.py has real ones.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from core.bundle import store
from core.bundle.proven import is_proven
from core.errors import ConfigError
from core.rollout.trial import ALL, FEWEST
from serve_app.deployments.deploy.rollout import Rollout
from serve_app.deployments.models.served_models import ServedModels
from tests.serve_app.deployments.deploy.rollout_place import Place, on_trial


async def test_answers_that_end_while_the_bundle_is_made_live_count_for_the_bundle_that_they_had(
    make: Callable[..., Place],
) -> None:
    place = make()
    await on_trial(place, place.second)
    await place.told(place.first, 100, accepted=0)
    assert place.serving() == (place.second, "trial")
    assert ALL not in place.rollout.report().records
    assert store.live_version(place.root) == place.second


async def test_a_bundle_that_replaces_one_on_trial_is_held_to_the_same(make: Callable[..., Place]) -> None:
    place = make()
    await on_trial(place, place.second)
    await place.told(place.second, FEWEST * 2, accepted=9)
    await place.rollout.deploy(place.third, 0.0, force=False)
    await place.settled()
    report = place.rollout.report()
    assert report.references[ALL].mean == pytest.approx(0.8)
    assert (report.money[ALL], report.ruin is not None) == (pytest.approx(1.0), True)
    await place.told(place.third, 2, accepted=1)
    staked = place.rollout.report()
    assert 1.0 < staked.money[ALL] < (staked.ruin or 0.0)
    await place.told(place.third, 400, accepted=1)
    await place.settled()
    assert place.serving() == (place.first, "steady")
    assert (place.rollout.report().money, place.rollout.report().ruin) == ({}, None)


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


async def test_a_bundle_without_a_reference_serves_and_is_said_not_to_be_judged(make: Callable[..., Place]) -> None:
    place = make(trial_answers=100)
    await place.told(place.first, FEWEST - 1)
    await place.deploy(place.second)
    await place.told(place.second, 100, accepted=1)
    assert place.serving() == (place.second, "steady")
    assert "not judged" in place.rollout.report().last


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


async def test_the_prompts_of_a_service_without_a_bundle_can_be_kept_from_a_canary(make: Callable[..., Place]) -> None:
    place = make()
    place.rollout = Rollout(ServedModels(place.models(place.first).config), "without")
    await place.deploy(place.second, 0.1)
    assert place.serving() == (None, "canary")
    await place.deploy("none")
    assert place.serving() == (None, "steady")
    assert await place.rollout.deploy("none", 0.0, force=False) == "bundle none serves already"
