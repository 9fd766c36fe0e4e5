"""Debian's Prometheus scrapes a service under load, as operating.md says, and answers every query of the dashboard."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from core.draft_key import GENERAL
from tests.eventually import eventually
from tests.serve_app.monitoring.board import Panel, Query, choices, panels
from tests.serve_app.monitoring.prometheus import MISSING, Prometheus
from tests.serve_app.monitoring.stage import ENGLISH, PYTHON, stage

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.soak,  # two minutes and a half
    pytest.mark.skipif(bool(MISSING), reason=f"needs {MISSING}"),
]

PATIENCE = 180.0  # seconds: replicas report every ten, and what drafts do is replayed now and then
OF_TROUBLE = "ray_taskspec_proxy_refusals_total"  # the proxies of a well service refuse nothing, and then tell nothing


class Scraped(NamedTuple):
    """A Prometheus that scrapes a service, the job of each way to do so, and when all must have been told."""

    server: Prometheus
    jobs: tuple[str, ...]
    deadline: float


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    with stage(tmp_path_factory.mktemp("scraped")) as running, running.traffic("english", "python", "math").flowing([]):
        running.deploy("--canary", "40%")
        yield Scraped(running.server, running.jobs, time.monotonic() + PATIENCE)


@pytest.mark.parametrize("panel", list(panels()), ids=str)
def test_every_query_of_a_panel_is_answered(scraped: Scraped, panel: Panel) -> None:
    for query in panel.queries:
        if OF_TROUBLE in query.expr:
            continue
        for job in scraped.jobs:
            asked = query._replace(expr=query.of(job))
            patience = max(1.0, scraped.deadline - time.monotonic())
            eventually(lambda asked=asked: is_answered(scraped.server, asked), f"{panel}: {asked}", patience)


def is_answered(server: Prometheus, query: Query) -> bool:
    """Whether there is a number, and every series has a name of its own."""
    found = server.query(query.expr)
    names = [query.name(series.labels) for series in found]
    assert len(set(names)) == len(names)
    return any(math.isfinite(value) for series in found for _, value in series.points)


def test_the_dashboard_offers_jobs_tasks_and_versions(scraped: Scraped) -> None:
    offered = {
        query.legend: {one.labels[query.legend] for one in scraped.server.query(query.expr)} for query in choices()
    }
    assert offered["job"] == set(scraped.jobs)
    assert {GENERAL, ENGLISH, PYTHON} <= offered["task"]
    assert len(offered["version"]) == 2


def test_every_rule_is_evaluated_and_a_well_service_sets_none_off(scraped: Scraped) -> None:
    rules = scraped.server.rules()
    assert len(rules) > 5
    eventually(lambda: all(rule["health"] == "ok" for rule in scraped.server.rules()), "rules are evaluated", 90)
    assert not [rule["name"] for rule in scraped.server.rules() if rule.get("state", "inactive") == "firing"]
