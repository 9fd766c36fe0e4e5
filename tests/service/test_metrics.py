"""What the engines and the ingress count can be read off a node as Prometheus reads it."""

from __future__ import annotations

import re

import httpx2 as httpx
import pytest
import ray

from serve_app.config import CORE, pool_application
from tests.service.conftest import Service, chat

pytestmark = pytest.mark.cluster

PATIENCE = 60.0  # seconds: Ray reports every ten


def exported(name: str, application: str) -> list[float]:
    """The value of every replica that has told any."""
    [node] = ray.nodes()
    text = httpx.get(f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics").text
    lines = re.findall(rf'^ray_{name}{{[^}}]*application="{application}"[^}}]*}} (\S+)$', text, re.MULTILINE)
    return [float(value) for value in lines]


def test_what_engines_and_the_ingress_count_is_exported(service: Service) -> None:
    task = service.tasks[0]
    service.answer(
        chat("What is 3 + 4?", max_tokens=20, seed=1) | {"speculation": {"task": task, "num_speculative_tokens": 4}}
    )
    counts, drafted = service.verifier(), service.drafts(task)["drafted"]
    assert counts["tokens"] > 0
    assert drafted > 0
    for name in ("tokens", "steps", "stepping_us"):

        def read(name: str = name) -> bool:
            return sum(exported(f"taskspec_verifier_{name}_total", CORE)) >= counts[name]

        service.eventually(read, PATIENCE)
    generations = service.ingress()["generations"]
    service.eventually(lambda: sum(exported("taskspec_ingress_generations_total", CORE)) >= generations, PATIENCE)
    service.eventually(lambda: sum(exported("taskspec_traces_written_total", CORE)) > 0, PATIENCE)
    pool = pool_application(task)
    service.eventually(lambda: sum(exported("taskspec_draft_drafted_total", pool)) >= drafted, PATIENCE)
    service.eventually(lambda: exported("taskspec_draft_sessions", pool) == [0.0], PATIENCE)
