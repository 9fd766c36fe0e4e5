"""What target, draft and both engines answer together, against transformers in fp32 and dice written a second time."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from core.draft.engine import DraftConfig, DraftEngine
from core.family import DRAFT_DIR, TARGET_DIR
from core.generation import GenerationRequest
from core.model.causal_lm import load_model
from core.sampling.params import SamplingParams
from core.text.tokenizer import Tokenizer, load_tokenizer
from core.verify.engine import VerifyConfig, VerifyEngine
from core.wire.messages import Address, OpenSession
from tests.family.corpora import TASKS, items

PROMPTS = 100
TEMPERATURES = (0.0, 0.7, 1.0)
ANSWER = 48
TOGETHER = 32  # sessions in a pass
MARGIN = 1e-4
VERIFIER, DRAFT = b"verifier", b"general#1"


# ---- the reference


def gumbel(seed: int, position: int, vocab_size: int) -> np.ndarray:
    """The dice a second time: a counter hashed by SplitMix64, for choice 0."""
    golden = np.uint64(0x9E3779B97F4A7C15)

    def mix(word: np.ndarray) -> np.ndarray:
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return word ^ (word >> np.uint64(31))

    key = mix(
        mix(mix(np.array([seed], np.uint64) + golden) + golden) + np.array([position], np.uint64) * golden + golden
    )
    bits = mix(key + np.arange(1, vocab_size + 1, dtype=np.uint64) * golden)
    return -np.log(-np.log(((bits >> np.uint64(32)).astype(np.float64) + 0.5) / 2**32))


def choice_and_margin(logits: np.ndarray, params: SamplingParams, position: int) -> tuple[int, float]:
    scores = logits.astype(np.float64)
    if params.temperature > 0.0:
        scores = scores + params.temperature * gumbel(params.seed, position, len(scores))
    second, best = np.argsort(scores)[-2:]
    return int(best), float(scores[best] - scores[second])


@torch.inference_mode()
def differences(requests: list[GenerationRequest], answers: list[list[int]]) -> list[tuple[int, int, float]]:
    """(request, position, margin) where the reference, shown the answer so far, first chooses something else."""
    model = LlamaForCausalLM.from_pretrained(TARGET_DIR, dtype=torch.float32).eval()
    texts = [[*request.tokens, *answer] for request, answer in zip(requests, answers, strict=True)]
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    found = []
    for first in range(0, len(order), 16):
        batch = order[first : first + 16]
        longest = max(len(texts[index]) for index in batch)
        padded = torch.tensor([texts[index] + [0] * (longest - len(texts[index])) for index in batch])
        hidden = model.model(padded, use_cache=False).last_hidden_state  # padding is behind: nothing looks at it
        for index, row in zip(batch, hidden, strict=True):
            prompt = requests[index].prompt_length
            logits = model.lm_head(row[prompt - 1 : len(texts[index]) - 1]).numpy()
            for offset, token in enumerate(answers[index]):
                chosen, margin = choice_and_margin(logits[offset], requests[index].params, prompt + offset)
                if chosen != token:
                    found.append((index, offset, margin))
                    break
    return found


# ---- the service's side


def held_out(tokenizer: Tokenizer) -> list[GenerationRequest]:
    each = -(-PROMPTS // len(TASKS))
    found = [item for task in TASKS for item in items(task, each, 21, split="held_out")][:PROMPTS]
    requests = []
    for number, item in enumerate(found):
        prompt = tuple(tokenizer.encode_chat([{"role": "user", "content": item.prompt}]))
        for temperature in TEMPERATURES:
            params = SamplingParams(seed=1000 + number, max_tokens=ANSWER, temperature=temperature)
            requests.append(GenerationRequest(tokens=prompt, prompt_length=len(prompt), params=params))
    return requests


def speculate(requests: list[GenerationRequest], tokenizer: Tokenizer) -> tuple[list[list[int]], VerifyEngine]:
    """Both engines hand to hand: each round the draft finishes its chains, then the target passes.

    Their clock stands, so that rows seem free and every token is proposed: by a real one few are, and a busy machine
    decides which.
    """
    target = load_model(TARGET_DIR, dtype=torch.float32, num_pages=TOGETHER * 8)
    general = load_model(DRAFT_DIR, dtype=torch.float32, num_pages=TOGETHER * 8)
    verifier = VerifyEngine(target, tokenizer, VerifyConfig(max_sessions=TOGETHER), lambda: 0.0)
    draft = DraftEngine(general, tokenizer.num_valid, DraftConfig(), lambda: 0.0)
    answers: list[list[int]] = []
    index_of: dict[int, int] = {}
    while len(answers) < len(requests) or verifier.gauges()["sessions"]:
        while len(answers) < len(requests) and verifier.gauges()["sessions"] < TOGETHER:
            [number] = verifier.open([requests[len(answers)]])
            draft.open(opened(requests[len(answers)], number), VERIFIER)
            index_of[number] = len(answers)
            answers.append([])
        while draft.drafting:
            draft.step()
        for _, proposal in draft.outgoing():
            verifier.receive(DRAFT, proposal)
        for number, run in verifier.step():
            answers[index_of[number]] += run.tokens
        for _, message in verifier.outgoing():
            draft.receive(VERIFIER, message)
    return answers, verifier


def opened(request: GenerationRequest, number: int) -> OpenSession:
    return OpenSession(
        session=number,
        epoch=0,
        verifier=Address("", ""),
        tokens=request.tokens,
        prompt_length=request.prompt_length,
        params=request.params,
        choice=0,
        num_speculative_tokens=4,
    )


@pytest.mark.thorough
def test_answers_are_those_of_transformers_in_fp32(capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = load_tokenizer(TARGET_DIR)
    requests = held_out(tokenizer)
    answers, verifier = speculate(requests, tokenizer)
    found = differences(requests, answers)
    with capsys.disabled():
        for index, offset, margin in found:
            sys.stdout.write(f"\nrequest {index}: token {offset} differs, the reference's margin is {margin:.2e}\n")
    counts = verifier.counts
    assert len(answers) == PROMPTS * len(TEMPERATURES)
    assert counts["accepted"] > 0.2 * counts["proposed"] > 0
    assert all(margin < MARGIN for _, _, margin in found)
    assert len(found) <= 1
