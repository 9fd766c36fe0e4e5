"""Debian's Prometheus scrapes a service under load, as operating.md says, and every query of the dashboard is answered.

What a panel shows is made to happen: a bundle whose draft of English knows nothing and says that it is best there, so
that answers move; another one beside it as a canary; and a watch on the traces, which has retrained before.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from core.bundle.store import Winner, open_live, publish
from core.draft_key import GENERAL
from core.family import BUNDLE_DIR
from serve_app.local_cluster import RunningService, running_services
from tests.bench.hosts.cluster import documented
from tests.bench.served import Served
from tests.eventually import eventually
from tests.serve_app.command import Command
from tests.serve_app.monitoring.board import RULES, Panel, Query, choices, panels
from tests.serve_app.monitoring.prometheus import MISSING, Prometheus, prometheus
from tests.serve_app.traffic import Traffic, prompts

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.soak,  # two minutes and a half
    pytest.mark.skipif(bool(MISSING), reason=f"needs {MISSING}"),
]

ENGLISH, PYTHON = "write-bring", "python-print"  # as the shipped bundle calls these tasks
PATIENCE = 180.0  # seconds: replicas report every ten, and what drafts do is replayed now and then
MODEL = "scraped"


class Scraped(NamedTuple):
    """A Prometheus that scrapes a service, the job of each way to do so, and when all must have been told."""

    server: Prometheus
    jobs: tuple[str, ...]
    deadline: float


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    home = tmp_path_factory.mktemp("scraped")
    canary = publish_two(home / "bundles")
    service, watch = home / "service.yaml", home / "watch.yaml"
    service.write_text(yaml.safe_dump(service_settings(home)))
    watch.write_text(yaml.safe_dump(watch_settings(home)))
    serving, watching = Served(home, service.read_text()), None
    try:
        [running] = [one for one in running_services() if one.url == serving.url]
        watching = Command(home, "retrain", "--watch", "--config", str(watch), "--address", running.address)
        traffic = Traffic(serving.url, MODEL, prompts(("english", "python", "math"), 40, 3), clients=4)
        config = scrape_configuration(running)
        with prometheus(home, config) as server, traffic.flowing([]):
            serving.taskspec("bundles", "deploy", canary, "--canary", "40%")
            yield Scraped(
                server, tuple(job["job_name"] for job in config["scrape_configs"]), time.monotonic() + PATIENCE
            )
    finally:
        for command in (watching, serving.command):
            if command is not None:
                command.kill()


def publish_two(root: Path) -> str:
    """A bundle that serves, and one that will be a canary, of the shipped one's parts; the version of the latter."""
    shipped = open_live(BUNDLE_DIR).bundle
    assert shipped is not None
    manifest, general = shipped.manifest, shipped.directory(GENERAL)
    rates = dict(manifest.acceptance[GENERAL])
    astray = dict.fromkeys(rates, 0.1) | {ENGLISH: 0.95}
    versions = [
        publish(
            root,
            {
                task: Winner(directory=directory, decision="task", reason="for the test")
                for task, directory in ({GENERAL: general} | drafts).items()
            },
            router=shipped.router,
            target=manifest.target,
            draft=manifest.draft,
            id_map=manifest.id_map,
            controls={"base": shipped.control("base")},  # the model that the adapter is for
            acceptance={GENERAL: rates, ENGLISH: astray, PYTHON: rates},
            live=live,
        ).version
        for drafts, live in (({ENGLISH: None}, True), ({PYTHON: shipped.directory(PYTHON)}, False))
    ]
    return versions[1]


def service_settings(home: Path) -> dict[str, object]:
    """Passes take long, as a larger target's do, so that drafts pay; the canary stays one."""
    return {
        "name": MODEL,
        "target": {"model": "family:target", "threads": 1, "decoder": "torch"},
        "draft": {"model": "family:draft", "num_speculative_tokens": 6},
        "bundle": str(home / "bundles"),
        "traces": {"directory": str(home / "traces"), "flush_seconds": 1},
        "rollout": {"every_s": 0.5, "canary_answers": 100_000},
    }


def watch_settings(home: Path) -> dict[str, object]:
    """It looks all the time and never retrains, but it has: so its state says."""
    work = home / "work"
    work.mkdir()
    (work / "watch.json").write_text(f'{{"retrained": "{datetime.now(UTC).isoformat()}"}}')
    return {
        "target": {"model": "family:target"},
        "draft": "family:draft",
        "work": str(work),
        "bundles": str(home / "bundles"),
        "collect": {"traces": str(home / "traces")},
        "watch": {"every_s": 1, "min_answers": 30, "reference": 30, "recent": 30, "threshold": 1e9, "fall": 0.99},
    }


def scrape_configuration(running: RunningService) -> dict[str, list[dict[str, object]]]:
    """That of operating.md, with its places put to those of the service."""
    text = documented("yml").replace("localhost:8000", running.url.removeprefix("http://"))
    text = text.replace("/tmp/ray/", f"{running.token_file.parent}/").replace("taskspec/rules.yaml", str(RULES))
    config: dict[str, list[dict[str, object]]] = yaml.safe_load(text)
    return config


@pytest.mark.parametrize("panel", list(panels()), ids=str)
def test_every_query_of_a_panel_is_answered(scraped: Scraped, panel: Panel) -> None:
    for query in panel.queries:
        for job in scraped.jobs:
            asked = query._replace(expr=query.expr.replace('job=~".*"', f'job="{job}"'))
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
