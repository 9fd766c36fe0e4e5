"""The alerts fire when they should, and not otherwise, by `promtool`."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.serve_app.monitoring.board import RULES
from tests.serve_app.monitoring.prometheus import MISSING

SERIES = Path(__file__).with_name("alerts.yaml")
ALERTS = {rule["alert"]: rule for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"] if "alert" in rule}
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"needs {MISSING}")


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)


def test_prometheus_takes_the_rules() -> None:
    checked = promtool("check", "rules", RULES)
    assert checked.returncode == 0, checked.stderr
    assert f"{len(ALERTS) + 1} rules found" in checked.stdout


def test_alerts_fire_on_these_series_and_no_others() -> None:
    tested = promtool("test", "rules", SERIES)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_every_alert_is_among_those_that_must_fire() -> None:
    assert set(re.findall(r'alertname="(\w+)"', SERIES.read_text())) == set(ALERTS)


def test_every_figure_in_a_text_is_among_the_texts_that_are_compared() -> None:
    with_figures = {name for name, rule in ALERTS.items() if "$value" in str(rule["annotations"])}
    compared = set(re.findall(r"alertname: (\w+)", SERIES.read_text()))
    assert with_figures
    assert with_figures <= compared
