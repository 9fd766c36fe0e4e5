"""A thousand sessions come and go in a cache too small for them: right answers, every page back, no memory held."""

from __future__ import annotations

import gc
import tempfile
from functools import cache
from random import Random

import psutil
import pytest
import torch

from core.generation import GenerationRequest
from core.model.base import Rows
from core.model.causal_lm import CausalLM, load_model
from core.model.pages import PAGE_SIZE
from core.verify.commit import Chain
from core.verify.draft_link import DraftLink
from core.verify.engine import VerifyConfig, VerifyEngine
from core.verify.session import VerifySession
from core.wire.messages import Propose
from tests.core.model.random_models import save_model
from tests.core.toy import Clock, ToyVocabulary, request

VOCAB = 50
CONTEXT = 256
CONTEXTS = 2  # that the cache holds
SESSIONS = 1000
GROWTH = 16 << 20  # bytes; 5 to 8 MB were seen, for products whose shape had not occurred before


class Vocabulary(ToyVocabulary):
    def __init__(self) -> None:
        super().__init__()
        self.num_valid = VOCAB


@cache
def models() -> tuple[CausalLM, CausalLM]:
    """The same weights twice: with a small cache, and with room for everything."""
    with tempfile.TemporaryDirectory() as directory:
        sizes = {"num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 32, "vocab_size": VOCAB}
        save_model(directory, **sizes, max_position_embeddings=CONTEXT)
        contexts = (CONTEXTS, 8)
        return tuple(load_model(directory, dtype=torch.float32, num_pages=n * CONTEXT // PAGE_SIZE) for n in contexts)


class Crowd:
    """Users who ask about a few long texts, propose at random, and often leave."""

    def __init__(self) -> None:
        self.random = Random(7)
        self.texts = [self.random.choices(range(VOCAB), k=length) for length in (60, 64, 100, 140)]
        self.engine = VerifyEngine(models()[0], Vocabulary(), VerifyConfig(6, prefill_chunk=24), Clock())
        self.asked: dict[int, GenerationRequest] = {}
        self.said: dict[int, list[int]] = {}
        self.left: set[int] = set()
        self.opened = 0

    def come(self) -> None:
        tokens = self.random.choice(self.texts) + self.random.choices(range(VOCAB), k=self.random.randint(1, 20))
        temperature, max_tokens = (
            self.random.choice([0.0, 1.0]),
            self.random.randint(1, 60) // self.random.randint(1, 9),
        )
        group = [
            request(max_tokens + 1, tokens=tokens, seed=self.opened, choice=choice, temperature=temperature)
            for choice in range(self.random.choice([1, 1, 1, 1, 2, 3]))
        ]
        numbers = self.engine.open(group)
        self.opened += len(numbers)
        self.asked |= dict(zip(numbers, group, strict=True))
        self.said |= {number: [] for number in numbers}

    def propose(self, number: int) -> None:
        run = self.random.choices(range(VOCAB), k=self.random.randint(0, 5))
        base = len(self.asked[number].tokens) + len(self.said[number])
        self.engine.receive(b"math#1", Propose(number, 0, base, tuple(run)))

    def leave(self, number: int) -> None:
        self.engine.close(number)
        self.left.add(number)

    def step(self) -> None:
        for number, run in self.engine.step():
            self.said[number] += run.tokens
        self.engine.outgoing()

    def run(self, until: int) -> None:
        """Until so many have come and all are gone again."""
        while self.opened < until or self.engine.gauges()["sessions"]:
            if self.opened < until and self.engine.gauges()["sessions"] < 12:
                self.come()
            for number in self.random.choices([*self.asked][-12:], k=3):
                self.propose(number)
            if self.random.random() < 0.05:
                self.leave(self.random.choice([*self.asked][-12:]))
            self.step()


def held() -> int:
    """Objects of sessions that are still referred to from anywhere."""
    gc.collect()
    return sum(type(thing) in (VerifySession, DraftLink, Chain) for thing in gc.get_objects())


def resident() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


@pytest.fixture(scope="module")
def crowd() -> Crowd:
    return Crowd()


@pytest.mark.thorough
def test_a_thousand_sessions_leave_nothing_behind(crowd: Crowd) -> None:
    before = held()
    crowd.run(SESSIONS // 2)
    half = resident()
    crowd.run(SESSIONS)
    assert resident() - half < GROWTH
    assert held() == before
    model, counts = models()[0], crowd.engine.counts
    free = {"free_pages": model.num_free_pages, "remembered_pages": model.num_prefix_pages}
    assert crowd.engine.gauges() == {"sessions": 0, "pages": 0, **free}
    assert model.num_free_pages == CONTEXTS * CONTEXT // PAGE_SIZE
    assert crowd.engine.wait() is None
    assert len(crowd.left) > 50
    assert counts["preemptions"] > 20
    assert 0.1 < counts["prefix_hit_tokens"] / counts["prompt_tokens"] < 0.9


@pytest.mark.thorough
def test_every_page_is_given_out_again(crowd: Crowd) -> None:
    crowd.run(SESSIONS)
    model = models()[0]
    assert model.num_prefix_pages > 0
    for session in range(CONTEXTS):
        model.open(session)
    model.forward([Rows(session, [1] * CONTEXT, 0) for session in range(CONTEXTS)])
    assert (model.num_free_pages, model.num_prefix_pages) == (0, 0)
    for session in range(CONTEXTS):
        model.close(session)
    assert (model.num_used_pages, model.num_prefix_pages) == (0, 0)


@pytest.mark.thorough
def test_answers_are_those_of_sessions_alone(crowd: Crowd) -> None:
    crowd.run(SESSIONS)
    whole = 0
    for number in [*crowd.asked][::12]:
        engine = VerifyEngine(models()[1], Vocabulary(), VerifyConfig(), Clock())
        engine.open([crowd.asked[number]])
        answer = [token for _ in range(CONTEXT) for _, run in engine.step() for token in run.tokens]
        said = crowd.said[number]
        assert said == answer[: len(said)]
        assert number in crowd.left or said == answer
        whole += said == answer
    assert whole > 50
