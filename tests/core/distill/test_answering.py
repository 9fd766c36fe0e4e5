"""Records equal the answers that a client gets, in any order of completion."""

from __future__ import annotations

import pytest

from core.distill.answering import answer
from core.errors import InvalidRequest
from core.generation import GenerationRequest
from core.traces.record import DICE, Record
from tests.core.toy import PROMPT, ToyModel, ToyVocabulary, plain_tokens, request


@pytest.mark.parametrize("max_sessions", [1, 3, 32])
def test_every_request_gets_its_own_answer(max_sessions: int) -> None:
    asked = [request(3 + 7 * (number % 4), seed=number, choice=number % 3) for number in range(10)]
    model = ToyModel()
    found = dict(answer(model, ToyVocabulary(), asked, max_sessions))
    assert sorted(found) == list(range(10))
    for index, record in found.items():
        assert record == Record(
            prompt_ids=PROMPT,
            output_ids=plain_tokens(asked[index]),
            params=asked[index].params,
            choice=asked[index].choice,
        )
    assert not model.cached


def test_no_more_sessions_run_at_a_time_than_allowed() -> None:
    model, most = ToyModel(), 0

    def watch(_: object) -> None:
        nonlocal most
        most = max(most, len(model.cached))

    model.on_forward = watch
    list(answer(model, ToyVocabulary(), [request(5, seed=number) for number in range(9)], 4))
    assert most == 4


def test_short_answers_come_before_long_ones() -> None:
    order = [index for index, _ in answer(ToyModel(), ToyVocabulary(), [request(30), request(2)])]
    assert order == [1, 0]


def test_a_resumed_answer_is_recorded_whole() -> None:
    whole = plain_tokens(request(12))
    resumed = GenerationRequest(tokens=PROMPT + whole[:5], prompt_length=len(PROMPT), params=request(12).params)
    [(_, record)] = answer(ToyModel(), ToyVocabulary(), [resumed])
    assert (record.prompt_ids, record.output_ids) == (PROMPT, whole)
    assert (record.tokens, record.prompt_length, record.seed, record.dice) == (PROMPT + whole, 5, 3, DICE)


def test_what_the_target_cannot_take_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        list(answer(ToyModel(context=5), ToyVocabulary(), [request()]))
