"""What ends a canary, and what a rollout that was lost goes on with."""

from __future__ import annotations

import pytest

from core.errors import ConfigError
from core.rollout.events import (
    AnswerEnded,
    Block,
    BlockingEnded,
    Deploy,
    Effect,
    Event,
    GoLive,
    GoLiveEnded,
    Looked,
    NotStarted,
    Prove,
    Release,
    Start,
    Started,
)
from core.rollout.state import GoingBack, RolloutState, first_state, todo
from core.rollout.step import UNDRAFTED, RolloutRules, step
from core.rollout.trial import FEWEST, JudgedAnswer

RULES = RolloutRules(canary=0.1, canary_answers=20, trial_answers=50)
A, B = Release("a", "router"), Release("b", "router")
GOOD, BAD = JudgedAnswer("math", 10, 8), JudgedAnswer("math", 10, 1)


def after(state: RolloutState, *events: Event, rules: RolloutRules = RULES) -> tuple[RolloutState, list[Effect]]:
    """The state after these events, and all effects that began with them."""
    begun = list[Effect]()
    for event in events:
        state, effects = step(state, event, rules)
        begun += effects
    return state, begun


def canary(live: str = "b", *, rules: RolloutRules = RULES, force: bool = False) -> RolloutState:
    """A service of `a`, which has a reference, with `b` as a canary."""
    answers = [AnswerEnded("a", GOOD)] * FEWEST
    deploy = Deploy("b", 0.1, force, live, proven=False, blocked="worse" if force else None)
    state, _ = after(first_state(A, live), *answers, deploy, Started(B, deploy.blocked), rules=rules)
    assert state.name == "canary"
    return state


@pytest.mark.parametrize("follow", [True, False])
def test_a_canary_that_another_service_blocked_ends_here_too(follow: bool) -> None:
    rules = RolloutRules(follow=follow)
    looked = Looked("a", proven=True, blocked={"b": "worse elsewhere"})
    state, effects = after(canary(rules=rules), looked, rules=rules)
    assert (state.name, state.split.served, effects) == ("steady", "a", [Prove("a")])
    assert state.last == "the canary of bundle b was ended: another service blocked it: worse elsewhere"
    assert "b" not in state.excluded  # who unblocks it for all, has it followed here too


def test_a_canary_that_was_forced_goes_on_though_it_is_blocked() -> None:
    state, _ = after(canary("a", force=True), Looked("a", proven=True, blocked={"b": "worse elsewhere"}))
    assert state.name == "canary"


def test_a_bundle_that_is_blocked_while_it_starts_does_not_serve() -> None:
    state, _ = after(first_state(A, "b"), Looked("b", proven=False, blocked={}), Started(B, "worse elsewhere"))
    assert (state.name, state.split.served) == ("steady", "a")
    assert "blocked meanwhile: worse elsewhere" in state.last


@pytest.mark.parametrize("before", [0, 3])
def test_a_canary_whose_drafts_never_propose_ends_and_is_not_blocked(before: int) -> None:
    bound = UNDRAFTED * RULES.canary_answers
    drafted, undrafted = [AnswerEnded("b", GOOD)] * before, [AnswerEnded("b", None)] * bound
    state, _ = after(canary(), *undrafted[1:], *drafted)
    assert state.name == "canary"
    state, effects = after(state, *undrafted)
    assert state.split == ("a", None, 0.0)
    assert effects == [Prove("a"), GoLive("a", "b")]
    assert state.last == f"the canary of bundle b was ended: its drafts proposed nothing in its last {bound} answers"
    state, effects = after(state, GoLiveEnded("read-only"), Looked("b", proven=False, blocked={}))
    assert (state.name, effects) == ("steady", [])  # nor is it taken up again, even if it is still live


