"""The walk over sessions of any model, here in vLLM, whose pages forks and prefixes share as they share ours."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import torch
from hypothesis import settings

from core.model.base import Rows
from core.model.causal_lm import CausalLM
from tests.core.model.random_models import feed, fresh, random_tokens, save_model
from tests.core.model.test_sessions import Walk
from tests.core.model.walks import NUM_PAGES, TEXTS
from tests.vllm.models import SIZES, in_vllm


@cache
def walked_model() -> tuple[CausalLM, CausalLM]:
    """As in the tests of our own, but for heads of 32; the cache has more pages than are given out."""
    sizes = {"num_hidden_layers": 1, "hidden_size": 128, "vocab_size": 50, "max_position_embeddings": len(TEXTS[0])}
    with tempfile.TemporaryDirectory() as directory:
        save_model(Path(directory), **sizes)
        return _with_few_pages(Path(directory)), _with_few_pages(Path(directory))


def _with_few_pages(directory: Path) -> CausalLM:
    model = in_vllm(directory, tokens=len(TEXTS[0]), sessions=8)
    decoder = model._decoder
    decoder.num_pages = NUM_PAGES
    return CausalLM(model.vocab_size, model.context, decoder)


class VllmWalk(Walk):
    models = staticmethod(walked_model)


VllmWalk.TestCase.settings = settings(max_examples=15, stateful_step_count=30, deadline=None, derandomize=True)
test_random_walks = VllmWalk.TestCase


def test_a_pass_of_more_rows_than_vllm_takes_is_cut(tmp_path: Path) -> None:
    save_model(tmp_path, **SIZES)
    tokens = random_tokens(300, 304)
    model = in_vllm(tmp_path, sessions=1)
    whole = fresh(model, 0, tokens)
    assert torch.equal(whole, torch.cat([fresh(model, 1, tokens[:200]), feed(model, 1, tokens[200:], 7)]))
    model.open(2)
    last = model.forward([Rows(2, tokens, 1)])
    assert torch.equal(last, whole[-1:])
