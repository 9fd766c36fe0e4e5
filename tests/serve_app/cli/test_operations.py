from __future__ import annotations

import io
import json
import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from core.confidence_intervals import Estimate
from core.errors import ConfigError
from core.replay.decay import DraftRecord
from serve_app import local_cluster, operations
from serve_app.cli import operations as operations_cli
from serve_app.cli.main import main
from serve_app.cli.operations import facts, parse_replicas, table
from serve_app.deployments.telemetry.reports import DraftCheckReport, IngressReport
from serve_app.deployments.telemetry.service_status import ServicePart, ServiceStatus, as_object

DEPLOYED = datetime(2026, 7, 18, 10, 5, tzinfo=UTC)
POOL = ServicePart("math", "draft-math", "DraftPool", "UPSCALING", 1, 2, sessions=3, proposed=8, accepted=6)
ROUTER = ServicePart("router", "taskspec", "TaskRouter", "HEALTHY", 1, 1)


def status(bundle: str | None = "v1", traces: Counter[str] | None = None) -> ServiceStatus:
    counts = Counter({"draft-math": 8}), Counter({"draft-math": 6})
    report = IngressReport("m", bundle, {"draft-math": "math"}, None, *counts, traces)
    return ServiceStatus(DEPLOYED, report, (ROUTER, POOL))


def test_the_parts_are_a_table() -> None:
    out = io.StringIO()
    Console(file=out, width=100).print(table(status().parts))
    rows = [line.split() for line in out.getvalue().splitlines() if line.strip()]
    assert rows[0] == ["part", "application", "state", "replicas", "sessions", "accepted"]
    assert rows[2:] == [
        ["router", "taskspec", "HEALTHY", "1/1"],
        ["math", "draft-math", "UPSCALING", "1/2", "3", "0.75", "(6", "of", "8)"],
    ]


def test_what_is_served_and_recorded_is_told_in_lines() -> None:
    assert facts(status()) == ["m, bundle v1, deployed 2026-07-18 10:05 UTC"]
    assert facts(status(None, Counter(written=12, dropped_queue_full=1))) == [
        "m, no bundle, deployed 2026-07-18 10:05 UTC",
        "traces: 1 dropped queue full, 12 written",
    ]
    assert facts(status(traces=Counter()))[1] == "traces: none written yet"
    assert facts(ServiceStatus(DEPLOYED, None, ())) == ["The ingress does not answer; deployed 2026-07-18 10:05 UTC"]


def test_drafts_are_told_beside_their_replay_and_what_to_do_with_one_that_decays() -> None:
    well = DraftRecord(60, 0.5, 0.5, Estimate(0.0, 0.0, 0.0))
    decayed = DraftRecord(24, 0.1, 0.6, Estimate(0.5, 0.4, 0.6))
    told = replace(status(), check=DraftCheckReport({"general": well, "math": decayed}))
    first, drafts, alarm = facts(told)
    assert first == facts(status())[0]
    assert drafts == (
        "drafts, accepted in service, of a replay: general 0.50 of 0.50 (60 answers), math 0.10 of 0.60 (24 answers)"
    )
    assert "math has DECAYED" in alarm
    assert "`taskspec scale math=0`" in alarm
    plain = json.loads(json.dumps(as_object(told)))["drafts"]
    assert plain["general"]["decayed"] is False
    assert plain["math"] == {
        "answers": 24,
        "accepted": 0.1,
        "replayed": 0.6,
        "gap": 0.5,
        "low": 0.4,
        "high": 0.6,
        "decayed": True,
    }
    assert facts(replace(status(), check=DraftCheckReport({}))) == facts(status())
    assert as_object(status())["drafts"] is None


def test_a_part_that_is_unwell_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    frames = '  File "replica.py", line 1, in initialize\n    raise\n' * 40
    unwell = replace(POOL, message=f"It failed 3 times. Error:\nTraceback:\n{frames}core.errors.ConfigError: no model")
    monkeypatch.setattr(operations_cli, "connect_to_service", lambda _: None)
    monkeypatch.setattr(operations, "service_status", lambda: ServiceStatus(DEPLOYED, None, (ROUTER, unwell)))
    operations_cli.status()
    assert capsys.readouterr().out.splitlines()[-1] == "math: ConfigError: no model"


def test_the_same_is_an_object_for_scripts() -> None:
    said = json.loads(json.dumps(as_object(status(traces=Counter(written=2)))))
    assert {key: said[key] for key in ("model", "bundle", "deployed", "traces")} == {
        "model": "m",
        "bundle": "v1",
        "deployed": "2026-07-18T10:05:00+00:00",
        "traces": {"written": 2},
    }
    assert said["parts"][1] | {"name": "math", "running": 1, "target": 2, "proposed": 8} == said["parts"][1]


def test_replicas_are_read_by_task() -> None:
    assert parse_replicas(["math=2", "a=b=0"]) == {"math": 2, "a=b": 0}


@pytest.mark.parametrize("argument", ["math", "math=", "=2", "math=-1", "math=two", "math=1.5"])
def test_what_are_no_replicas_is_told_with_an_example(argument: str) -> None:
    with pytest.raises(ConfigError, match=r"write TASK=REPLICAS, for example \w+=2"):
        parse_replicas([argument])


def test_a_task_is_given_once() -> None:
    with pytest.raises(ConfigError, match="'math' is given twice"):
        parse_replicas(["math=1", "math=2"])


@pytest.mark.parametrize("command", [["status"], ["scale", "math=2"]])
def test_that_no_service_is_up_is_told_in_a_line(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(local_cluster, "SHORT_TEMP", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["taskspec", *command])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("taskspec: no `taskspec serve` is up on this machine.\n")
