"""Two minutes of chaos on one host: every part of a service killed and stopped, pools scaled, and nothing altered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.chaos.faults import Fault, process_faults
from tests.bench.chaos.run import Plan, run, summary
from tests.bench.chaos.table import markdown
from tests.bench.served import ROLES, Served
from tests.eventually import eventually

pytestmark = pytest.mark.cluster

SECONDS = 120.0
STREAMS = 8
CONFIG = """
name: chaos
target: {model: "family:target", dtype: bfloat16, threads: 1, decoder: torch, max_sessions: 16, actors: {replicas: 2}}
draft: {model: "family:draft"}
bundle: "family:bundle"
ingress: {actors: {replicas: 2}}
"""


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S", "1")
    served = Served(tmp_path, CONFIG)
    try:
        yield served
    finally:
        served.command.kill()


def test_no_answer_is_altered_or_lost(served: Served, tmp_path: Path) -> None:
    scale = Fault(
        "scale to 0 and back",
        lambda: served.taskspec("scale", "general=0"),
        lambda: served.taskspec("scale", "general=1"),
    )
    faults = [*process_faults(served.send, list(ROLES)), scale]
    plan = Plan([served.url], "chaos", faults, served.sessions, SECONDS, STREAMS)
    verdict, table = asyncio.run(run(plan, tmp_path))
    print("", markdown(table), *summary(verdict), sep="\n")
    assert verdict.violations == []
    assert {name.partition(",")[0] for name in table} == {fault.name for fault in faults}  # some may have failed
    assert any(request.cut and request.outcome == "answered" for request in verdict.requests)
    eventually(lambda: served.sessions() == 0, "the service holds no session")
