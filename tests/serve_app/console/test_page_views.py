"""The views of the page show what a service tells, and read no name that it does not tell."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from core.bundle.shadow_results import keep_shadow
from serve_app.console.bundles import PublishedBundles
from serve_app.console.overview import keys_of, overview
from serve_app.console.permission import Viewer
from tests.core.replay.shadowed import SHIPPED, copied
from tests.serve_app.console.test_overview import activity, status

NODE = shutil.which("node")
VIEWS = Path(__file__).with_name("page_views.mjs")

GAIN = {"difference": -0.1, "low": -0.2, "high": -0.05}
SHADOW = {
    "at": "2026-07-18T10:05:00+00:00",
    "verdict": "worse",
    "judged_by": "speedup",
    "all": {"answers": 20, "speedup": {"difference": GAIN}},
}

pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")


def told(root: Path, *, active: bool, acts: bool = True) -> dict[str, Any]:
    """What a viewer gets as JSON."""
    counted = activity() if active else None
    viewer = Viewer("alice", acts, "" if acts else "use an admin key")
    whole = overview(status(counted), PublishedBundles(root), 120_000.0)
    return json.loads(json.dumps({**whole, "viewer": viewer._asdict(), "keys": keys_of(counted)}))


def drawn(*states: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    command = [str(NODE), str(VIEWS)]
    return subprocess.run(command, input=json.dumps(states), capture_output=True, text=True, check=False, timeout=60)


def views(*states: dict[str, Any]) -> list[str]:
    ended = drawn(*states)
    assert ended.returncode == 0, ended.stderr
    shown: list[str] = json.loads(ended.stdout)
    return shown


def test_the_views_show_what_a_service_tells(tmp_path: Path) -> None:
    root = copied(tmp_path / "bundles")
    keep_shadow(root, SHIPPED, SHADOW)
    active = told(root, active=True)
    drafts, service, *idle = views(active, told(root, active=False))
    for task in active["tasks"]:
        assert task["name"] in drafts
        assert all(word in drafts for word in task["words"])
    for words in (
        SHIPPED,
        "canary",
        "End the canary",
        active["rollout"]["candidate"],
        active["rollout"]["last"],
        "worse: tokens/s −10.0 %",
    ):
        assert words in drafts
    for words in ("alice (admin)", "carol", "lost", "2 of 128", *(part["name"] for part in active["parts"])):
        assert words in service
    for shown in (drafts, service, *idle):
        assert not [word for word in ("undefined", "NaN", "[object", "null") if word in shown.split("{")[0]]


def test_who_may_not_act_is_told_why(tmp_path: Path) -> None:
    drafts, _ = views(told(copied(tmp_path / "bundles"), active=True, acts=False))
    assert "use an admin key" in drafts


def test_a_name_that_is_not_told_is_noticed(tmp_path: Path) -> None:
    state = told(copied(tmp_path / "bundles"), active=True)
    del state["tasks"][0]["hour"]["moved"]
    assert "hour.moved" in drawn(state).stderr
