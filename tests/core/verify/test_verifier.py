"""When the runs of a pass are handed out: a client's first at once, later ones when nothing is waited for any more."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from msgspec import structs

from core.draft_key import DraftKey
from core.generation import GenerationRequest, Run
from core.policy.draft_policy import OTHERS
from core.verify.engine import VerifyConfig
from core.verify.verifier import Verifier
from core.wire.engine_thread import EngineStopped
from tests.core.toy import ToyModel, ToyVocabulary, request

FIRST, SECOND, LAST = Run((1,)), Run((2, 3)), Run((4,), finish_reason="length")


class ScriptedEngine:
    """Waits as long as it is told to, and says what it is told to."""

    def __init__(self) -> None:
        self.to_wait: float | None = 0.0
        self.runs: list[tuple[int, Run]] = []
        self.refused = {DraftKey("math"): True, OTHERS: False}

    def open(self, choices: list[GenerationRequest]) -> list[int]:
        return [7 + at for at, _ in enumerate(choices)]

    def close(self, number: int) -> None:
        self.runs = [(of, run) for of, run in self.runs if of != number]

    def declined(self, _: float) -> dict[DraftKey, bool]:
        return self.refused

    def wait(self) -> float | None:
        return self.to_wait

    def step(self) -> list[tuple[int, Run]]:
        return self.runs

    def failures(self) -> list[object]:
        return []

    def outgoing(self) -> list[object]:
        return []

    def urgent(self) -> list[object]:
        return []


class Turns:
    """A verifier whose turns are taken one by one, and what its client was told."""

    def __init__(self, choices: int = 1) -> None:
        self.verifier = Verifier(ToyModel, ToyVocabulary(), VerifyConfig())
        self.engine = self.verifier._engine = ScriptedEngine()  # type: ignore[assignment]
        self.told: list[tuple[int, object]] = []
        self.verifier._open([request(9)] * choices, lambda choice, run: self.told.append((choice, run)))

    def take(self, to_wait: float | None, *runs: tuple[int, Run]) -> list[tuple[int, object]]:
        """A turn in which a pass, if there is one, says these; returns what the client was told in it."""
        self.engine.to_wait, self.engine.runs, before = to_wait, list(runs), len(self.told)
        self.verifier._turn()
        return self.told[before:]


@pytest.fixture
def turns() -> Iterator[Turns]:
    turns = Turns(choices=2)
    yield turns
    turns.verifier._ended()


def test_a_first_run_leaves_with_its_pass_and_the_next_one_when_no_draft_is_waited_for(turns: Turns) -> None:
    assert turns.take(0.0, (7, FIRST)) == [(0, FIRST)]
    assert turns.take(0.0, (7, SECOND)) == []
    assert turns.take(0.001) == []
    assert turns.take(0.0, (7, LAST)) == [(0, SECOND)]
    assert turns.take(None) == [(0, LAST)]


def test_one_clients_first_run_takes_all_of_its_pass_along_in_order(turns: Turns) -> None:
    turns.take(0.0, (7, FIRST))
    assert turns.take(0.0, (7, SECOND), (8, FIRST)) == [(0, SECOND), (1, FIRST)]


def test_who_has_gone_meanwhile_is_told_nothing(turns: Turns) -> None:
    turns.take(0.0, (7, FIRST), (8, FIRST))
    assert turns.take(0.0, (7, SECOND), (8, SECOND)) == []
    turns.verifier._close([7])
    assert turns.take(None) == [(1, SECOND)]


def test_a_verifier_that_ends_hands_out_what_it_held_before_it_says_so() -> None:
    turns = Turns()
    turns.take(0.0, (7, FIRST))
    turns.take(0.0, (7, SECOND))
    turns.verifier._ended()
    assert turns.told[1] == (0, SECOND)
    assert isinstance(turns.told[2][1], EngineStopped)


@pytest.mark.parametrize(("always", "declined"), [(False, {DraftKey("math"): True, OTHERS: False}), (True, {})])
def test_no_draft_is_declined_for_a_request_that_always_wants_one(
    turns: Turns, always: bool, declined: dict[DraftKey, bool]
) -> None:
    asked = structs.replace(request(9), always_draft=always)
    assert turns.verifier._open([asked], lambda _choice, _run: None).declined == declined


@pytest.mark.parametrize(("threads", "cores", "lookahead"), [(1, 2, True), (2, 2, False), (4, 2, False)])
def test_drafts_draft_ahead_only_where_the_target_leaves_a_core(
    monkeypatch: pytest.MonkeyPatch, threads: int, cores: int, lookahead: bool
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    verifier = Verifier(ToyModel, ToyVocabulary(), VerifyConfig())
    verifier._begin()
    assert verifier._engine.policy.lookahead == lookahead
    verifier._ended()
