"""Speculation over real models of each kind of layer: whatever a draft of the family proposes, answers are the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from core.draft.engine import DraftConfig, DraftEngine
from core.generation import GenerationRequest
from core.model.causal_lm import CausalLM, load_model
from core.model.decoder import DECODERS
from core.sampling.params import SamplingParams
from core.verify.engine import VerifyConfig, VerifyEngine
from core.verify.sources import DRAFTS_ALONE
from tests.core.model.random_models import random_tokens, save_model
from tests.core.pair import opened
from tests.core.simulation import VERIFIER
from tests.core.toy import VOCAB_SIZE, Clock, ToyVocabulary

FAMILIES: dict[str, dict[str, object]] = {
    "gemma3": {"model_type": "gemma3_text", "sliding_window": 40, "head_dim": 24, "num_hidden_layers": 6},
    "phi3": {"model_type": "phi3", "sliding_window": 75, "pad_token_id": 0, "eos_token_id": 1, "num_hidden_layers": 3},
}
PROMPTS = [random_tokens(length, VOCAB_SIZE, seed=length) for length in (5, 60, 100)]


@pytest.fixture(scope="module", params=FAMILIES)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_model(path, vocab_size=VOCAB_SIZE, **FAMILIES[request.param])
    return path


def loaded(directory: Path, *, decoder: str, num_layers: int | None = None) -> CausalLM:
    return load_model(directory, dtype=torch.bfloat16, num_pages=64, decoder=decoder, num_layers=num_layers)


def answers(target: CausalLM, draft: CausalLM | None, temperature: float) -> tuple[list[list[int]], int]:
    """The answers to `PROMPTS`, beside each other, and how many of their tokens a draft had proposed."""
    clock = Clock()
    verifier = VerifyEngine(target, ToyVocabulary(), VerifyConfig(lookup=DRAFTS_ALONE), clock)
    drafting = None if draft is None else DraftEngine(draft, VOCAB_SIZE, DraftConfig(), clock)
    tokens: dict[int, list[int]] = {}
    for seed, prompt in enumerate(PROMPTS):
        params = SamplingParams(seed=seed, max_tokens=50, temperature=temperature)
        request = GenerationRequest(tokens=tuple(prompt), prompt_length=len(prompt), params=params)
        [number] = verifier.open([request])
        tokens[number] = []
        if drafting is not None:
            drafting.open(opened(request, number), VERIFIER)
    accepted = 0
    while verifier.gauges()["sessions"]:
        while drafting is not None and drafting.drafting:
            drafting.step()
        for _, proposal in drafting.outgoing() if drafting is not None else ():
            verifier.receive(b"math#1", proposal)
        clock.now += 0.01
        for number, run in verifier.step():
            tokens[number] += run.tokens
            accepted += run.accepted
        for _, message in verifier.outgoing():
            if drafting is not None:
                drafting.receive(VERIFIER, message)
    return [*tokens.values()], accepted


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_answers_are_those_of_plain_decoding(directory: Path, decoder: str, temperature: float) -> None:
    """The answers end beyond the windows; one draft has the target's layers, the other the first of them."""
    plain, _ = answers(loaded(directory, decoder=decoder), None, temperature)
    for num_layers in (None, 1):
        draft = loaded(directory, decoder="compiled", num_layers=num_layers)
        drafted, accepted = answers(loaded(directory, decoder=decoder), draft, temperature)
        assert drafted == plain
        assert accepted
