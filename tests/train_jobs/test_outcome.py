from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from train_jobs.outcome import Outcome, SlotDecision

PUBLISHED = Outcome(
    work=Path("/retrain"),
    bundles=Path("/bundles"),
    report=Path("/retrain/report/report.html"),
    version="0123456789abcdef",
    slots={"math": SlotDecision("task", "+0.12 [0.08, 0.16] over general")},
    seconds={"align": 2.5},
)
NOTHING = Outcome(work=Path("/retrain"), bundles=Path("/bundles"), report=None, version=None, slots={}, seconds={})


def told(outcome: Outcome) -> list[str]:
    shown = io.StringIO()
    outcome.print(Console(file=shown, width=20, _environ={}))
    return shown.getvalue().splitlines()


def test_people_are_told_what_was_published_why_and_where_the_report_is() -> None:
    assert told(PUBLISHED) == [
        "published: 0123456789abcdef in /bundles",
        "  math: task, +0.12 [0.08, 0.16] over general",
        "report: /retrain/report/report.html",
    ]


def test_a_run_with_nothing_to_do_says_so() -> None:
    assert told(NOTHING) == ["Every stage was already done; nothing was run.", "results: /retrain"]


def test_scripts_get_the_same_as_one_line_of_json() -> None:
    line = PUBLISHED.as_json()
    assert "\n" not in line
    found = json.loads(line)
    assert found["slots"] == {"math": {"decision": "task", "reason": "+0.12 [0.08, 0.16] over general"}}
    assert (found["version"], found["report"]) == ("0123456789abcdef", "/retrain/report/report.html")
