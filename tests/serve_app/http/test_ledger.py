"""A run is entered once, and every count of an answer is a sum over the lines of its ledger."""

from __future__ import annotations

from core.generation import Run
from serve_app.http.ledger import AnswerLedger, Line, TokenCounts, Totals, by_source
from serve_app.http.service import ChoiceRun


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def ledger(*runs: tuple[int, str, Run]) -> AnswerLedger:
    answer = AnswerLedger()
    for choice, task, run in runs:
        answer.add(ChoiceRun(choice, run, task))
    return answer


PLAIN, DRAFTED = Run((5,)), Run((5, 6), proposed=3, accepted=1)


def test_runs_of_one_task_source_and_side_of_a_move_share_a_line() -> None:
    looked_up = Run((7,), proposed=2, accepted=0, source="own_text")
    choice = ledger(
        (0, "general", PLAIN),
        (0, "math", DRAFTED),
        (0, "math", DRAFTED),
        (0, "math", looked_up),
        (0, "code", DRAFTED),
        (0, "math", DRAFTED),
    ).choices[0]
    assert choice.lines == {
        Line("general"): TokenCounts(1),
        Line("math", "draft"): TokenCounts(4, 6, 2, 4),
        Line("math", "own_text"): TokenCounts(1, 2, 0, 1),
        Line("code", "draft", moved=True): TokenCounts(2, 3, 1, 2),
        Line("math", "draft", moved=True): TokenCounts(2, 3, 1, 2),
    }
    assert by_source(choice.lines.items()) == {"draft": TokenCounts(8, 12, 4, 8), "own_text": TokenCounts(1, 2, 0, 1)}


def test_a_draft_is_judged_up_to_the_first_rejected_token_whoever_drafted() -> None:
    answer = ledger(
        (0, "math", Run((1, 2, 3), proposed=4, accepted=2)),
        (0, "code", Run((4, 5), proposed=1, accepted=1)),
        (0, "code", Run((6,), proposed=3, accepted=0, source="own_text")),
        (0, "code", Run((7,))),
        (1, "math", Run((1,), proposed=2, accepted=0)),
        (2, "math", Run((1,))),
    )
    judged = [(choice.drafts.judged, choice.drafts.accepted) for choice in answer.choices.values()]
    assert judged == [(4, 3), (1, 0), (0, 0)]


def test_the_first_run_is_the_prefills_and_no_pass() -> None:
    answer = ledger((0, "general", PLAIN), (1, "general", DRAFTED), (0, "general", DRAFTED))
    assert [choice.passes for choice in answer.choices.values()] == [1, 0]
    assert [choice.tokens_of_passes for choice in answer.choices.values()] == [2, 0]


def test_each_choice_moves_and_ends_by_itself() -> None:
    clock = Clock()
    answer = AnswerLedger(clock)
    for choice, task, run in (
        (0, "math", DRAFTED),
        (1, "code", DRAFTED),
        (0, "general", PLAIN),
        (0, "general", DRAFTED),
        (1, "code", Run((2,), finish_reason="stop")),
    ):
        clock.now += 1.0
        answer.add(ChoiceRun(choice, run, task))
    first, second = answer.choices.values()
    assert (answer.began, first.first_at, first.ended_at) == (100.0, 101.0, None)
    assert (second.first_at, second.ended_at, second.finished) == (102.0, 105.0, True)
    assert (first.moved, second.moved, answer.task, answer.tasks_left) == (True, False, "general", ["math"])
    assert first.tokens == [5, 6, 5, 5, 6]


def test_totals_add_up_what_has_the_same_key() -> None:
    totals = Totals([("math", TokenCounts(1, 2, 1, 2)), ("code", TokenCounts(1))])
    totals.add([("math", TokenCounts(3))])
    assert totals == {"math": TokenCounts(4, 2, 1, 2), "code": TokenCounts(1)}
