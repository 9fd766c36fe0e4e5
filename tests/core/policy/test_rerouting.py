"""Slots of simulated answers: a wrong route is corrected, a right one left alone, and luck is no evidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.draft_key import GENERAL
from core.generation import Run
from core.policy.rerouting import MOST_MOVES, AnswerRoute, RoutingTable, expected_tokens, token_rate

LENGTH = 6
TASKS = ("math", "code", "prose", "law")
DRAFTS = (*TASKS, GENERAL)
OWN, OTHERS, GENERALS = 0.6, 0.05, 0.45  # acceptance rates
NONE_FITS = "nonsense"  # a task of answers that no task's draft knows
ANSWERS, TOKENS = 160, 120

Router = Callable[[str, Random], dict[str, float]]


class Played(NamedTuple):
    """An answer: its passes, its tokens, and the drafts that drafted for it."""

    passes: int
    tokens: int
    drafts: tuple[str, ...]

    @property
    def rate(self) -> float:
        return self.tokens / self.passes


def sure(task: str) -> dict[str, float]:
    """A router's word for one task, as the shipped one gives it."""
    doubt = 0.05 / (len(DRAFTS) - 1)
    return {name: 0.95 if name == task else doubt for name in DRAFTS}


def right(task: str, _chance: Random) -> dict[str, float]:
    return sure(task if task in TASKS else GENERAL)


def at_random(_task: str, chance: Random) -> dict[str, float]:
    return sure(chance.choice(DRAFTS))


def acceptance(draft: str, task: str, general: float = GENERALS) -> float:
    if draft == GENERAL:
        return general
    return OWN if draft == task else OTHERS


def told(general: float = GENERALS) -> RoutingTable:
    return RoutingTable(DRAFTS, {draft: {task: acceptance(draft, task, general) for task in TASKS} for draft in DRAFTS})


def play(
    route: AnswerRoute,
    tasks: Callable[[int], str],
    chance: Random,
    tokens: int = TOKENS,
    general: float = GENERALS,
) -> Played:
    """An answer whose n-th token is of the task `tasks(n)`. A move takes two passes, in which the old draft goes on."""
    made, passes, drafts = 0, 0, [route.draft]
    joining: tuple[int, str] | None = None
    while made < tokens:
        accepted = 0
        while accepted < LENGTH and chance.random() < token_rate(acceptance(route.draft, tasks(made), general)):
            accepted += 1
        made += accepted + 1
        passes += 1
        if joining is not None:
            if passes == joining[0]:
                route.move(joining[1])
                drafts.append(route.draft)
                joining = None
            continue
        route.observe(judged(LENGTH, accepted))
        better = route.better((), tokens - made)
        joining = None if better is None else (passes + 2, better)
    return Played(passes, made, tuple(drafts))


def judged(proposed: int, accepted: int) -> Run:
    return Run((0,) * (accepted + 1), proposed, accepted)


def always(task: str) -> Callable[[int], str]:
    return lambda _: task


def played(router: Router, general: float = GENERALS) -> list[Played]:
    """Answers of all tasks in turn, with what one service learns from them."""
    table, chance = told(general), Random(1)
    asked = [TASKS[number % len(TASKS)] for number in range(ANSWERS)]
    return [
        play(AnswerRoute(table, router(task, chance), LENGTH), always(task), chance, general=general) for task in asked
    ]


def rate(answers: list[Played]) -> float:
    return sum(answer.tokens for answer in answers) / sum(answer.passes for answer in answers)


@pytest.mark.parametrize(("general", "kept"), [(0.55, 0.9), (GENERALS, 0.78)])
def test_a_random_router_costs_little_more_than_the_general_slot_does(general: float, kept: float) -> None:
    """Against a right one: the general draft is 6 % and 18 % worse than the tasks' own."""
    assert rate(played(at_random, general)) > kept * rate(played(right, general))


def test_a_right_route_is_almost_never_left() -> None:
    answers = played(right)
    assert {answer.drafts[0] for answer in answers} == set(TASKS)
    assert sum(len(answer.drafts) > 1 for answer in answers) < 0.02 * len(answers)


def test_what_the_bundle_does_not_tell_is_learned() -> None:
    """The general draft is better than it is taken to be, and one task's own draft is of no use."""
    table, chance = RoutingTable(DRAFTS, {}), Random(3)
    for _ in range(60):
        play(AnswerRoute(table, sure("law"), LENGTH), always(NONE_FITS), chance)
    assert AnswerRoute(table, sure("law"), LENGTH).draft == GENERAL
    assert AnswerRoute(table, sure("math"), LENGTH).draft == "math"


def test_prompts_that_are_always_routed_wrong_begin_with_the_slot_that_proved_best() -> None:
    table, chance = told(), Random(4)
    for _ in range(60):
        play(AnswerRoute(table, sure("law"), LENGTH), always("code"), chance)
    assert AnswerRoute(table, sure("law"), LENGTH).draft == GENERAL
    assert AnswerRoute(table, sure("code"), LENGTH).draft == "code"
    assert abs(table.rate("law", "law") - token_rate(OWN)) < 0.1, "the draft is not to blame for the router"


