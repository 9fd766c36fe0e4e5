"""Grammars at work: which tokens an answer may go on with, and which it must.

The state of a grammar moves only with committed tokens. Looking ahead along proposed ones leaves it where it is.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import takewhile
from threading import Lock

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from numpy.typing import NDArray

from core.errors import InvalidRequest
from core.generation import Vocabulary
from core.grammar.complaints import of_text
from core.grammar.grammar_tokenizer import grammar_tokenizer

REMEMBERED = 64  # compiled grammars: clients send the same tools and schemas again
LIMITS = LLParserLimits(  # a mask takes 10 ms at the very most
    step_max_items=5_000, step_lexer_fuel=50_000, max_lexer_states=50_000, verbose_errors=False
)

_NAMED_TOKENS = re.compile(r"<\[\^?([0-9,\- ]+)\]>")
_TEXTS = re.compile(r'"(\\.|[^"\\])*"|(#|//)[^\n]*|/(\\.|[^/\\])+/')  # of Lark: strings, comments and expressions

Allowed = NDArray[np.bool_]


class Grammars:
    """The grammars of one vocabulary, compiled when they are first met; for use from several threads."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()
        self._shared: LLTokenizer | None = None
        self._lock = Lock()

    def begin(self, grammar: str) -> GrammarState:
        """A state before the first token. Raises `InvalidRequest` for a grammar that cannot be used."""
        return self._begun(self._compiled_of(grammar))

    def _begun(self, matcher: LLMatcher) -> GrammarState:
        return GrammarState(matcher, self._vocabulary.num_valid, frozenset(self._vocabulary.eos_ids))

    def _compiled_of(self, grammar: str) -> LLMatcher:
        with self._lock:
            if grammar in self._compiled:
                self._compiled.move_to_end(grammar)
                return self._compiled[grammar]
        matcher = self._compile(grammar)
        with self._lock:
            self._compiled[grammar] = matcher
            while len(self._compiled) > REMEMBERED:
                self._compiled.popitem(last=False)
        return matcher

    def _compile(self, grammar: str) -> LLMatcher:
        """Compile and try it: some grammars give up at their first tokens, and some cannot be looked ahead in."""
        tokenizer = self._tokenizer()
        matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=LIMITS)
        tried = self._begun(matcher)
        first = np.flatnonzero(tried.allowed(())[0])[:1].tolist()
        tried.allowed(first[: tried.valid(first)])
        if tried.dead_end:
            raise InvalidRequest("grammar", f"this grammar cannot be used: {tried.dead_end}")
        texts = [token for token in _named(grammar) if not tokenizer.is_special_token(token)]
        if texts:
            raise InvalidRequest(
                "grammar", f"<[{texts[0]}]> in a grammar must be a special token; write others as text"
            )
        return matcher

    def _tokenizer(self) -> LLTokenizer:
        """Made when it is first needed."""
        with self._lock:
            if self._shared is None:
                self._shared = grammar_tokenizer(self._vocabulary)
            return self._shared


class GrammarState:
    """The state of one answer's grammar, which starts as `begin`. `fault` says why the engine gave up, if it did.

    Between calls the state is that behind the answer's own tokens: when the engine gives up behind proposed ones, it is
    restored, and `dead_end` says why the engine gave up.
    """

    def __init__(self, begin: LLMatcher, num_ids: int, end_ids: frozenset[int]) -> None:
        self._begin = begin
        self._matcher = begin.deep_copy()
        self._answer: list[int] = []
        self._num_ids = num_ids
        self._end_ids = end_ids
        self.dead_end = ""

    @property
    def fault(self) -> str:
        matcher = self._matcher
        return of_text(str(matcher.get_error())) if matcher.is_error() else ""

    def advance(self, tokens: Sequence[int]) -> None:
        """The answer has grown by these tokens."""
        self._answer += tokens
        self._matcher.consume_tokens(list(tokens))

    def valid(self, proposed: Sequence[int]) -> int:
        """How many of the tokens, from the first, the answer may go on with.

        The token that ends it is not among them: it need not be proposed, since nothing follows it.
        """
        going_on = list(takewhile(lambda token: token not in self._end_ids, proposed))
        number = int(self._matcher.validate_tokens(going_on)) if going_on else 0
        return 0 if self._recovered() else number

    def forced(self) -> list[int]:
        """The tokens that the answer must go on with; no others are allowed there."""
        tokens = list(self._matcher.compute_ff_tokens())
        return [] if self._recovered() else tokens

    def allowed(self, proposed: Sequence[int]) -> Allowed:
        """The ids that may follow the first j of the proposed tokens, bool [1 + proposed, ids].

        The proposed tokens must be valid. There are fewer rows if the engine gives up on the way: what follows is
        not known. A row takes a few microseconds, so no other threads are bothered.
        """
        bits = allocate_token_bitmask(1 + len(proposed), self._num_ids)
        fill_next_token_bitmask(self._matcher, bits)
        if self._recovered():
            fill_next_token_bitmask(self._matcher, bits)
        rows = 1
        if not self._matcher.is_error():
            rows += self._look_ahead(proposed, bits)
        return np.unpackbits(bits[:rows].view(np.uint8), axis=1, count=self._num_ids, bitorder="little").view(np.bool_)

    def _look_ahead(self, proposed: Sequence[int], bits: NDArray[np.int32]) -> int:
        """Fill the rows behind the first; returns how many."""
        for row, token in enumerate(proposed, start=1):
            self._matcher.consume_token(token)
            fill_next_token_bitmask(self._matcher, bits, row)
            if self._recovered():
                return row - 1
        if proposed:
            self._matcher.rollback(len(proposed))
            self._recovered()
        return len(proposed)

    def _recovered(self) -> bool:
        """Restore the state behind the answer if the engine has given up; returns whether it had."""
        if not self._matcher.is_error():
            return False
        self.dead_end = self.fault
        self._matcher = self._begin.deep_copy()
        self._matcher.consume_tokens(self._answer)
        return True


def _named(grammar: str) -> Iterator[int]:
    """The ids of tokens that a grammar names; of a range the ends."""
    for lark in _larks(grammar):
        for named in _NAMED_TOKENS.finditer(_TEXTS.sub('""', lark)):
            yield from map(int, re.findall(r"[0-9]+", named[1]))


def _larks(grammar: str) -> list[str]:
    """The parts in Lark: all of it, or some of the grammars that llguidance writes as JSON beside schemas."""
    if not grammar.lstrip().startswith("{"):
        return [grammar]
    return [part["lark_grammar"] for part in json.loads(grammar)["grammars"] if part.get("lark_grammar")]