def test_answers_without_a_draft_end_neither_a_trial_nor_what_is_steady() -> None:
    undrafted = UNDRAFTED * RULES.canary_answers
    state, _ = after(canary(), *[AnswerEnded("b", GOOD)] * RULES.canary_answers, GoLiveEnded())
    state, _ = after(state, *[AnswerEnded("b", None)] * undrafted)
    assert state.name == "trial"
    state, _ = after(first_state(A, "a"), *[AnswerEnded("a", None)] * undrafted)
    assert state.name == "steady"


def test_a_rollout_that_is_lost_before_the_new_bundle_is_live_does_not_take_up_the_one_before() -> None:
    deploy = Deploy("b", 0.0, False, "a", proven=False, blocked=None)
    state, effects = after(first_state(A, "a"), deploy, Started(B))
    assert effects[-1] == GoLive("b", "a")
    assert todo(state) == (GoLive("b", "a"),)
    state, effects = after(state, Looked("a", proven=True, blocked={}))
    assert (state.split.served, effects) == ("b", [])


def test_a_directory_that_cannot_be_written_does_not_undo_what_an_operator_deployed() -> None:
    deploy = Deploy("b", 0.0, True, "a", proven=False, blocked=None)
    state, _ = after(first_state(A, "a"), deploy, Started(B), GoLiveEnded("read-only file system"))
    assert state.last == "failed: read-only file system"
    state, effects = after(state, Looked("a", proven=True, blocked={}))
    assert (state.name, state.split.served, effects) == ("steady", "b", [])


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("blocked_first", [False, True])
def test_going_back_is_over_when_the_base_serves_and_the_version_is_blocked(failed: bool, blocked_first: bool) -> None:
    state, effects = after(canary(), *[AnswerEnded("b", BAD)] * 15)
    assert isinstance(state.phase, GoingBack)
    assert effects == [Start("a"), Block("b", state.phase.reason)]
    runs = NotStarted("a", "no room") if failed else Started(A)
    first, second = (BlockingEnded(), runs) if blocked_first else (runs, BlockingEnded())
    state, _ = after(state, first)
    assert (state.name, len(todo(state))) == ("going back", 1)
    state, _ = after(state, second)
    assert (state.name, state.split.served) == ("steady", "a")
    assert "was rolled back and is blocked: drafts had" in state.last


def test_a_bundle_that_could_not_be_blocked_is_not_taken_up_again() -> None:
    back = [*[AnswerEnded("b", BAD)] * 15, Started(A), BlockingEnded("read-only file system")]
    state, effects = after(canary(), *back, Looked("b", proven=False, blocked={}))
    assert (state.name, state.split.served) == ("steady", "a")
    assert Start("b") not in effects
    assert "could not be blocked (read-only file system)" in state.last


def test_pools_that_fail_for_now_are_tried_again_and_those_that_cannot_run_are_not() -> None:
    look = Looked("b", proven=False, blocked={})
    state, effects = after(first_state(A, "a"), look, NotStarted("b", "no controller", final=False), look)
    assert effects.count(Start("b")) == 2
    state, effects = after(state, NotStarted("b", "no room"), look)
    assert (state.name, effects) == ("steady", [Prove("a")])


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (Deploy("c", 0.0, False, "b", proven=False, blocked=None), "bundle b is a canary"),
        (Deploy("a", 0.0, False, "b", proven=True, blocked=None), ""),
    ],
)
def test_beside_a_canary_an_operator_deploys_it_or_the_one_before(event: Deploy, message: str) -> None:
    if message:
        with pytest.raises(ConfigError, match=message):
            step(canary(), event, RULES)
    else:
        state, effects = after(canary(), event)
        assert (state.name, effects) == ("going back", [Prove("a"), GoLive("a", "b")])


def test_a_bundle_that_is_blocked_is_deployed_by_force_only() -> None:
    with pytest.raises(ConfigError, match="is blocked: worse"):
        step(first_state(A, "a"), Deploy("b", 0.0, False, "a", proven=False, blocked="worse"), RULES)
    state, _ = after(first_state(A, "a"), Deploy("b", 0.0, True, "a", proven=False, blocked="worse"))
    assert state.name == "starting"
