"""Recorded answers held to plain decoding: those of sound engines are equal, and no fault of a broken one passes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
import torch

from core.audit import audit as audits
from core.audit.audit import NEAR_TIE, AnswerVerdict, Question, audit
from core.audit.expected import RecordedIds
from core.draft.engine import DraftConfig
from core.generation import GenerationRequest
from core.sampling.params import SamplingParams
from tests.core.audit.broken_engines import accepts_a_wrong_token, answers, changed
from tests.core.pair import LAWS, Pair
from tests.core.toy import PROMPT, ToyModel, ToyVocabulary, plain_tokens, request

MAX_TOKENS = 40
EOS = (7,)


def asked(count: int = 6, **law: object) -> list[GenerationRequest]:
    """Requests with seeds of their own, two choices of each."""
    return [
        GenerationRequest(
            tokens=PROMPT,
            prompt_length=len(PROMPT),
            params=SamplingParams(**{"seed": number // 2, "max_tokens": MAX_TOKENS, **law}),
            choice=number % 2,
        )
        for number in range(count)
    ]


def audited(
    requests: Sequence[GenerationRequest],
    recorded: Sequence[Sequence[int]],
    eos_ids: Sequence[int] = (),
    model: ToyModel | None = None,
    **known: object,
) -> list[AnswerVerdict]:
    questions = [
        Question(one, RecordedIds(tuple(answer), **known)) for one, answer in zip(requests, recorded, strict=True)
    ]
    verdicts = dict(audit(model or ToyModel(), ToyVocabulary(eos_ids), questions, max_sessions=4))
    return [verdicts[index] for index in range(len(questions))]


def kinds(verdicts: Sequence[AnswerVerdict]) -> list[str]:
    return [verdict.kind for verdict in verdicts]


@pytest.mark.parametrize("law", LAWS)
def test_the_answers_of_a_sound_engine_are_equal(law: dict[str, object]) -> None:
    requests = asked(**law)
    verdicts = audited(requests, [plain_tokens(one) for one in requests], finish_reason="length")
    assert kinds(verdicts) == ["equal"] * 6
    assert [len(verdict.tokens) for verdict in verdicts] == [MAX_TOKENS] * 6


def test_the_answers_of_a_speculative_engine_are_equal() -> None:
    """With a draft that is often wrong."""
    requests = [request(MAX_TOKENS, seed=seed) for seed in range(4)]
    pair = Pair(ToyModel(salt=3), DraftConfig())
    committed: dict[int, list[int]] = {}
    for one in requests:
        [number] = pair.verifier.open([one])
        committed[number] = []
    while pair.verifier.gauges()["sessions"]:
        for number, run in pair.verifier.step():
            committed[number] += run.tokens
    assert kinds(audited(requests, list(committed.values()))) == ["equal"] * 4


@pytest.mark.parametrize("every", [1, 7, 41])
@pytest.mark.parametrize("law", LAWS)
def test_a_wrong_token_that_passes_every_so_often_is_found(law: dict[str, object], every: int) -> None:
    """Where: at the first one, and not behind it."""
    requests = asked(**law)
    recorded = answers(ToyModel(), requests, accepts_a_wrong_token(every))
    plain = answers(ToyModel(), requests)
    verdicts = audited(requests, recorded)
    for one, other, verdict in zip(recorded, plain, verdicts, strict=True):
        if one == other:
            assert verdict.kind == "equal"
            continue
        first = next(at for at, (token, right) in enumerate(zip(one, other, strict=True)) if token != right)
        assert verdict.kind == "different"
        assert verdict.differences[0].position == first
        assert (verdict.differences[0].token, verdict.differences[0].plain) == (one[first], other[first])
    assert "different" in kinds(verdicts)


@pytest.mark.parametrize(
    "misread", [{"temperature": 0.0}, {"seed": 99}, {"top_p": 1.0}, {"presence_penalty": 0.0}, {"logit_bias": {}}]
)
def test_an_engine_that_ignores_a_parameter_is_found(misread: dict[str, object]) -> None:
    requests = asked(12, top_p=0.5, presence_penalty=1.5, logit_bias={3: 4.0}, temperature=0.9)
    assert "different" in kinds(audited(requests, answers(ToyModel(), changed(requests, **misread))))


def test_choices_that_are_mixed_up_are_found() -> None:
    requests = asked(2)
    first, second = answers(ToyModel(), requests)
    assert kinds(audited(requests, [second, first])) == ["different"] * 2


@pytest.mark.parametrize("place", [0, 5, MAX_TOKENS - 1])
def test_a_token_that_is_lost_or_doubled_is_found(place: int) -> None:
    requests = asked(4)
    recorded = answers(ToyModel(), requests)
    lost = [answer[:place] + answer[place + 1 :] for answer in recorded]
    assert kinds(audited(requests, lost)) == ["different"] * 4
    doubled = [answer[: place + 1] + answer[place:] for answer in recorded]
    assert kinds(audited(requests, doubled)) == ["different"] * 4


def test_an_answer_without_an_end_is_held_to_what_there_is_of_it() -> None:
    requests = asked(4)
    recorded = [answer[:9] for answer in answers(ToyModel(), requests)]
    assert kinds(audited(requests, recorded, cut=True)) == ["equal"] * 4
    assert {len(verdict.tokens) for verdict in audited(requests, recorded, cut=True)} == {9}
    broken = [(*answer[:8], (answer[8] + 1) % 24) for answer in recorded]
    assert {verdict.differences[0].position for verdict in audited(requests, broken, cut=True)} == {8}


def test_an_answer_without_a_token_is_none_unless_it_was_cut() -> None:
    requests = asked(2)
    assert kinds(audited(requests, [(), ()])) == ["different"] * 2
    assert kinds(audited(requests, [(), ()], cut=True)) == ["skipped"] * 2


def test_many_that_are_skipped_keep_none_from_being_audited() -> None:
    requests = asked(12)
    recorded = [*[()] * 9, *answers(ToyModel(), requests)[9:]]
    assert kinds(audited(requests, recorded, cut=True)) == ["skipped"] * 9 + ["equal"] * 3


def test_the_reason_of_an_end_is_audited() -> None:
    requests = asked(8)
    recorded = answers(ToyModel(), requests, vocabulary=ToyVocabulary(EOS))
    ended = [("stop" if answer[-1] in EOS else "length") for answer in recorded]
    assert set(ended) == {"stop", "length"}
    for one, answer, reason in zip(requests, recorded, ended, strict=True):
        assert kinds(audited([one], [answer], EOS, finish_reason=reason)) == ["equal"]
        other = "length" if reason == "stop" else "stop"
        [verdict] = audited([one], [answer], EOS, finish_reason=other)
        assert verdict.kind == "different"
        assert repr(other) in verdict.complaint


def near_model(shift: float) -> ToyModel:
    """A model whose logits are rounded a little otherwise: each moves by `shift` at most."""
    model = ToyModel()
    model._table = model._table + shift * torch.rand(model._table.shape, generator=torch.Generator().manual_seed(1))
    return model


def test_what_rounds_otherwise_is_a_near_tie_and_is_audited_to_its_end() -> None:
    """The gap of two scores moves by as much as the logits at most; behind a near-tie the answer goes its own way."""
    requests = asked(40)
    shift = NEAR_TIE / 2
    verdicts = audited(requests, answers(near_model(shift), requests))
    assert set(kinds(verdicts)) == {"equal", "near-tie"}
    gaps = [float(difference.gap) for verdict in verdicts for difference in verdict.differences]
    assert 0.0 <= min(gaps) <= max(gaps) <= shift
    assert {len(verdict.tokens) for verdict in verdicts} == {MAX_TOKENS}


def test_a_fault_behind_a_near_tie_is_found() -> None:
    requests = asked(40)
    recorded = answers(near_model(NEAR_TIE / 2), requests)
    index = next(at for at, verdict in enumerate(audited(requests, recorded)) if verdict.kind == "near-tie")
    for wrong in range(24):
        broken = (*recorded[index][:-1], wrong)
        [verdict] = audited([requests[index]], [broken])
        if verdict.kind == "different":
            assert verdict.differences[-1].position == MAX_TOKENS - 1
            return
    pytest.fail("no wrong token was found")


def test_a_gap_over_the_limit_is_no_near_tie(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = asked(40)
    recorded = answers(near_model(NEAR_TIE / 2), requests)
    ties = [verdict for verdict in audited(requests, recorded) if verdict.kind == "near-tie"]
    assert ties
    monkeypatch.setattr(audits, "NEAR_TIE", 0.0)
    assert kinds(audited(requests, recorded)).count("different") == len(ties)


def test_a_token_at_the_edge_of_a_filter_is_a_near_tie() -> None:
    """It is likely enough on one machine and not on the other, however high its score is."""
    requests = asked(100, top_p=0.6, temperature=1.3)
    verdicts = audited(requests, answers(near_model(0.02), requests))
    assert "different" not in kinds(verdicts)
    recorded = answers(ToyModel(), changed(requests, top_p=0.61))
    assert "different" not in kinds(audited(requests, recorded))
    assert "different" in kinds(audited(requests, answers(ToyModel(), changed(requests, top_p=0.9))))


def test_what_the_target_cannot_take_is_skipped_and_the_others_are_audited() -> None:
    requests = asked(3)
    recorded = answers(ToyModel(), requests)
    long = msgspec.structs.replace(requests[1], tokens=(1,) * 5000, prompt_length=5000)
    verdicts = audited([requests[0], long, requests[2]], recorded)
    assert kinds(verdicts) == ["equal", "skipped", "equal"]
    assert verdicts[1].complaint
