from __future__ import annotations

from collections import Counter

from core.generation import Run
from serve_app.deployments.telemetry.answer_history import AnswerHistory, Routing
from serve_app.deployments.telemetry.reports import Answered
from serve_app.http.ledger import AnswerLedger
from serve_app.http.service import ChoiceRun


def test_an_answer_is_counted_by_the_task_of_its_prompt_without_the_pass_over_that() -> None:
    ledger = AnswerLedger()
    for run, task in (
        (Run((1,)), "general"),
        (Run((2, 3, 4), proposed=4, accepted=2), "general"),
        (Run((5, 6), proposed=1, accepted=1, source="own_text"), "general"),
        (Run((7,), proposed=3, accepted=0), "math"),
        (Run((8,), finish_reason="stop"), "math"),
    ):
        ledger.add(ChoiceRun(0, run, task))
    history = AnswerHistory()
    history.add(ledger.choices[0], Routing("code", "routed", 0.75), "v1")
    history.add(ledger.choices[0], Routing("code", "routed", 0.5), "v1")
    history.add(ledger.choices[0], Routing("math", "named"), None)
    total = sum(history.minutes().values(), Counter[Answered]())
    of_code = {(what, source): number for (task, version, what, source), number in total.items() if task == "code"}
    assert of_code == {
        ("answers", None): 2,
        ("tokens", None): 14,
        ("passes", None): 8,
        ("moved", None): 2,
        ("routed", None): 2,
        ("chance", None): 1250,
        ("proposed", "draft"): 14,
        ("accepted", "draft"): 4,
        ("proposed", "own_text"): 2,
        ("accepted", "own_text"): 2,
    }
    assert {(task, version) for task, version, _, _ in total} == {("code", "v1"), ("math", None)}
    assert total[Answered("math", None, "named")] == 1
