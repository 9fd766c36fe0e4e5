"""A language model small enough to think about: the last three tokens pick a row of a table, and that is the logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tokenizers
import torch

from core.generation import GenerationRequest, Run
from core.model.base import Rows
from core.sampling_params import SamplingParams
from core.verify_engine import VerifyConfig, VerifyEngine

VOCAB_SIZE = 24
PROMPT = (1, 2, 3, 4, 5)
ROWS = 1009


class ToyModel:
    """Keeps each session's tokens as its cache. Models with the same salt are equal; `on_forward` sees every pass."""

    vocab_size = VOCAB_SIZE

    def __init__(self, salt: int = 0, context: int = 4096, sharpness: float = 1.5) -> None:
        self.context = context
        self.cached: dict[int, list[int]] = {}
        self.on_forward: Callable[[Sequence[Rows]], None] = lambda _: None
        self._salt = salt
        self._table = torch.randn(ROWS, VOCAB_SIZE, generator=torch.Generator().manual_seed(7)) * sharpness

    @property
    def num_used_pages(self) -> int:
        return len(self.cached)

    def open(self, session: int) -> None:
        assert session not in self.cached
        self.cached[session] = []

    def fork(self, source: int, session: int) -> None:
        assert session not in self.cached
        self.cached[session] = list(self.cached[source])

    def num_cached(self, session: int) -> int:
        return len(self.cached[session])

    def forward(self, batch: Sequence[Rows]) -> torch.Tensor:
        self.on_forward(batch)
        rows: list[int] = []
        for session, tokens, num_logits in batch:
            cache = self.cached[session]
            for index, token in enumerate(tokens):
                cache.append(token)
                assert len(cache) <= self.context
                if index >= len(tokens) - num_logits:
                    rows.append(self._row(cache[-3:]))
        return self._table[rows]

    def rollback(self, session: int, length: int) -> None:
        del self.cached[session][length:]

    def close(self, session: int) -> None:
        self.cached.pop(session, None)

    def _row(self, last: Sequence[int]) -> int:
        value = self._salt
        for token in last:
            value = value * 31 + token + 1
        return value % ROWS


class ToyVocabulary:
    """No text and no end of sequence unless given."""

    def __init__(self, eos_ids: Sequence[int] = ()) -> None:
        self.raw = tokenizers.Tokenizer(tokenizers.models.BPE())
        self.eos_ids = eos_ids
        self.num_valid = VOCAB_SIZE


class Clock:
    """Time that moves when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def request(
    max_tokens: int = 40, *, tokens: Sequence[int] = PROMPT, seed: int = 3, choice: int = 0, temperature: float = 1.0
) -> GenerationRequest:
    params = SamplingParams(seed=seed, max_tokens=max_tokens, temperature=temperature)
    return GenerationRequest(tokens=tuple(tokens), prompt_length=len(tokens), params=params, choice=choice)


def plain_tokens(asked: GenerationRequest, salt: int = 0, context: int = 4096) -> tuple[int, ...]:
    """What the target answers when nothing is ever proposed."""
    engine = VerifyEngine(ToyModel(salt, context), ToyVocabulary(), VerifyConfig(), Clock())
    engine.open([asked])
    runs: list[Run] = []
    while engine.gauges()["sessions"]:
        runs += [run for _, run in engine.step()]
    return tuple(token for run in runs for token in run.tokens)
