"""Answers of the verify engine over a model, with proposals that are all right, all wrong, or none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from core.generation import GenerationRequest
from core.model.base import Model
from core.sampling.params import SamplingParams
from core.verify.engine import VerifyConfig, VerifyEngine
from core.wire.messages import Propose
from tests.core.model.random_models import random_tokens
from tests.core.toy import Clock, ToyVocabulary

Answers = list[tuple[int, ...]]
TEMPERATURES = (0.0, 0.7, 1.0)
MAX_TOKENS = 40


class _Vocabulary(ToyVocabulary):
    """As many ids as the model has."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.num_valid = size


def answers(model: Model, *, right: Sequence[Sequence[int]] = (), wrong: bool = False) -> Answers:
    """Six answers, four at a time; `right` are the answers to propose, three tokens at a time."""
    engine = VerifyEngine(model, _Vocabulary(model.vocab_size), VerifyConfig(max_sessions=4), Clock())
    prompts = [tuple(random_tokens(20 + 17 * number, model.vocab_size, seed=number)) for number in range(6)]
    asked = [
        GenerationRequest(
            tokens=prompt,
            prompt_length=len(prompt),
            params=SamplingParams(seed=number, max_tokens=MAX_TOKENS, temperature=TEMPERATURES[number % 3]),
        )
        for number, prompt in enumerate(prompts)
    ]
    numbers = [engine.open([request])[0] for request in asked]
    found: dict[int, list[int]] = defaultdict(list)
    while engine.gauges()["sessions"]:
        for index, number in enumerate(numbers):
            done = len(found[number])
            guess = tuple(right[index][done : done + 3]) if right else (7, 7, 7) if wrong else ()
            if guess and done < MAX_TOKENS - 3:
                engine.receive(b"math#1", Propose(number, 0, len(prompts[index]) + done, guess))
        for number, run in engine.step():
            found[number] += run.tokens
    if right:
        assert engine.counts["accepted"] > 30
    return [tuple(found[number]) for number in numbers]
