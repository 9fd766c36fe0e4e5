from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.bundle.manifest import Manifest
from core.bundle.store import Winner, publish
from core.tasks.identity import TaskCentroids
from serve_app import operations
from serve_app.cli.main import main
from serve_app.deployments.telemetry.reports import RolloutReport
from tests.core.bundle.bundles import NAMES, publish_adapters


@pytest.fixture
def published(tmp_path: Path) -> list[Manifest]:
    return [publish_adapters(tmp_path / "bundles", tmp_path, number) for number in (1, 2)]


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> tuple[int, str]:
    """Exit code, and stdout if it is 0, else stderr."""
    monkeypatch.setattr(sys, "argv", ["taskspec", "bundles", *map(str, arguments)])
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    code = int(ended.value.code or 0)
    return code, err if code else out


@pytest.fixture
def bundles(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def ask(*arguments: str | Path) -> tuple[int, str]:
        return run(capsys, monkeypatch, *arguments, "--root", tmp_path / "bundles")

    return ask


def test_list_tells_scripts_version_time_tasks_and_what_is_live(published: list[Manifest], bundles: Any) -> None:
    code, out = bundles("list", "--json")
    listed = json.loads(out)
    assert code == 0
    assert [one.keys() for one in listed] == [{"version", "created", "tasks", "live"}] * 2
    assert [one["version"] for one in listed] == [manifest.version for manifest in reversed(published)]
    assert [one["live"] for one in listed] == [True, False]
    assert listed[0]["tasks"] == ["code", "general", "math"]
    assert datetime.fromisoformat(listed[0]["created"]) == published[1].created


def test_list_shows_people_the_same(published: list[Manifest], bundles: Any) -> None:
    _, out = bundles("list")
    line = next(line for line in out.splitlines() if published[1].version in line)
    assert "live" in line
    assert "code, general, math" in line


def test_a_root_without_bundles_has_none(bundles: Any) -> None:
    assert bundles("list", "--json") == (0, "[]\n")
    assert "no bundles in" in bundles("list")[1]


def test_show_tells_the_reason_of_every_slot(published: list[Manifest], bundles: Any) -> None:
    version = published[0].version
    _, out = bundles("show", version)
    assert "nothing is better" in out
    assert "task 0.800" in out
    assert "target target-13b, draft draft-68m" in out
    shown = json.loads(bundles("show", version, "--json")[1])
    assert shown["slots"]["math"]["part"] == published[0].slots["math"].part


def test_diff_tells_what_changed_and_nothing_else(published: list[Manifest], bundles: Any) -> None:
    versions = [manifest.version for manifest in published]
    [change] = json.loads(bundles("diff", *versions, "--json")[1])
    assert change["what"] == "task math"
    assert [change[side]["part"] for side in ("before", "after")] == [one.slots["math"].part for one in published]
    _, out = bundles("diff", *versions)
    assert "task math" in out
    assert str(published[1].slots["math"].part)[:12] in out
    assert "code" not in out
    assert bundles("diff", versions[0], versions[0]) == (0, "they serve the same\n")


def test_diff_tells_what_became_of_the_tasks(tmp_path: Path, bundles: Any) -> None:
    versions = [
        tasks_published(tmp_path, {"math": (1, 0), "code": (0, 1)}),
        tasks_published(tmp_path, {"math": (1, 0.1), "proofs": (1, -0.5), "chat": (-1, -1)}),
    ]
    assert json.loads(bundles("diff", *versions, "--json")[1]) == [
        {"what": "kept", "before": "math", "after": "math"},
        {"what": "split", "before": "math", "after": "proofs"},
        {"what": "new", "before": None, "after": "chat"},
        {"what": "vanished", "before": "code", "after": None},
    ]
    lines = [line.split() for line in bundles("diff", *versions)[1].splitlines()]
    assert ["split", "math", "proofs"] in lines
    assert ["vanished", "code", "-"] in lines


def tasks_published(directory: Path, tasks: dict[str, tuple[float, float]]) -> str:
    """Version of a bundle that knows the centroids of these tasks and serves none of them."""
    centroids = directory / "-".join(tasks)
    points = np.array(list(tasks.values()), np.float32)
    TaskCentroids("one", tuple(tasks), (60,) * len(tasks), points).save(centroids)
    return publish(directory / "bundles", {}, router=None, **NAMES, centroids=centroids).version


def test_a_slot_is_shown_with_its_reason(tmp_path: Path, bundles: Any) -> None:
    winners = {"math": Winner(directory=None, decision="general", reason="[worse] in service")}
    version = publish(tmp_path / "bundles", winners, router=None, **NAMES).version
    assert "[worse] in service" in " ".join(bundles("show", version)[1].split())


@pytest.mark.parametrize("command", [("show", "0" * 16), ("diff", "0" * 16, "1" * 16)])
def test_an_unknown_version_is_told_with_those_there_are(
    published: list[Manifest], bundles: Any, command: tuple[str, ...]
) -> None:
    code, err = bundles(*command)
    assert code == 2
    assert err.startswith(f"taskspec: no bundle {'0' * 16} can be read")
    assert published[0].version in err


def test_prune_keeps_what_was_live_last_and_tells_what_it_deleted(published: list[Manifest], bundles: Any) -> None:
    assert bundles("prune", "--keep", "2") == (0, "nothing to delete\n")
    assert bundles("prune", "--keep", "1") == (0, f"deleted {published[0].version}\n")
    assert [one["version"] for one in json.loads(bundles("list", "--json")[1])] == [published[1].version]
    assert bundles("prune", "--keep", "1", "--json") == (0, "[]\n")


def test_prune_makes_no_directory(tmp_path: Path, bundles: Any) -> None:
    assert bundles("prune", "--keep", "1") == (0, "nothing to delete\n")
    assert not (tmp_path / "bundles").exists()


@pytest.mark.parametrize(
    ("version", "candidate", "asked", "code"),
    [
        (None, None, "none", 0),
        ("v1", None, "v1", 0),
        ("v1", "v2", "v2", 0),
        ("v1", None, "none", 1),
        (None, None, "v1", 1),
    ],
)
def test_deploy_tells_whether_the_service_has_the_bundle(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    version: str | None,
    candidate: str | None,
    asked: str,
    code: int,
) -> None:
    reports = [
        RolloutReport(version, candidate, 0.0, state, "what happened", {}, {}, {}) for state in ("going back", "steady")
    ]
    monkeypatch.setattr("serve_app.cli.bundles.connect_to_service", lambda _: None)
    monkeypatch.setattr("serve_app.cli.bundles.time.sleep", lambda _: None)
    monkeypatch.setattr(operations, "deploy_bundle", lambda *_: "begun")
    monkeypatch.setattr(operations, "rollout_report", lambda: reports.pop(0))
    ended, said = run(capsys, monkeypatch, "deploy", asked)
    assert (ended, "what happened" in said, reports) == (code, True, [])
