"""The bench of long prompts beside answers: what it compares with, and that a turn of it runs."""

from __future__ import annotations

from functools import partial

import torch

from core.family import TARGET_DIR
from core.model.causal_lm import load_model
from core.policy.prompt_costs import PromptCosts
from core.policy.prompt_share import Room, UnreadPrompt
from core.text.tokenizer import load_tokenizer
from core.verify import batch
from core.verify.engine import VerifyConfig
from core.verify.verifier import Verifier
from tests.bench.stalls import BOUNDED, FIRST_COME, Asking, Measured, as_json, first_come, sharing, table, take_turn


def test_first_come_fills_the_chunk_in_order_whatever_it_takes() -> None:
    prompts = [UnreadPrompt(300, 0), UnreadPrompt(20, 0), UnreadPrompt(9, 0)]
    assert first_come(prompts, Room(310, 0.001), PromptCosts()) == [300, 10, 0]


def test_the_engine_shares_prompts_as_ever_when_the_bench_is_over() -> None:
    before = batch.shares
    with sharing(FIRST_COME):
        assert batch.shares is first_come
    with sharing(BOUNDED):
        assert batch.shares is before
    assert batch.shares is before


def test_a_turn_measures_everything_it_names() -> None:
    tokenizer = load_tokenizer(TARGET_DIR)
    load = partial(load_model, TARGET_DIR, dtype=torch.float32, num_pages=64)
    verifier = Verifier(load, tokenizer, VerifyConfig(max_sessions=8, prefill_chunk=32))
    verifier.start()
    measured = Measured()
    try:
        asking = Asking(verifier, tokenizer.num_valid)
        for contender in (FIRST_COME, BOUNDED):
            take_turn(asking, measured, contender, 0, [60])
    finally:
        verifier.stop()
    assert set(measured.gaps) == {(FIRST_COME, 60), (BOUNDED, 60)}
    assert all(measured.gaps.values())
    text = table(measured)
    assert "| beside 60 tokens, bounded |" in text
    assert "| short answer behind 60 tokens |" in text
    assert "| 4 answers of 64 tokens and 60 tokens read |" in text
    assert set(as_json(measured)) == {"between_tokens", "between_tokens_alone", "durations"}
