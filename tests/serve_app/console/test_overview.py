"""What the console shows of a service: the shipped bundle, two ingress replicas, and what a canary staked."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed

from core.bundle.manifest import seal, write_manifest
from core.bundle.shadow_results import keep_shadow
from core.bundle.store import block, live_version, open_live, show
from core.draft_key import GENERAL
from core.rollout.trial import ALL, AcceptanceStats
from serve_app.console.bundles import PublishedBundles
from serve_app.console.overview import keys_of, overview
from serve_app.deployments.telemetry.reports import (
    Answered,
    Fault,
    IngressActivity,
    IngressReport,
    RolloutReport,
    together,
)
from serve_app.deployments.telemetry.service_status import ReplicaFacts, ServicePart, ServiceStatus
from serve_app.http.owners import KeyHolder
from serve_app.http.request_history import Allowed, Requested
from tests.core.replay.shadowed import PYTHON, SHIPPED, copied

DEPLOYED = datetime(2026, 7, 18, 10, 5, tzinfo=UTC)
OTHER = "dollars-days"
MINUTE = 60_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return copied(tmp_path / "bundles")


def activity() -> IngressActivity:
    answers = {
        Answered(PYTHON, SHIPPED, "answers"): 3,
        Answered(PYTHON, SHIPPED, "routed"): 2,
        Answered(PYTHON, SHIPPED, "named"): 1,
        Answered(PYTHON, SHIPPED, "chance"): 1500,
        Answered(PYTHON, SHIPPED, "tokens"): 50,
        Answered(PYTHON, SHIPPED, "passes"): 20,
        Answered(PYTHON, SHIPPED, "proposed", "draft"): 40,
        Answered(PYTHON, SHIPPED, "accepted", "draft"): 10,
        Answered(PYTHON, SHIPPED, "proposed", "own_text"): 4,
        Answered(GENERAL, None, "answers"): 1,
    }
    requests = Counter(
        {Requested("alice", "answered"): 3, Requested("alice", "refused"): 1, Requested("bob", "gone"): 1}
    )
    return IngressActivity(
        {MINUTE: Counter(answers)},
        {MINUTE: requests, MINUTE + 60: Counter({Requested("bob", "failed"): 2})},
        waiting=1,
        running=2,
        room=64,
        moves=Counter({(GENERAL, PYTHON): 2}),
        faults=(Fault(5.0, "lost"),),
        holders=(KeyHolder("alice", admin=True), KeyHolder("carol")),
        limited={"alice": {"requests": Allowed(60, 50), "concurrency": Allowed(4, 1)}},
    )


def status(activity: IngressActivity | None) -> ServiceStatus:
    pools = {"draft-general": GENERAL, "draft-python": PYTHON}
    report = IngressReport("m", SHIPPED, pools, None, Counter(), Counter(), Counter(written=3), activity)
    replica = ReplicaFacts("x1", "RUNNING", "10.0.0.1", "2026-07-18T10:05:00+00:00")
    parts = (
        ServicePart(GENERAL, "draft-general", "DraftPool", "HEALTHY", 1, 2, replicas=(replica,)),
        ServicePart(PYTHON, "draft-python", "DraftPool", "HEALTHY", 3, 3),
    )
    stats = AcceptanceStats(30, 0.5, 1.0)
    rollout = RolloutReport(
        SHIPPED, "canary", 0.1, "canary", "", {ALL: stats}, {ALL: stats}, {}, money={ALL: 0.5}, ruin=80.0
    )
    return ServiceStatus(DEPLOYED, together([report, report]), parts, rollout)


def shown(root: Path | None, of: ServiceStatus) -> dict[str, Any]:
    """As the page gets it."""
    told: dict[str, Any] = json.loads(json.dumps(overview(of, PublishedBundles(root), 7.0)))
    return told


def test_a_bundle_that_has_words_of_a_task_shows_them_all(root: Path) -> None:
    worded = seal(changed(show(root, SHIPPED), words={PYTHON: ("python", "print", "list")}))
    write_manifest(root / "manifests", worded)
    of = status(activity())
    assert of.report is not None
    told = shown(root, replace(of, report=replace(of.report, bundle=worded.version)))
    words = {task["name"]: task["words"] for task in told["tasks"]}
    assert (words[PYTHON], words[OTHER]) == (["python", "print", "list"], OTHER.split("-"))


def test_a_task_is_shown_with_its_last_hour_and_what_its_bundle_found(root: Path) -> None:
    told = shown(root, status(activity()))
    tasks = {task["name"]: task for task in told["tasks"]}
    assert told["tasks"][0]["name"] == GENERAL
    python, other = tasks[PYTHON], tasks[OTHER]
    assert python["words"] == PYTHON.split("-")
    assert (python["part"], python["running"], python["share"]) == (PYTHON, 3, 0.75)
    assert (other["part"], other["running"], other["target"], other["share"]) == (GENERAL, 1, 2, 0.0)
    assert python["hour"] == {
        "answers": 6,
        "tokens": 100,
        "passes": 40,
        "tokens_per_pass": 2.5,
        "proposed": 80,
        "accepted": 20,
        "acceptance": 0.25,
        "moved": 0,
    }
    assert python["versions"] == [{"version": SHIPPED, **python["hour"]}]
    assert tasks[GENERAL]["versions"][0]["version"] == "none"
    assert python["sources"] == {"draft": {"proposed": 80, "accepted": 20}, "own_text": {"proposed": 8, "accepted": 0}}
    assert python["router"] == {"routed": 4, "named": 2, "unasked": 0, "chance": 0.75}
    assert (other["hour"]["acceptance"], other["router"]["chance"], other["versions"]) == (None, None, [])
    bundle = open_live(root).bundle
    assert bundle is not None
    slot, evidence = bundle.manifest.slots[PYTHON], bundle.manifest.evidence[PYTHON]
    assert python["slot"] == {
        "decision": slot.decision,
        "reason": slot.reason,
        "own": True,
        "scores": slot.scores,
        "judged_by": "acceptance_rate",
    }
    assert (other["slot"]["own"], tasks[GENERAL]["evidence"]) == (False, None)
    assert python["evidence"]["gain"] == evidence.gain
    assert python["evidence"]["low"] < evidence.gain < python["evidence"]["high"]


def test_minutes_moves_queue_and_faults_are_those_of_all_replicas(root: Path) -> None:
    told = shown(root, status(activity()))
    assert told["minutes"] == [
        {"at": MINUTE, "requests": 10, "refused": 2, "failed": 0, "gone": 2, "answers": 8, "tokens": 100, "passes": 40},
        {
            "at": MINUTE + 60,
            "requests": 4,
            "refused": 0,
            "failed": 4,
            "gone": 0,
            "answers": 0,
            "tokens": 0,
            "passes": 0,
        },
    ]
    assert told["moves"] == [{"from": GENERAL, "to": PYTHON, "count": 4}]
    assert told["queue"] == {"waiting": 2, "running": 4, "room": 128}
    assert told["faults"] == [{"at": 5.0, "what": "lost"}] * 2
    assert told["rollout"]["betting"] == {"ruin": 80.0, "money": {"all": 0.5}}
    assert told["parts"][0]["replicas"][0]["node"] == "10.0.0.1"


def test_the_clients_are_those_with_a_valid_key_or_all_as_one() -> None:
    of_two = activity().plus(activity())
    alice, carol = keys_of(of_two)
    assert alice == {
        "name": "alice",
        "admin": True,
        "requests": 8,
        "refused": 2,
        "failed": 0,
        "open": 6,
        "limits": {"requests": {"limit": 120, "remaining": 100}, "concurrency": {"limit": 8, "remaining": 2}},
    }
    assert (carol["requests"], carol["open"], carol["limits"]) == (0, None, {})
    [everybody] = keys_of(replace(activity(), holders=None))
    assert (everybody["name"], everybody["requests"]) == (None, 0)
    assert keys_of(None) == []


def test_bundles_are_listed_with_what_their_directory_says_of_them(root: Path) -> None:
    keep_shadow(root, SHIPPED, {"verdict": "better"})
    bundles = PublishedBundles(root)
    [before] = bundles.listed(status(None))
    assert (before["version"], before["live"], before["serves"], before["blocked"]) == (SHIPPED, True, True, None)
    assert (before["shadow"], PYTHON in before["tasks"]) == ({"verdict": "better"}, True)
    block(root, SHIPPED, "worse")
    [after] = bundles.listed(status(None))
    assert (after["live"], after["blocked"], live_version(root)) == (False, "worse", None)


def test_a_service_that_tells_little_is_shown_as_far_as_it_does(root: Path) -> None:
    silent = ServiceStatus(DEPLOYED, None, ())
    told = shown(root, silent)
    assert (told["tasks"], told["minutes"], told["queue"], told["model"]) == ([], [], None, None)
    unbundled = replace(status(None), rollout=None)
    told = shown(None, unbundled)
    assert [task["name"] for task in told["tasks"]] == [GENERAL, PYTHON]
    assert {task["slot"] for task in told["tasks"]} == {None}
    assert told["bundles"] == []
