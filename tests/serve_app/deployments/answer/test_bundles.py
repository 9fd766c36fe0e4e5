"""An ingress replica follows the plan: each answer keeps its bundle, and a canary gets its share."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from ray.exceptions import RayActorError

from core.rollout.trial import JudgedAnswer
from serve_app.config import load_config
from serve_app.deployments.answer.bundles import BundleChoice, IngressCounts
from serve_app.deployments.models.plan import FollowerReport, Plan
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

    async def remote(self, report: FollowerReport) -> Plan | None:
        self.heard.append(report)
        await asyncio.sleep(0)
        if self.lost:
            raise RayActorError
        return None if self.plan is None or report.plan == self.plan.number else self.plan


def following(plan: Plan | None = None) -> tuple[BundleChoice, Rollout]:
    bundles, rollout = BundleChoice(OLD, IngressCounts()), Rollout(plan)
    bundles._rollout = rollout  # type: ignore[assignment]
    return bundles, rollout


async def talk(bundles: BundleChoice) -> None:
    bundles.report()
    for _ in range(5):
        await asyncio.sleep(0)


def chosen(bundles: BundleChoice, count: int, task: str | None = None) -> Counter[str | None]:
    begun = [bundles.begin(task) for _ in range(count)]
    for bundle in begun:
        bundles.end(bundle, [], speculative=False)
    return Counter(bundle.version for bundle in begun)


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
    bundle = bundles.begin(None)
    await talk(bundles)
    await talk(bundles)
    assert (bundles.current.version, rollout.heard[-1].plan) == ("new", 1)
    assert rollout.heard[-1].running == {"old"}
    bundles.end(bundle, [], speculative=False)
    await talk(bundles)
    assert rollout.heard[-1].running == frozenset()
    assert bundle.version == "old"


async def test_what_a_lost_rollout_did_not_hear_is_told_to_the_next() -> None:
    bundles, rollout = following()
    rollout.lost, answer = True, JudgedAnswer("math", 10, 7)
    bundle = bundles.begin(None)
    bundles.end(bundle, [answer], speculative=True)
    await talk(bundles)
    assert bundles.current.version == "old"
    rollout.lost = False
    await talk(bundles)
    await talk(bundles)
    assert [heard.answers for heard in rollout.heard] == [[("old", answer)], [("old", answer)], []]


async def test_an_answer_that_no_draft_proposed_for_is_told_unless_none_was_asked() -> None:
    bundles, rollout = following()
    for speculative in (True, False):
        bundles.end(bundles.begin(None), [], speculative=speculative)
    await talk(bundles)
    assert rollout.heard[-1].answers == [("old", None)]


def test_without_a_directory_of_bundles_there_is_no_rollout_to_ask() -> None:
    config: Any = OLD.config.model_copy(update={"bundle": None})
    BundleChoice(replace(OLD, config=config), IngressCounts()).report()  # no event loop runs, so a task would raise
