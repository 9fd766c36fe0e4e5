"""The dashboard as it is shipped, with its queries as Grafana would send them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from serve_app.monitoring.panels import Kind
from tests.tree import ROOT

FILE = ROOT / "serve_app" / "monitoring" / "dashboard.json"
RULES = FILE.with_name("rules.yaml")
RATE_INTERVAL = "1m"  # Grafana's for a Prometheus that scrapes every 15 s
METRIC = re.compile(r"\bray_\w+")
_KINDS: dict[str, Kind] = {"timeseries": "lines", "stat": "number", "state-timeline": "states"}


class Query(NamedTuple):
    """PromQL without variables, and the names of its series."""

    expr: str
    legend: str

    def of(self, job: str) -> str:
        """The expression for one job."""
        return self.expr.replace('job=~".*"', f'job=~"{job}"')

    def name(self, labels: dict[str, str]) -> str:
        return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), self.legend)


class Panel(NamedTuple):
    """What is read of a panel's JSON; `place` is its column, row, width and height on Grafana's grid."""

    row: str
    title: str
    kind: Kind
    unit: str
    limit: float | None
    queries: tuple[Query, ...]
    place: tuple[int, int, int, int]

    def __str__(self) -> str:
        return f"{self.row}: {self.title}"


def dashboard() -> dict[str, Any]:
    board: dict[str, Any] = json.loads(FILE.read_text())
    return board


def panels() -> Iterator[Panel]:
    row = ""
    for panel in dashboard()["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
        else:
            yield _panel(row, panel)


def choices() -> Iterator[Query]:
    """The series whose labels the dashboard's variables may have, each with the label."""
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            [[series, label]] = re.findall(r"label_values\((.*), (\w+)\)", variable["query"])
            yield Query(_plain(series), label)


def _panel(row: str, panel: dict[str, Any]) -> Panel:
    fields, grid = panel["fieldConfig"]["defaults"], panel["gridPos"]
    kind = _KINDS[panel["type"]]
    if fields.get("custom", {}).get("stacking"):
        kind = "stacked"
    limit = next((step["value"] for step in fields.get("thresholds", {}).get("steps", ()) if step["value"]), None)
    queries = tuple(Query(_plain(target["expr"]), target["legendFormat"]) for target in panel["targets"])
    place = (grid["x"], grid["y"], grid["w"], grid["h"])
    return Panel(row, panel["title"], kind, fields["unit"], limit, queries, place)


def _plain(expr: str) -> str:
    """With everything chosen, as the dashboard is at first."""
    return re.sub(r"\$(job|task|version)\b", ".*", expr.replace("$__rate_interval", RATE_INTERVAL))