def test_an_answer_that_changes_its_task_gets_the_draft_of_the_second_or_the_general_one() -> None:
    chance = Random(5)
    for _ in range(50):
        route = AnswerRoute(told(), sure("math"), LENGTH)
        answer = play(route, lambda at: "math" if at < 100 else "prose", chance, tokens=250)
        assert answer.drafts[0] == "math"
        assert answer.drafts[-1] in ("prose", GENERAL)


def test_an_answer_that_no_task_fits_falls_back_to_the_general_slot() -> None:
    chance, found = Random(6), []
    for number in range(100):
        route = AnswerRoute(told(), sure(TASKS[number % len(TASKS)]), LENGTH)
        found.append(play(route, always(NONE_FITS), chance))
    assert sum(answer.drafts[-1] == GENERAL for answer in found) > 0.95 * len(found)
    assert max(len(answer.drafts) for answer in found) <= MOST_MOVES + 1
    assert sum(len(answer.drafts) - 1 for answer in found) < 1.5 * len(found), "it flaps"


@pytest.mark.parametrize(("general", "first"), [(0.55, GENERAL), (0.2, "math")])
def test_a_doubtful_prompt_goes_where_a_mistake_costs_least(general: float, first: str) -> None:
    doubtful = {"math": 0.6, "code": 0.1, "prose": 0.1, "law": 0.1, GENERAL: 0.1}
    assert AnswerRoute(told(general), doubtful, LENGTH).draft == first
    assert AnswerRoute(told(general), sure("math"), LENGTH).draft == "math"


def test_refused_slots_are_neither_begun_with_nor_moved_to() -> None:
    route = AnswerRoute(told(), sure("math"), LENGTH, excluded={"math"})
    assert route.draft == GENERAL
    assert AnswerRoute(told(), sure("math"), LENGTH, excluded=DRAFTS).draft == GENERAL
    route = AnswerRoute(told(), sure("math"), LENGTH)
    for _ in range(12):
        route.observe(judged(LENGTH, 0))
    assert route.better((), TOKENS) == GENERAL
    assert route.better({GENERAL}, TOKENS) in {*TASKS, None} - {"math"}
    assert route.better(set(DRAFTS) - {"math"}, TOKENS) is None


def test_no_move_pays_at_the_end_of_an_answer() -> None:
    route = AnswerRoute(told(), sure("math"), LENGTH)
    for _ in range(12):
        route.observe(judged(LENGTH, 0))
    assert route.better((), 100) is not None
    assert route.better((), 1) is None


def test_a_slot_that_the_router_does_not_know_is_not_chosen() -> None:
    table = RoutingTable((*DRAFTS, "control"), {})
    route = AnswerRoute(table, sure("math"), LENGTH)
    assert set(route.tasks) == set(DRAFTS)
    assert set(AnswerRoute(table, {"strange": 1.0}, LENGTH).tasks) == {GENERAL}


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6, 0.9])
def test_the_rate_of_a_token_gives_the_share_that_is_accepted(share: float) -> None:
    assert math.isclose((expected_tokens(token_rate(share), LENGTH) - 1) / LENGTH, share, abs_tol=1e-4)


CHANCES = st.fixed_dictionaries({draft: st.floats(0.0, 1.0) for draft in DRAFTS}).filter(
    lambda all_: sum(all_.values())
)
RATES = st.dictionaries(
    st.sampled_from(DRAFTS), st.dictionaries(st.sampled_from(TASKS), st.floats(0.0, 1.0), max_size=4), max_size=5
)
PASSES = st.lists(st.tuples(st.integers(1, 16), st.integers(0, 16)).map(lambda p: (p[0], min(p))), max_size=80)


@settings(max_examples=200, deadline=None)
@given(CHANCES, RATES, PASSES)
def test_whatever_happens_chances_sum_to_one_and_moves_are_few(
    weights: Mapping[str, float], rates: Mapping[str, Mapping[str, float]], passes: list[tuple[int, int]]
) -> None:
    whole = sum(weights.values())
    table = RoutingTable(DRAFTS, rates)
    route = AnswerRoute(table, {task: weight / whole for task, weight in weights.items()}, LENGTH)
    assert route.better((), TOKENS) is None, "there is no evidence"
    moves = 0
    for proposed, accepted in passes:
        route.observe(judged(proposed, accepted))
        better = route.better((), TOKENS)
        if better is not None:
            assert better != route.draft
            route.move(better)
            assert route.better((), TOKENS) is None, "nothing new is known"
            moves += 1
        assert math.isclose(sum(route.tasks.values()), 1.0)
        assert all(1.0 <= tokens <= LENGTH + 1 for tokens in route.worth().values())
    assert moves <= MOST_MOVES
    assert all(0.0 < table.rate(draft, task) < 1.0 for draft in DRAFTS for task in DRAFTS)


@settings(max_examples=100, deadline=None)
@given(CHANCES, st.integers(1, 60))
def test_a_draft_that_is_always_right_is_never_left(weights: Mapping[str, float], passes: int) -> None:
    whole = sum(weights.values())
    route = AnswerRoute(told(), {task: weight / whole for task, weight in weights.items()}, LENGTH)
    for _ in range(passes):
        route.observe(judged(LENGTH, LENGTH))
        assert route.better((), TOKENS) is None
