"""Grammars at work: which tokens an answer may go on with, and which it must.

The state of a grammar moves only with committed tokens. Looking ahead along proposed ones leaves it where it is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from threading import Lock
from typing import Protocol

import numpy as np
import tokenizers
from llguidance import LLExecutor, LLMatcher, LLTokenizer
from llguidance.numpy import (
    allocate_token_bitmask,
    fill_next_token_bitmask,
    fill_next_token_bitmask_par_with_draft_tokens,
)
from numpy.typing import NDArray

from core.errors import InvalidRequest

REMEMBERED = 64  # compiled grammars: clients send the same tools and schemas again

Allowed = NDArray[np.bool_]


class Vocabulary(Protocol):
    """The part of the target's tokenizer that grammars need."""

    @property
    def raw(self) -> tokenizers.Tokenizer: ...
    @property
    def eos_ids(self) -> Sequence[int]: ...
    @property
    def num_valid(self) -> int: ...


class Grammars:
    """The grammars of one vocabulary, compiled when they are first met; for use from several threads."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()
        self._lock = Lock()

    def begin(self, grammar: str) -> GrammarState:
        """A state before the first token. Raises `InvalidRequest` for a grammar that cannot be compiled."""
        return GrammarState(self._matcher(grammar).deep_copy(), self._executor, self._vocabulary.num_valid)

    def _matcher(self, grammar: str) -> LLMatcher:
        with self._lock:
            if grammar in self._compiled:
                self._compiled.move_to_end(grammar)
                return self._compiled[grammar]
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise InvalidRequest("grammar", _reason(matcher))
        with self._lock:
            self._compiled[grammar] = matcher
            while len(self._compiled) > REMEMBERED:
                self._compiled.popitem(last=False)
        return matcher

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        """It takes a quarter of a second to make for 49,152 ids."""
        vocabulary = self._vocabulary
        return LLTokenizer(vocabulary.raw.to_str(), n_vocab=vocabulary.num_valid, eos_token=list(vocabulary.eos_ids))

    @cached_property
    def _executor(self) -> LLExecutor:
        return LLExecutor()


class GrammarState:
    """The place of one answer in its grammar. `fault` says why the grammar gave up, if it did."""

    def __init__(self, matcher: LLMatcher, executor: LLExecutor, num_ids: int) -> None:
        self._matcher = matcher
        self._executor = executor
        self._num_ids = num_ids

    @property
    def fault(self) -> str:
        return _reason(self._matcher)

    def advance(self, tokens: Sequence[int]) -> None:
        """The answer has grown by these tokens."""
        self._matcher.consume_tokens(list(tokens))

    def valid(self, proposed: Sequence[int]) -> int:
        """How many of the tokens, from the first, the answer may go on with."""
        return int(self._matcher.validate_tokens(list(proposed))) if proposed else 0

    def forced(self) -> list[int]:
        """The tokens that the answer must go on with; no others are allowed there."""
        return list(self._matcher.compute_ff_tokens())

    def allowed(self, proposed: Sequence[int]) -> Allowed:
        """The ids that may follow the first j of the proposed tokens, bool [1 + proposed, ids].

        The proposed tokens must be valid.
        """
        bits = allocate_token_bitmask(1 + len(proposed), self._num_ids)
        if proposed:
            rows = [(self._matcher, 0, list(proposed))]
            fill_next_token_bitmask_par_with_draft_tokens(self._executor, rows, bits)
        else:
            fill_next_token_bitmask(self._matcher, bits)
        return np.unpackbits(bits.view(np.uint8), axis=1, count=self._num_ids, bitorder="little").view(np.bool_)


def _reason(matcher: LLMatcher) -> str:
    """Why it gave up, without the state that llguidance adds; empty if it has not."""
    return str(matcher.get_error()).strip().splitlines()[0] if matcher.is_error() else ""
