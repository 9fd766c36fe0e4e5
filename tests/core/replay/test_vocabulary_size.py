"""The size of a draft vocabulary: what is measured, and what is chosen by it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.base import Rows
from core.model.draft_vocabulary import DraftVocabulary, most_frequent
from core.replay.replay import NUM_SPECULATIVE_TOKENS, score_draft, total
from core.replay.vocabulary_size import CLEARLY, MeasuredSize, choose_size, score_vocabularies, seconds_per_token
from tests.core.family_records import TERMS, TOKENIZER, answered, draft, requests
from tests.core.toy import VOCAB_SIZE, Clock, ToyModel

PASS = 0.010
WHOLE = MeasuredSize(2048, 0.001, 3.0)
MEASURED = st.builds(MeasuredSize, st.integers(1, 2048), st.floats(1e-5, 1e-2), st.floats(1.0, 7.0))


def test_cheaper_drafting_pays_for_some_misses_but_not_for_many() -> None:
    half, quarter = MeasuredSize(1024, 0.0006, 2.95), MeasuredSize(512, 0.0004, 2.2)
    assert choose_size(WHOLE, [half, quarter], PASS, 6) == half
    assert choose_size(WHOLE, [quarter], PASS, 6) == WHOLE
    assert choose_size(WHOLE, [], PASS, 6) == WHOLE
    assert choose_size(WHOLE, [half], 1.0, 6) == WHOLE  # beside such a pass drafting costs nothing


def test_a_gain_must_be_clear() -> None:
    for gain, chosen in ((1.01, 2048), (1.03, 512)):
        seconds = (WHOLE.tokens_per_pass / (gain * WHOLE.goodput(PASS, 6)) - PASS) / 6
        assert choose_size(WHOLE, [MeasuredSize(512, seconds, 3.0)], PASS, 6).size == chosen


@given(MEASURED, st.lists(MEASURED), st.floats(1e-4, 1.0), st.integers(1, 16))
def test_nothing_is_better_than_what_is_chosen(
    whole: MeasuredSize, cut: list[MeasuredSize], pass_seconds: float, most: int
) -> None:
    chosen = choose_size(whole, cut, pass_seconds, most)
    goodput = chosen.goodput(pass_seconds, most)
    clearly = 1.0 if chosen is not whole else CLEARLY
    assert all(one.goodput(pass_seconds, most) <= clearly * goodput for one in cut)
    assert chosen is whole or goodput > CLEARLY * whole.goodput(pass_seconds, most)


def test_the_scores_of_sizes_are_those_of_drafts_that_were_cut_to_them() -> None:
    laws = ({"temperature": 0.0}, {}, {"top_p": 0.9, "presence_penalty": 0.5, "logit_bias": {300: 1.0, 5: -2.0}})
    asked = [one for law in laws for one in requests("english", 2, 4, max_tokens=48, **law)]
    records = answered(asked)
    counts = Counter(token for record in records for token in record.output_ids)
    sizes = [DraftVocabulary.from_ids(most_frequent(counts, size, TOKENIZER.eos_ids), 2048) for size in (99, 20, 8)]
    scores = score_vocabularies(draft(), [None, *sizes], records, TERMS)
    assert scores == [score_draft(draft(vocabulary=one), records, TERMS) for one in (None, *sizes)]
    accepted = [total(own).accepted for own in scores]
    assert accepted[1] > accepted[2] > accepted[3] > 0


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("loops", [False, True])
def test_the_seconds_of_a_token_are_the_quickest_proposals(sampled: bool, loops: bool) -> None:
    clock, model = Clock(), ToyModel(loops=loops)
    paces = itertools.cycle([0.004, 0.001, 0.003])  # by proposal
    drawn = 0

    def take_time(batch: Sequence[Rows]) -> None:
        nonlocal drawn, pace
        if drawn % NUM_SPECULATIVE_TOKENS == 0:
            pace = next(paces)
        clock.now += pace if batch[0].num_logits else 1.0  # the prompt is not drafted
        drawn += batch[0].num_logits

    pace = 0.0
    model.on_forward = take_time
    assert seconds_per_token(model, VOCAB_SIZE, clock, sampled=sampled) == pytest.approx(0.001)
    assert model.cached == {}
