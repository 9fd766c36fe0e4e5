"""The shipped dashboard is what the code makes, Grafana can lay it out, and its queries ask for what is exported."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from serve_app.application_names import CORE
from serve_app.monitoring.dashboard import WIDTH, render
from tests.serve_app.monitoring.board import FILE, METRIC, RULES, Panel, choices, dashboard, panels
from tests.serve_app.monitoring.prometheus import MISSING
from tests.tree import PACKAGES, sources

SERIES = re.compile(r"_(total|bucket|count|sum)$")  # what Ray or Prometheus adds to the name in the code


def test_the_shipped_file_is_what_the_code_makes() -> None:
    assert FILE.read_text() == render(), "write it again: python -m serve_app.monitoring.dashboard"


def test_it_has_the_form_of_grafanas_own_types() -> None:
    again = json.loads(json.dumps(Dashboard.from_json(dashboard()), cls=JSONEncoder))
    assert again == dashboard()


def test_every_panel_is_complete_and_stands_alone() -> None:
    identities = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(identities)) == len(identities)
    every = list(panels())
    assert len({panel.row for panel in every}) == 5
    for panel in every:
        assert panel.queries, panel
        assert panel.place[0] + panel.place[2] <= WIDTH, panel
        assert not [query for query in panel.queries if "$" in query.expr], panel
    assert not [(str(one), str(other)) for one, other in combinations(every, 2) if overlap(one, other)]


def overlap(one: Panel, other: Panel) -> bool:
    (x, y, width, height), (column, row, wide, high) = one.place, other.place
    return x < column + wide and column < x + width and y < row + high and row < y + height


def expressions() -> Iterator[str]:
    """Those of the panels, of the variables and of the rules."""
    yield from (query.expr for panel in panels() for query in panel.queries)
    yield from (choice.expr for choice in choices())
    yield from (rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"])


def test_every_metric_is_one_that_the_code_exports() -> None:
    names = {SERIES.sub("", name.removeprefix("ray_")) for expr in expressions() for name in METRIC.findall(expr)}
    assert len(names) > 30
    exported = Exported()
    assert not {name for name in names if name not in exported}


def test_what_another_engine_exports_under_vllms_names_is_left_out() -> None:
    selectors = [labels for expr in expressions() for labels in re.findall(r"ray_vllm_\w+(\{[^}]*\})?", expr)]
    assert len(selectors) >= 5
    assert all(f'application="{CORE}"' in labels for labels in selectors), selectors


def test_a_metric_that_nothing_exports_is_told() -> None:
    exported = Exported()
    for name in ("taskspec_drift", "taskspec_verifier_plain_us", "taskspec_answer_seconds", "taskspec_replay_judged"):
        assert name in exported
    for name in (
        "taskspec_drifts",
        "taskspec_verifier_plane_us",
        "taskspec_answers_tokens",
        "vllm_num_requests_swapped",
    ):
        assert name not in exported


class Exported:
    """The names of metrics that stand in the code, or are made there of an f-string and of words that do.

    Words are literals and the fields of classes. The first argument of `Metrics` is a part, whose counts are words.
    """

    def __init__(self) -> None:
        self._words = set[str]()
        self._templates = list[re.Pattern[str]]()
        for path in sources(*PACKAGES):
            if path.parent != FILE.parent:
                for node in ast.walk(ast.parse(path.read_text())):
                    self._take(node)

    def _take(self, node: ast.AST) -> None:
        match node:
            case ast.Constant(str(word)) | ast.AnnAssign(ast.Name(word)):
                self._words.add(word)
            case ast.JoinedStr([ast.Constant(str(first)), *_]) if re.match("taskspec_.|vllm_", first):
                parts = (
                    re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"(\w+)" for part in node.values
                )
                self._templates.append(re.compile("".join(parts)))
            case ast.Call(ast.Name("Metrics"), [ast.Constant(str(part)), *_]):
                self._templates.append(re.compile(rf"taskspec_{part}_(\w+)"))

    def __contains__(self, name: str) -> bool:
        matches = (template.fullmatch(name) for template in self._templates)
        return name in self._words or any(match is not None and set(match.groups()) <= self._words for match in matches)


@pytest.mark.skipif(bool(MISSING), reason=f"needs {MISSING}")
def test_every_query_parses(tmp_path: Path) -> None:
    """As a rule of its own, which promtool checks without a server."""
    rules = [{"record": "parsed", "expr": expr} for expr in expressions()]
    file = tmp_path / "queries.yaml"
    for accepted, more in ((True, []), (False, [{"record": "parsed", "expr": "sum by (task (x)"}])):
        groups = [{"name": f"query {number}", "rules": [rule]} for number, rule in enumerate([*rules, *more])]
        file.write_text(yaml.safe_dump({"groups": groups}))
        checked = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True, check=False)
        assert (checked.returncode == 0) == accepted, checked.stderr
