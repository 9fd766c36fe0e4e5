"""Requests from the shipped family's corpora, and its target's answers to them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

import torch

from core.distill.answering import answer
from core.family import DRAFT_DIR, TARGET_DIR
from core.generation import GenerationRequest
from core.model.causal_lm import CausalLM, load_model
from core.replay.replay import Terms
from core.sampling.params import SamplingParams
from core.text.tokenizer import load_tokenizer
from core.traces.record import Record
from tests.family.corpora import items

TOKENIZER = load_tokenizer(TARGET_DIR)
TERMS = Terms(num_speculative_tokens=4, num_valid=TOKENIZER.num_valid, context=1024)
SESSIONS = 32
_PAGES = 16  # of 64 tokens, in the context


@cache
def target() -> CausalLM:
    return load_model(TARGET_DIR, dtype=torch.bfloat16, num_pages=_PAGES * SESSIONS)


def draft(**options: Any) -> CausalLM:
    return load_model(options.pop("path", DRAFT_DIR), dtype=torch.float32, num_pages=_PAGES, **options)


def requests(
    task: str, count: int, seed: int, split: Literal["train", "held_out"] = "held_out", **law: Any
) -> list[GenerationRequest]:
    """One-message conversations; `law` sets sampling parameters such as `max_tokens`."""
    found = []
    for number, item in enumerate(items(task, count, seed, split)):
        tokens = tuple(TOKENIZER.encode_chat([{"role": "user", "content": item.prompt}]))
        params = SamplingParams(**{"seed": 1000 * seed + number, "max_tokens": 64, **law})
        found.append(GenerationRequest(tokens=tokens, prompt_length=len(tokens), params=params))
    return found


def answered(asked: Sequence[GenerationRequest]) -> list[Record]:
    """The target's answers in the order of the requests."""
    records = dict(answer(target(), TOKENIZER, asked, SESSIONS))
    return [records[index] for index in range(len(asked))]
