"""A service of which the dashboard has something to show in every panel, with a Prometheus that scrapes it.

It serves a bundle whose draft of English knows nothing and says that it is best there, so that answers move to another.
A second bundle is there to be a canary, and a watch looks at the traces, which by its state has retrained before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import yaml

from core.bundle.store import Winner, open_live, publish
from core.draft_key import GENERAL
from core.family import BUNDLE_DIR
from serve_app.local_cluster import RunningService, running_services
from tests.bench.hosts.cluster import documented
from tests.bench.served import Served
from tests.serve_app.command import Command
from tests.serve_app.monitoring.board import RULES
from tests.serve_app.monitoring.prometheus import Prometheus, prometheus
from tests.serve_app.traffic import Traffic, prompts

ENGLISH, PYTHON = "write-bring", "python-print"  # as the shipped bundle calls these tasks
MODEL = "stage"
CLIENTS = 4


class Stage(NamedTuple):
    """The service, the version of the bundle that it does not serve yet, the Prometheus, and its scrape jobs."""

    serving: Served
    candidate: str
    server: Prometheus
    jobs: tuple[str, ...]

    def traffic(self, *tasks: str) -> Traffic:
        """Prompts of these tasks of the corpora in turn."""
        return Traffic(self.serving.url, MODEL, prompts(tasks, 40, 3), CLIENTS)

    def deploy(self, *share: str) -> None:
        """Give the candidate every prompt, or as a canary a share, such as `--canary 40%`."""
        self.serving.taskspec("bundles", "deploy", self.candidate, *share)


@contextmanager
def stage(home: Path) -> Iterator[Stage]:
    """All of it, for as long as the block lasts."""
    candidate = publish_two(home / "bundles")
    watch = home / "watch.yaml"
    watch.write_text(yaml.safe_dump(watch_settings(home)))
    serving, watching = Served(home, yaml.safe_dump(service_settings(home))), None
    try:
        [running] = [one for one in running_services() if one.url == serving.url]
        watching = Command(home, "retrain", "--watch", "--config", str(watch), "--address", running.address)
        config = scrape_configuration(running)
        with prometheus(home, config) as server:
            yield Stage(serving, candidate, server, tuple(str(job["job_name"]) for job in config["scrape_configs"]))
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
        "watch": {"every_s": 1, "min_answers": 60, "reference": 60, "recent": 60, "threshold": 1e9, "fall": 0.99},
    }


def scrape_configuration(running: RunningService) -> dict[str, list[dict[str, object]]]:
    """That of operating.md, with its places put to those of the service."""
    text = documented("yml").replace("localhost:8000", running.url.removeprefix("http://"))
    text = text.replace("/tmp/ray/", f"{running.token_file.parent}/").replace("taskspec/rules.yaml", str(RULES))
    config: dict[str, list[dict[str, object]]] = yaml.safe_load(text)
    return config
