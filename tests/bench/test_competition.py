"""The replay of a competition equals what the verify engine does, and without sources the replay of a draft."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import structs

from core.generation import GenerationRequest, Run
from core.policy.acceptance import AcceptanceEstimate
from core.policy.draft_policy import DraftPolicy
from core.replay.replay import AcceptanceCounts, Terms, replay
from core.traces.record import Record
from core.verify.engine import VerifyConfig
from core.verify.sources import DEFAULT, DRAFTS_ALONE
from core.verify.sources.choice import Sources
from tests.bench.competition import competition, counts
from tests.core.toy import PROMPT, VOCAB_SIZE, plain_tokens, request
from tests.core.verify.bench import Bench

TERMS = Terms(num_speculative_tokens=6, num_valid=VOCAB_SIZE, context=4096)
EVERYTHING = {**DEFAULT, "answers": {"max_tokens": 1000}}
ASKED = request(200, temperature=0.0)
ANSWER = plain_tokens(ASKED)
RECORD = Record(prompt_ids=PROMPT, output_ids=ANSWER, params=ASKED.params)
HIT = [index % 3 > 0 for index in range(len(ANSWER))]
NEARLY_RIGHT = tuple(token if index % 9 else 0 for index, token in enumerate(ANSWER))


def by_the_engine(bench: Bench, asked: GenerationRequest, hit: Sequence[bool] | None) -> list[Run]:
    """The runs after the prefill; the draft is in time for every pass, and its process names the general task."""
    [number] = bench.engine.open([asked])
    bench.step()
    while bench.sessions:
        known = len(bench.tokens(number))
        if hit is not None:
            ends = range(known, min(known + TERMS.num_speculative_tokens, len(ANSWER) - 1))
            run = [ANSWER[at] if hit[at] else (ANSWER[at] + 1) % VOCAB_SIZE for at in ends]
            bench.propose(number, len(PROMPT) + known, run, peer=b"general#1")
        bench.step()
    return [structs.replace(run, finish_reason=None) for run in bench.runs[number][1:]]


@pytest.mark.parametrize("owner", [None, "ann"])
@pytest.mark.parametrize("hit", [None, HIT], ids=["no draft", "a draft"])
@pytest.mark.parametrize("prediction", [(), NEARLY_RIGHT], ids=["no prediction", "a prediction"])
def test_the_competition_is_that_of_the_engine(
    prediction: tuple[int, ...], hit: list[bool] | None, owner: str | None
) -> None:
    bench = Bench(VerifyConfig(num_speculative_tokens=6, lookup=EVERYTHING))
    sources, draft = Sources(DraftPolicy(), EVERYTHING), AcceptanceEstimate()
    asked = structs.replace(ASKED, prediction=prediction, owner=owner)
    for _ in range(2):  # the second time there is an earlier answer
        replayed = list(competition(RECORD, TERMS, sources, hit, draft, prediction=prediction, owner=owner))
        assert replayed == by_the_engine(bench, asked, hit)
    spoke = {run.source for run in replayed if run.proposed}
    assert ("answers" in spoke) == (owner is not None)
    assert "own_text" in spoke or prediction or owner


def test_where_nothing_is_looked_up_it_is_the_replay_of_the_draft() -> None:
    sources = Sources(DraftPolicy(), DRAFTS_ALONE)
    runs = competition(RECORD, TERMS, sources, HIT, AcceptanceEstimate())
    assert counts(runs) == replay(HIT, RECORD, TERMS)


def test_with_neither_draft_nor_sources_every_pass_is_plain() -> None:
    runs = competition(RECORD, TERMS, Sources(DraftPolicy(), DRAFTS_ALONE), None, AcceptanceEstimate())
    assert counts(runs) == AcceptanceCounts(tokens=len(ANSWER) - 1, passes=len(ANSWER) - 1)
