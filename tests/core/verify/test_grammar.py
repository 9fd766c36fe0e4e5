"""Answers held to a grammar: whatever proposes, they are those of plain decoding, and agree with it.

Four edges on which other engines break have a test each, named after what breaks there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from llguidance import LLMatcher
from msgspec import structs

from core.draft_key import DraftKey
from core.errors import InvalidRequest
from core.generation import GenerationRequest, Run
from core.model.base import Rows
from core.sampling.params import SamplingParams
from core.verify.engine import VerifyConfig, VerifyEngine
from core.wire.messages import Propose
from tests.core.test_speculation import TOKENIZER, VOCAB, WordyModel, WordyVocabulary
from tests.core.toy import Clock

PROMPT = (40, 41, 42)
THINKS = 'start: thought "{" NUMBER "}"\nthought[lazy]: /[^!]*!/\nNUMBER: /[1-9][0-9]{2,5}/'
LISTED = LLMatcher.grammar_from_regex("(end|stop|dot)(, (end|stop|dot|[0-9]{2,4}))*[.]")
KEYED = LLMatcher.grammar_from_json_schema(
    {
        "type": "object",
        "properties": {"stopped": {"type": "boolean"}, "ended": {"enum": ["not", "end"]}},
        "required": ["stopped", "ended"],
    }
)
BANG = TOKENIZER.token_to_id("!")


def asked(grammar: str, **law: Any) -> GenerationRequest:
    choice = law.pop("choice", 0)
    params = SamplingParams(**({"seed": 5, "max_tokens": 60, "grammar": grammar} | law))
    request = GenerationRequest(tokens=PROMPT, prompt_length=len(PROMPT), params=params, num_speculative_tokens=16)
    return structs.replace(request, choice=choice)


def new_engine() -> VerifyEngine:
    return VerifyEngine(WordyModel(256), WordyVocabulary(), VerifyConfig(), Clock())


def answered(request: GenerationRequest, proposals: Sequence[Sequence[int]] = ()) -> list[Run]:
    """The runs of a request whose passes get these proposals, one after the other."""
    engine = new_engine()
    [number] = engine.open([request])
    runs: list[Run] = []
    for tokens in [*proposals, *[()] * 300]:
        if not engine.gauges()["sessions"]:
            return runs
        if tokens:
            at = len(PROMPT) + sum(len(run.tokens) for run in runs)
            engine.receive(b"math#1", Propose(number, 0, at, tuple(tokens)))
        runs += [run for _, run in engine.step()]
    raise AssertionError("the answer does not end")


def tokens_of(runs: Sequence[Run]) -> list[int]:
    return [token for run in runs for token in run.tokens]


def text_of(tokens: Sequence[int]) -> str:
    return str(TOKENIZER.decode(list(tokens)))


def plain(grammar: str, **law: Any) -> list[int]:
    return tokens_of(answered(structs.replace(asked(grammar, **law), num_speculative_tokens=0)))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_an_answer_agrees_with_its_grammar(seed: int, temperature: float) -> None:
    text = text_of(plain(LISTED, seed=seed, temperature=temperature, max_tokens=200))
    assert re.fullmatch("(end|stop|dot)(, (end|stop|dot|[0-9]{2,4}))*[.]", text)
    text = text_of(plain(THINKS, seed=seed, max_tokens=200, temperature=1.0, logit_bias={BANG: 3.0}))
    assert re.fullmatch(r"[^!]*!\{[1-9][0-9]{2,5}\}", text)


def test_a_masked_draw_is_that_of_the_most_likely_allowed_token() -> None:
    model, matcher = WordyModel(256), LLMatcher(_ll_tokenizer(), LISTED)
    chain = list(PROMPT)
    model.open(1)
    for token in plain(LISTED, temperature=0.0):
        begin = model.num_cached(1)
        [logits] = model.forward([Rows(1, chain[begin:], 1)])
        allowed = torch.tensor([matcher.compute_logit_bias()[i] > 0 for i in range(VOCAB)])
        assert token == int(torch.where(allowed, logits[:VOCAB], -torch.inf).argmax())
        matcher.consume_token(token)
        chain.append(token)
    assert len(chain) > len(PROMPT) + 3


def _ll_tokenizer() -> Any:
    return new_engine().grammars._tokenizer()


def test_reasoning_ends_inside_a_proposal() -> None:
    laws = [{"logit_bias": {BANG: 2.0}, "seed": seed} for seed in range(99)]
    law = next(law for law in laws if BANG in plain(THINKS, **law)[6:-5])
    truth = plain(THINKS, **law)
    ends = truth.index(BANG)
    for begin in range(max(1, ends - 7), ends):
        steps = [*[()] * begin, truth[begin : ends + 4]]
        runs = answered(asked(THINKS, **law), steps)
        assert tokens_of(runs) == truth
        assert max(run.accepted for run in runs) == ends + 4 - begin


def test_the_grammar_ends_inside_a_proposal() -> None:
    truth = plain(LISTED)
    assert truth[-1] in WordyVocabulary.eos_ids
    for behind in ([], [7], [7, 8, 9], [truth[-1]] * 3):
        runs = answered(asked(LISTED), [*[()] * (len(truth) - 4), truth[-4:] + behind])
        assert tokens_of(runs) == truth
        assert runs[-1].finish_reason == "stop"


def test_a_mask_is_not_stale_after_a_proposal_was_cut() -> None:
    truth = plain(LISTED)
    for at in range(1, len(truth) - 3):
        wrong = [*truth[at : at + 1], 7, *truth[at + 2 : at + 4]]  # the second one is not allowed
        runs = answered(asked(LISTED), [*[()] * at, wrong, *[truth[at + 2 : at + 4]] * 2])
        assert tokens_of(runs) == truth


def test_one_bad_mask_among_many_requests_ends_that_request_alone() -> None:
    engine = new_engine()
    good = [engine.open([asked(LISTED, seed=seed, max_tokens=200)])[0] for seed in range(3)]
    [bad] = engine.open([asked(LISTED, seed=9, max_tokens=200)])
    engine.step()
    session = engine._sessions.get(bad)
    assert session is not None
    assert session.grammar is not None
    session.grammar.advance([7])  # so that it gives up
    said: dict[int, list[int]] = {number: [] for number in [*good, bad]}
    failures: list[tuple[int, InvalidRequest]] = []
    first = {number: session for number in good if (session := engine._sessions.get(number)) is not None}
    before = {number: list(session.chain.tokens[len(PROMPT) :]) for number, session in first.items()}
    while engine.gauges()["sessions"]:
        for number, run in engine.step():
            said[number] += run.tokens
        failures += engine.failures()
    assert [number for number, _ in failures] == [bad]
    assert "gave up after 1 tokens" in str(failures[0][1])
    for seed, number in enumerate(good):
        assert before[number] + said[number] == plain(LISTED, seed=seed, max_tokens=200)


def test_a_grammar_that_cannot_be_compiled_is_refused_at_once() -> None:
    engine = new_engine()
    with pytest.raises(InvalidRequest, match="unknown name"):
        engine.open([asked("start: nothing")])
    assert not engine.gauges()["sessions"]


def test_forced_tokens_are_proposed_and_all_accepted() -> None:
    runs = answered(asked(KEYED))
    forced = [run for run in runs if run.source == "grammar" and run.proposed]
    assert forced
    assert all(run.accepted == run.proposed for run in forced)
    assert tokens_of(runs) == plain(KEYED)
    assert len(runs) <= 0.8 * len(plain(KEYED))


def test_a_resumed_answer_goes_on_in_its_grammar() -> None:
    truth = plain(KEYED)
    for kept in range(len(truth)):
        request = asked(KEYED)
        resumed = structs.replace(request, tokens=PROMPT + tuple(truth[:kept]))
        assert truth[:kept] + tokens_of(answered(resumed)) == truth


def test_no_end_comes_before_min_tokens() -> None:
    ends = {*WordyVocabulary.eos_ids, 50}
    for seed in range(8):
        said = tokens_of(answered(asked("", seed=seed, min_tokens=9, stop_ids=(50,))))
        assert ends.isdisjoint(said[:9])
        assert said[-1] in ends or len(said) == 60


@pytest.mark.parametrize("law", [{"min_tokens": 9}, {"ignore_eos": True}])
def test_what_a_grammar_cannot_keep_is_refused_beside_one(law: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="cannot be set with a grammar") as refused:
        new_engine().open([asked(LISTED, **law)])
    assert refused.value.field in law


def test_an_answer_goes_on_past_the_end_of_sequence_where_that_is_ignored() -> None:
    likely = dict.fromkeys(WordyVocabulary.eos_ids, 3.0)
    said = tokens_of(answered(asked("", ignore_eos=True, logit_bias=likely)))
    assert len(said) == 60
    assert not set(WordyVocabulary.eos_ids).isdisjoint(said)
    until = tokens_of(answered(asked("", ignore_eos=True, logit_bias=likely, stop_ids=(said[20],))))
    assert until == said[: said.index(said[20]) + 1]


def test_choices_that_share_a_prompt_have_its_logprobs_each() -> None:
    engine = new_engine()
    request = asked("", prompt_logprobs=1, max_tokens=4)
    numbers = engine.open([request, structs.replace(request, choice=1)])
    firsts: dict[int, Run] = {}
    while engine.gauges()["sessions"]:
        for number, run in engine.step():
            firsts.setdefault(number, run)
    assert {len(firsts[number].prompt_logprobs) for number in numbers} == {len(PROMPT) - 1}
    expected = [float(row.log_softmax(-1)[token]) for row, token in zip(_prompt_logits(), PROMPT[1:], strict=True)]
    assert [one.logprob for one in firsts[numbers[0]].prompt_logprobs] == pytest.approx(expected)


def _prompt_logits() -> torch.Tensor:
    model = WordyModel(256)
    model.open(1)
    return model.forward([Rows(1, PROMPT, len(PROMPT))])[:-1]


def test_scored_prompts_and_shared_ones_in_one_pass_draw_from_their_own_rows() -> None:
    """As many rows are only scored as are drawn from twice, so that the numbers say nothing."""
    scored = structs.replace(asked("", prompt_logprobs=1), tokens=PROMPT[:2], prompt_length=2)
    shared = [asked("", choice=choice, seed=7) for choice in range(2)]
    for group in ([scored, structs.replace(scored, choice=1)], [scored], shared):
        engine = new_engine()
        numbers = engine.open(group) + (engine.open(shared) if group == [scored] else [])
        said: dict[int, list[int]] = {number: [] for number in numbers}
        while engine.gauges()["sessions"]:
            for number, run in engine.step():
                said[number] += run.tokens
        alone = [tokens_of(answered(one)) for one in group + (shared if group == [scored] else [])]
        assert [said[number] for number in numbers] == alone


def test_a_grammar_that_fails_beside_a_shared_prompt_disturbs_nobody() -> None:
    engine, shared = new_engine(), [asked("", choice=choice, seed=7) for choice in range(2)]
    [bad] = engine.open([asked(LISTED)])
    session = engine._sessions.get(bad)
    assert session is not None
    assert session.grammar is not None
    session.grammar.advance([7])
    said: dict[int, list[int]] = {number: [] for number in engine.open(shared)}
    while engine.gauges()["sessions"]:
        for number, run in engine.step():
            said[number] += run.tokens
    assert [number for number, _ in engine.failures()] == [bad]
    assert list(said.values()) == [tokens_of(answered(one)) for one in shared]


def test_a_draft_whose_tokens_the_grammar_forbids_is_known_to_be_bad() -> None:
    engine = new_engine()
    [number] = engine.open([asked(LISTED, max_tokens=200)])
    before = engine.policy.estimates(DraftKey("math"), b"math#1", 1.0).acceptance.tokens(1)
    while engine.gauges()["sessions"]:
        session = engine._sessions.get(number)
        assert session is not None
        engine.receive(b"math#1", Propose(number, 0, session.length, (7, 7)))
        engine.step()
    assert engine.counts["proposed_draft"] == 0
    assert engine.policy.estimates(DraftKey("math"), b"math#1", 1.0).acceptance.tokens(1) - 1 < (before - 1) / 2
