from __future__ import annotations

import io
import json
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console

from core.bundle.store import Winner, block, go_live
from tests.core.bundle.bundles import publish_adapters
from tests.train_jobs.small import SMALL
from train_jobs.config import RetrainConfig
from train_jobs.retrain.outcome import Outcome, SlotDecision
from train_jobs.retrain.pipeline import retrain
from train_jobs.stages import open_workspace
from train_jobs.work.artefacts import WINNERS, Winners, write_json

PUBLISHED = Outcome(
    work=Path("/retrain"),
    bundles=Path("/bundles"),
    report=Path("/retrain/report/report.html"),
    version="0123456789abcdef",
    live=True,
    blocked=None,
    slots={"math": SlotDecision("task", "+0.12 [0.08, 0.16] over general")},
    seconds={"align": 2.5},
)
NOTHING = Outcome(
    work=Path("/retrain"),
    bundles=Path("/bundles"),
    report=None,
    version=None,
    live=False,
    blocked=None,
    slots={},
    seconds={},
)
CONSOLE = Console(file=io.StringIO())


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


def test_of_a_bundle_that_is_not_live_they_are_told_what_to_do_with_it() -> None:
    waiting, blocked = replace(PUBLISHED, live=False), replace(PUBLISHED, live=False, blocked="worse")
    assert told(waiting)[0] == (
        "published: 0123456789abcdef in /bundles; it waits as a candidate: "
        "`taskspec bundles shadow 0123456789abcdef --config SERVICE_YAML`, "
        "then `taskspec bundles deploy 0123456789abcdef`"
    )
    assert told(blocked)[0] == (
        "published: 0123456789abcdef in /bundles; it is blocked (worse), and `taskspec bundles deploy 0123456789abcdef "
        "--force` serves it all the same"
    )


def test_the_bundle_told_of_is_that_which_was_published_whichever_is_live(tmp_path: Path) -> None:
    settings = {"work": str(tmp_path / "work"), "bundles": str(tmp_path / "bundles")}
    work = open_workspace(RetrainConfig(**SMALL | settings).anchored())
    old = publish_adapters(work.config.bundles, tmp_path, 1)
    new = publish_adapters(work.config.bundles, tmp_path, 2, live=False)
    general = Winner(directory=None, decision="base", reason="better")
    write_json(work.steps["evaluate"].start() / WINNERS, Winners(tasks={}, general=general))
    (work.steps["publish"].start() / "version").write_text(new.version)
    work.steps["publish"].finish(1.0)
    found = retrain(work.config, ("publish",), CONSOLE)
    assert (found.version, found.live, found.blocked) == (new.version, False, None)
    assert found.slots == {"general": SlotDecision("base", "better")}
    block(work.config.bundles, new.version, "worse")
    go_live(work.config.bundles, old.version)
    found = retrain(work.config, ("publish",), CONSOLE)
    assert (found.version, found.live, found.blocked) == (new.version, False, "worse")
    go_live(work.config.bundles, new.version)
    found = retrain(work.config, ("publish",), CONSOLE)
    assert (found.version, found.live, found.blocked) == (new.version, True, None)


def test_a_run_with_nothing_to_do_says_so() -> None:
    assert told(NOTHING) == ["Every stage was already done; nothing was run.", "results: /retrain"]


def test_scripts_get_the_same_as_one_line_of_json() -> None:
    line = PUBLISHED.as_json()
    assert "\n" not in line
    found = json.loads(line)
    assert found["slots"] == {"math": {"decision": "task", "reason": "+0.12 [0.08, 0.16] over general"}}
    assert (found["version"], found["report"]) == ("0123456789abcdef", "/retrain/report/report.html")
    assert (found["live"], json.loads(NOTHING.as_json())["live"]) == (True, False)
