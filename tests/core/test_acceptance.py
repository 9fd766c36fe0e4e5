"""Offline scoring says what the real engines do, and replays hits by the commit rule."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch

from core.acceptance import Acceptance, Terms, hits, replay, score, session_forward, total
from core.draft_engine import DraftConfig, DraftEngine
from core.generation import GenerationRequest, Run
from core.messages import Address, OpenSession
from core.record import Record
from core.sampling_params import SamplingParams
from core.verify_engine import VerifyConfig, VerifyEngine
from tests.core.family_records import TERMS, TOKENIZER, answered, draft, requests, target
from tests.core.toy import PROMPT, VOCAB_SIZE, ToyModel, plain_tokens, request

NOWHERE = Address("", "")


def lockstep(asked: GenerationRequest, num_speculative_tokens: int) -> tuple[Record, Acceptance]:
    """One generation by the real engines: the draft finishes its chain before every target pass."""
    verify = VerifyEngine(target(), TOKENIZER, VerifyConfig(num_speculative_tokens=16), lambda: 0.0)
    drafting = DraftEngine(draft(), TOKENIZER.num_valid, DraftConfig(), lambda: 0.0)
    asked = msgspec.structs.replace(asked, num_speculative_tokens=num_speculative_tokens)
    [session] = verify.open([asked])
    drafting.open(
        OpenSession(
            session=session,
            seat=0,
            verifier=NOWHERE,
            tokens=asked.tokens,
            prompt_length=asked.prompt_length,
            params=asked.params,
            choice=asked.choice,
            num_speculative_tokens=num_speculative_tokens,
        ),
        b"",
    )
    runs: list[Run] = []
    while verify.gauges()["sessions"]:
        while drafting.drafting:
            drafting.step()
        for _, proposal in drafting.outgoing():
            verify.receive(b"peer", proposal)
        runs += [run for _, run in verify.step()]
        for _, message in verify.outgoing():
            drafting.receive(b"", message)
    output = tuple(token for run in runs for token in run.tokens)
    after_prefill = [Acceptance(len(run.tokens), 1, run.proposed, run.accepted) for run in runs[1:]]
    return Record.of(asked, output), total(after_prefill)


LAWS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 1.0},
    "filtered": {"temperature": 0.8, "top_k": 50, "top_p": 0.9, "min_p": 0.02},
    "penalised": {"temperature": 0.7, "presence_penalty": 0.6, "frequency_penalty": 0.3},
    "biased": {"temperature": 1.0, "logit_bias": {300: 4.0, 301: -50.0}},
    "stopped by a string": {"temperature": 0.5, "stop": (".", "。")},
    "cut short": {"temperature": 0.0, "max_tokens": 7},
    "a single token": {"temperature": 1.0, "max_tokens": 1},
}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_the_score_is_what_the_engines_do(law: dict[str, Any]) -> None:
    general = draft()
    for asked in requests("chinese", 3, 1, **law) + requests("python", 2, 2, **law):
        for most in (1, 4, 7):
            record, happened = lockstep(asked, most)
            [scored] = score(general, [record], TERMS._replace(num_speculative_tokens=most))
            assert scored == happened


def test_the_score_of_a_later_choice_uses_its_own_dice() -> None:
    [asked] = requests("english", 1, 3)
    record, happened = lockstep(msgspec.structs.replace(asked, choice=2), 4)
    assert score(draft(), [record], TERMS) == [happened]
    assert score(draft(), [msgspec.structs.replace(record, choice=0)], TERMS) != [happened]


def test_the_same_model_hits_everywhere() -> None:
    records = answered(requests("logic", 2, 4, temperature=1.0))
    for record in records:
        assert all(hits(record, session_forward(target()), 1024, TERMS))


def record_of(tokens: tuple[int, ...], max_tokens: int = 40) -> Record:
    return Record(prompt_ids=PROMPT, output_ids=tokens, params=SamplingParams(seed=3, max_tokens=max_tokens))


@pytest.mark.parametrize("context", [8, 9, 13, 44, 45])
def test_a_draft_of_shorter_context_goes_on_from_its_last_half(context: int) -> None:
    record = record_of(plain_tokens(request(40)))
    terms = Terms(4, VOCAB_SIZE, 4096)
    draft_model = ToyModel(context=context)
    assert all(hits(record, session_forward(draft_model), context, terms))
    assert not draft_model.cached


TRUE, FALSE = True, False


@pytest.mark.parametrize(
    ("hit", "max_tokens", "most", "expected"),
    [
        # the first token comes from the prefill, whatever the draft thought of it
        ([FALSE, TRUE, TRUE, FALSE, TRUE], 40, 2, Acceptance(tokens=4, passes=2, proposed=4, accepted=3)),
        ([TRUE, FALSE, FALSE], 40, 4, Acceptance(tokens=2, passes=2, proposed=8, accepted=0)),
        ([TRUE, FALSE, FALSE], 40, 0, Acceptance(tokens=2, passes=2, proposed=0, accepted=0)),
        # an accepted last token ends the run without a bonus
        ([TRUE, TRUE, TRUE], 40, 2, Acceptance(tokens=2, passes=1, proposed=2, accepted=2)),
        # no more is proposed than the answer may still have, less the token after it
        ([TRUE, TRUE, TRUE, TRUE], 4, 5, Acceptance(tokens=3, passes=1, proposed=2, accepted=2)),
        ([TRUE], 1, 5, Acceptance()),
    ],
)
def test_replay(hit: list[bool], max_tokens: int, most: int, expected: Acceptance) -> None:
    record = record_of((7,) * len(hit), max_tokens)
    assert replay(hit, record, Terms(most, VOCAB_SIZE, 4096)) == expected


def test_the_targets_context_limits_proposals_too() -> None:
    record = record_of((7, 7, 7, 7))
    assert replay([TRUE] * 4, record, Terms(5, VOCAB_SIZE, len(PROMPT) + 4)).proposed == 2


def test_rates_of_sums() -> None:
    whole = total([Acceptance(4, 2, 4, 3), Acceptance(2, 2, 8, 0)])
    assert (whole.acceptance_rate, whole.tokens_per_pass) == (3 / 12, 6 / 4)
    assert (total([]).acceptance_rate, total([]).tokens_per_pass) == (0.0, 1.0)


def test_scoring_leaves_nothing_in_the_cache() -> None:
    model = draft()
    score(model, answered(requests("math", 1, 5, max_tokens=5)), TERMS)
    assert model.num_used_pages == 0
    assert torch.is_inference_mode_enabled() is False
