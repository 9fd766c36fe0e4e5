"""Draft vocabularies of several sizes: what each costs and brings."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import pytest

from core.model.base import Rows
from core.model.draft_vocabulary import DraftVocabulary, most_frequent
from core.replay.replay import NUM_SPECULATIVE_TOKENS, score_draft, total
from core.replay.speed import DraftCosts
from core.replay.vocabulary_size import score_vocabularies, seconds_per_token
from tests.core.family_records import TERMS, TOKENIZER, answered, draft, requests
from tests.core.toy import VOCAB_SIZE, Clock, ToyModel


def test_the_scores_of_sizes_are_those_of_drafts_that_were_cut_to_them() -> None:
    laws = ({"temperature": 0.0}, {}, {"top_p": 0.9, "presence_penalty": 0.5, "logit_bias": {300: 1.0, 5: -2.0}})
    asked = [one for law in laws for one in requests("english", 2, 4, max_tokens=48, **law)]
    records = answered(asked)
    counts = Counter(token for record in records for token in record.output_ids)
    sizes = [DraftVocabulary.from_ids(most_frequent(counts, size, TOKENIZER.eos_ids), 2048) for size in (99, 20, 8)]
    costs = [DraftCosts(token, (1.0, 1.1, 1.2, 1.3)) for token in (0.2, 0.15, 0.12, 0.1)]
    scores = score_vocabularies(draft(), [None, *sizes], records, TERMS, costs)
    pairs = zip([None, *sizes], costs, strict=True)
    assert scores == [score_draft(draft(vocabulary=one), records, TERMS, cost) for one, cost in pairs]
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
