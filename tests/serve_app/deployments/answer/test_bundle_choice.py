"""An ingress replica follows the plan: each answer keeps its bundle, and a canary gets its share."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from ray.exceptions import RayActorError

from core.generation import Run
from core.rollout.trial import JudgedAnswer
from serve_app.config import load_config
from serve_app.deployments.answer.bundle_choice import BundleChoice
from serve_app.deployments.answer.serving import Tallies
from serve_app.deployments.models.plan import FollowerReport, Judged, Plan
from serve_app.deployments.models.served_models import ServedModels

OLD = ServedModels(load_config("family"), drafts={"general": None, "math": "/parts/aa"}, version="old")
NEW = replace(OLD, drafts={"general": None, "code": "/parts/bb"}, version="new")


class Rollout:
    """One that plans, or is lost; `heard` has what it was told."""

    def __init__(self, plan: Plan | None = None) -> None:
        self.plan = plan
        self.lost = False
        self.heard: list[FollowerReport] = []
        self.follow = self

    async def remote(self, heard: FollowerReport) -> Plan | None:
        self.heard.append(heard)
        await asyncio.sleep(0)
        if self.lost:
            raise RayActorError
        return None if self.plan is None or heard.plan == self.plan.number else self.plan


def following(plan: Plan | None = None) -> tuple[BundleChoice, Rollout]:
    bundles, rollout = BundleChoice(OLD, Tallies()), Rollout(plan)
    bundles._rollout = rollout  # type: ignore[assignment]
    return bundles, rollout


async def talk(bundles: BundleChoice) -> None:
    bundles.talk()
    for _ in range(5):
        await asyncio.sleep(0)


def chosen(bundles: BundleChoice, count: int, task: str | None = None) -> Counter[str | None]:
    return Counter(bundles.choose(task).version for _ in range(count))


@pytest.mark.parametrize("share", [0.1, 0.25, 0.9])
async def test_a_canary_gets_exactly_its_share(share: float) -> None:
    bundles, _ = following(Plan(1, OLD, NEW, share))
    assert chosen(bundles, 40) == {"old": 40}
    await talk(bundles)
    assert chosen(bundles, 200) == {"old": round(200 * (1 - share)), "new": round(200 * share)}


async def test_a_named_task_is_served_by_a_bundle_that_has_it() -> None:
    bundles, _ = following(Plan(1, OLD, NEW, 0.5))
    await talk(bundles)
    assert chosen(bundles, 10, "math") == {"old": 10}
    assert bundles.current.tasks == ("general", "math")


async def test_an_answer_keeps_its_bundle_and_what_nothing_uses_is_forgotten() -> None:
    bundles, rollout = following(Plan(1, NEW))
    serving = bundles.choose(None)
    bundles.begin(serving)
    await talk(bundles)
    await talk(bundles)
    assert (bundles.current.version, rollout.heard[-1].plan) == ("new", 1)
    assert rollout.heard[-1].running == {"old"}
    bundles.end(serving, [], speculative=False)
    await talk(bundles)
    assert rollout.heard[-1].running == frozenset()
    assert serving.version == "old"


async def test_what_a_lost_rollout_did_not_hear_is_told_to_the_next() -> None:
    bundles, rollout = following()
    rollout.lost, answer = True, JudgedAnswer("math", 10, 7)
    serving = bundles.choose(None)
    bundles.begin(serving)
    bundles.end(serving, [answer], speculative=True)
    await talk(bundles)
    assert bundles.current.version == "old"
    rollout.lost = False
    await talk(bundles)
    await talk(bundles)
    assert [heard.answers for heard in rollout.heard] == [[("old", answer)], [("old", answer)], []]


async def test_an_answer_that_no_draft_proposed_for_is_told_unless_none_was_asked() -> None:
    bundles, rollout = following()
    for speculative in (True, False):
        serving = bundles.choose(None)
        bundles.begin(serving)
        bundles.end(serving, [], speculative=speculative)
    await talk(bundles)
    assert rollout.heard[-1].answers == [("old", None)]


def test_a_draft_is_judged_up_to_the_first_rejected_token_whoever_drafted() -> None:
    judged = Judged()
    for run in (
        Run((1, 2, 3), proposed=4, accepted=2),
        Run((4, 5), proposed=1, accepted=1),
        Run((6,), proposed=3, accepted=0, source="own_text"),
        Run((7,)),
    ):
        judged.take(0, run)
    judged.take(1, Run((1,), proposed=2, accepted=0))
    judged.take(2, Run((1,)))
    prior: dict[str, float] = {"math": 0.8, "general": 0.2}
    assert judged.answers(prior) == [JudgedAnswer("math", 4, 3), JudgedAnswer("math", 1, 0)]


def test_without_a_directory_of_bundles_there_is_no_rollout_to_ask() -> None:
    config: Any = OLD.config.model_copy(update={"bundle": None})
    BundleChoice(replace(OLD, config=config), Tallies()).talk()  # no event loop runs, so a task would raise
