"""Answers that a grammar allows, of a model without sense and of one that looks for what is forbidden."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.grammar.matching import Allowed, Grammars, GrammarState
from core.text.tokenizer import Tokenizer

LONGEST = 120  # tokens
_ENDING = (b'"', b'"}', b"]", b"}", b'",', b"Z", b"]}")
_RANK = 8
_HOSTILE = 0.3  # chance of a hostile text where one may begin


class RandomModel:
    """Its logits depend on the token before, and it ends things the sooner, the longer an answer is."""

    def __init__(self, tokenizer: Tokenizer, seed: int) -> None:
        self.tokenizer = tokenizer
        self._numbers = np.random.default_rng(seed)
        size = tokenizer.num_valid
        self._before, self._after = (self._numbers.normal(size=(size, _RANK)) for _ in range(2))

    @cached_property
    def _ends(self) -> NDArray[np.float64]:
        tokens = range(self.tokenizer.num_valid)
        return np.array([float(self.tokenizer.token_bytes(token) in _ENDING) for token in tokens])

    def draw(self, last: int, position: int, allowed: Allowed, temperature: float) -> int:
        """A token that is allowed, the likeliest one at temperature 0."""
        logits = self._after @ self._before[last] / 2 + self._ends * position / 10
        logits[list(self.tokenizer.eos_ids)] += position / 5
        if temperature:
            logits = logits / temperature + self._numbers.gumbel(size=len(logits))
        return int(np.argmax(np.where(allowed, logits, -np.inf)))


def hostile_texts(schema: Any) -> list[str]:
    """Texts that are nearly what a schema forbids: bounds and their neighbours, and its names spelled otherwise."""
    texts = ["-0", "0", "1e999", "1.0", "{", '{"', "[]", '""', "null"]
    for value in _parts(schema):
        if isinstance(value, bool):
            continue
        if isinstance(value, int | float):
            below, whole, above = (str(int(value) + step) for step in (-1, 0, 1))
            plain = f"{value:f}".rstrip("0").rstrip(".") if abs(value) < 1e15 else whole
            texts += [plain, f"{plain}.0", below, whole, above, f"{whole}.{'0' * 30}1"]
            texts += [f"{text}.{'9' * 25}" for text in (whole, below)]
        if isinstance(value, str) and len(value) < 12:
            spelled = "".join(f"\\u{ord(character):04x}" for character in value if ord(character) < 0x10000)
            texts += [json.dumps(value), json.dumps(value, ensure_ascii=False), f'"{spelled}"', f'"{value}']
    return texts


def _parts(schema: Any) -> Iterator[Any]:
    if isinstance(schema, dict):
        for name, inner in schema.items():
            yield name
            yield from _parts(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _parts(inner)
    else:
        yield schema


def answered(
    grammar: str, grammars: Grammars, model: RandomModel, temperature: float, hostile: list[str], random: Random
) -> str | None:
    """A whole answer; None if it grew too long."""
    state, said, last = grammars.begin(grammar), b"", 0
    tokenizer = model.tokenizer
    for position in range(LONGEST):
        if hostile and random.random() < _HOSTILE:
            for token in _hostile(state, tokenizer, random.choice(hostile)):
                state.advance([token])
                said += tokenizer.token_bytes(token)
                last = token
        [allowed] = state.allowed(())
        assert not state.fault
        assert allowed.any(), f"nothing may follow {said!r}"
        last = model.draw(last, position, allowed, temperature)
        if last in tokenizer.eos_ids:
            return said.decode()
        state.advance([last])
        said += tokenizer.token_bytes(last)
    return None


def _hostile(state: GrammarState, tokenizer: Tokenizer, text: str) -> list[int]:
    """As much of the text as may stand here."""
    tokens = tokenizer.encode_answer(text)
    return tokens[: state.valid(tokens)]
