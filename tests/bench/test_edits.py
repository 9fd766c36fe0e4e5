"""The bench of what is looked up, on answers of the toy: what predictions good and bad bring and cost."""

from __future__ import annotations

import pytest

from core.distill.record import Record
from core.distill.replay import Terms
from tests.bench.edits import Contender, Trial, contenders, measure, nearly_right, nonsense
from tests.core.toy import PROMPT, VOCAB_SIZE, plain_tokens, request

TERMS = Terms(6, VOCAB_SIZE, 4096)


def trials(count: int, temperature: float) -> list[Trial]:
    """Answers of 200 tokens, every third of which the draft misses."""
    found = []
    for seed in range(count):
        asked = request(200, seed=seed, temperature=temperature)
        answer = plain_tokens(asked)
        record = Record(prompt_ids=PROMPT, output_ids=answer, params=asked.params)
        found.append(Trial(record, [index % 3 > 0 for index in range(len(answer))], "math"))
    return found


def test_a_prediction_that_is_nearly_right_brings_many_tokens_a_pass() -> None:
    near = Contender("", {"prediction": {}}, drafted=False, predict=nearly_right)
    assert measure(trials(6, 1.0), near, TERMS).tokens_per_pass > 5.0


def test_a_nonsense_prediction_costs_next_to_nothing() -> None:
    wrong = Contender("", {"prediction": {}}, drafted=False, predict=nonsense)
    assert measure(trials(6, 1.0), wrong, TERMS).times_plain > 0.98


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_source_makes_a_draft_slower(temperature: float) -> None:
    draft, *others = contenders([])
    alone = measure(trials(6, temperature), draft, TERMS).times_plain
    for contender in others:
        if contender.drafted:
            assert measure(trials(6, temperature), contender, TERMS).times_plain > 0.98 * alone
