"""Replays equal the counts of the real engines, and follow the commit rule."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch

from core.draft.engine import DraftConfig, DraftEngine
from core.family import TARGET_DIR
from core.generation import GenerationRequest, Run
from core.model.base import drawable_ids
from core.model.draft_vocabulary import DraftVocabulary
from core.replay.replay import (
    AcceptanceCounts,
    Forward,
    Terms,
    hits_among,
    output_logits,
    replay,
    score_draft,
    session_forward,
    total,
)
from core.sampling.params import SamplingParams
from core.traces.record import Record
from core.verify.engine import VerifyConfig, VerifyEngine
from core.verify.sources import DRAFTS_ALONE
from core.wire.messages import Address, OpenSession
from tests.core.family_records import TERMS, TOKENIZER, answered, draft, requests, target
from tests.core.toy import PROMPT, VOCAB_SIZE, ToyModel, plain_tokens, request

NOWHERE = Address("", "")


def hits(record: Record, forward: Forward, context: int, terms: Terms) -> list[bool]:
    """Of a draft whose logits are of all ids."""
    return hits_among(terms.num_valid, record, output_logits(record, forward, context))


def lockstep(
    asked: GenerationRequest, num_speculative_tokens: int, vocabulary: DraftVocabulary | None = None
) -> tuple[Record, AcceptanceCounts]:
    """One generation by the real engines: the draft finishes its chain before every target pass."""
    verify = VerifyEngine(
        target(), TOKENIZER, VerifyConfig(num_speculative_tokens=16, lookup=DRAFTS_ALONE), lambda: 0.0
    )
    drafting = DraftEngine(draft(vocabulary=vocabulary), TOKENIZER.num_valid, DraftConfig(), lambda: 0.0)
    asked = msgspec.structs.replace(asked, num_speculative_tokens=num_speculative_tokens)
    [session] = verify.open([asked])
    drafting.open(
        OpenSession(
            session=session,
            epoch=0,
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
    after_prefill = [AcceptanceCounts(len(run.tokens), 1, run.proposed, run.accepted) for run in runs[1:]]
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
            [scored] = score_draft(general, [record], TERMS._replace(num_speculative_tokens=most))
            assert scored == happened


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_the_score_of_a_draft_with_a_vocabulary_is_what_it_does(law: dict[str, Any]) -> None:
    vocabulary = DraftVocabulary.from_ids(range(0, 2048, 2), 2048)
    cut = draft(vocabulary=vocabulary)
    for asked in requests("chinese", 2, 1, **law):
        record, happened = lockstep(asked, 4, vocabulary)
        assert record == lockstep(asked, 0)[0]  # the answer is the target's own
        assert score_draft(cut, [record], TERMS) == [happened]


def test_the_score_of_a_later_choice_uses_its_own_dice() -> None:
    [asked] = requests("english", 1, 3)
    record, happened = lockstep(msgspec.structs.replace(asked, choice=2), 4)
    assert score_draft(draft(), [record], TERMS) == [happened]
    assert score_draft(draft(), [msgspec.structs.replace(record, choice=0)], TERMS) != [happened]


def test_the_same_model_hits_everywhere() -> None:
    records = answered(requests("logic", 2, 4, temperature=1.0))
    for record in records:
        assert all(hits(record, session_forward(target()), 1024, TERMS))


@pytest.mark.parametrize("law", [{"temperature": 0.0}, {}, {"presence_penalty": 0.9, "logit_bias": {300: 2.0}}])
def test_the_same_model_with_a_cut_head_hits_what_is_listed(law: dict[str, Any]) -> None:
    listed = range(0, 2048, 2)
    cut = draft(path=TARGET_DIR, vocabulary=DraftVocabulary.from_ids(listed, 2048))
    whole = draft(path=TARGET_DIR)  # in fp32 as well
    for record in answered(requests("english", 2, 4, **law)):
        forward, ids = session_forward(cut), drawable_ids(cut.head_ids, TERMS.num_valid)
        found = hits_among(ids, record, output_logits(record, forward, cut.context))
        expected = hits(record, session_forward(whole), whole.context, TERMS)
        listed_hits = [hit and token in listed for hit, token in zip(expected, record.output_ids, strict=True)]
        assert 0 < sum(listed_hits) < len(listed_hits)
        reached = [one for one, token in zip(found, record.output_ids, strict=True) if token not in listed]
        assert not any(reached)
        assert all(one for one, wanted in zip(found, listed_hits, strict=True) if wanted)


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
        # the first token comes from the prefill, whether the draft hits it or not
        ([FALSE, TRUE, TRUE, FALSE, TRUE], 40, 2, AcceptanceCounts(tokens=4, passes=2, proposed=4, accepted=3)),
        ([TRUE, FALSE, FALSE], 40, 4, AcceptanceCounts(tokens=2, passes=2, proposed=8, accepted=0)),
        ([TRUE, FALSE, FALSE], 40, 0, AcceptanceCounts(tokens=2, passes=2, proposed=0, accepted=0)),
        # an accepted last token ends the run without a bonus
        ([TRUE, TRUE, TRUE], 40, 2, AcceptanceCounts(tokens=2, passes=1, proposed=2, accepted=2)),
        # no more is proposed than the answer may still have, less the token after it
        ([TRUE, TRUE, TRUE, TRUE], 4, 5, AcceptanceCounts(tokens=3, passes=1, proposed=2, accepted=2)),
        ([TRUE], 1, 5, AcceptanceCounts()),
    ],
)
def test_replay(hit: list[bool], max_tokens: int, most: int, expected: AcceptanceCounts) -> None:
    record = record_of((7,) * len(hit), max_tokens)
    assert replay(hit, record, Terms(most, VOCAB_SIZE, 4096)) == expected


def test_the_targets_context_limits_proposals_too() -> None:
    record = record_of((7, 7, 7, 7))
    assert replay([TRUE] * 4, record, Terms(5, VOCAB_SIZE, len(PROMPT) + 4)).proposed == 2


def test_rates_of_sums() -> None:
    whole = total([AcceptanceCounts(4, 2, 4, 3), AcceptanceCounts(2, 2, 8, 0)])
    assert (whole.acceptance_rate, whole.tokens_per_pass) == (3 / 12, 6 / 4)
    assert (total([]).acceptance_rate, total([]).tokens_per_pass) == (0.0, 1.0)


def test_scoring_leaves_nothing_in_the_cache() -> None:
    model = draft()
    score_draft(model, answered(requests("math", 1, 5, max_tokens=5)), TERMS)
    assert model.num_used_pages == 0
    assert torch.is_inference_mode_enabled() is False
