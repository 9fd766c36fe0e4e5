"""A grammar is tried before it is used: compiled, and asked what an answer may begin with.

This takes no tokenizer. The texts that a grammar allows are the same for any, and here a token is a byte.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from core.grammar.matching import LIMITS


def complaint(grammar: str) -> str:
    """What the engine says against a grammar; empty if nothing is known to be wrong."""
    matcher = _begun(grammar)
    if not matcher.is_error():
        begins = int.from_bytes(matcher.compute_bitmask(), "little")
        if begins and not matcher.is_error():
            matcher.consume_token((begins & -begins).bit_length() - 1)
            matcher.compute_bitmask()
    return str(matcher.get_error()) if matcher.is_error() else ""


def allows(schema: Mapping[str, Any], text: str) -> bool:
    """Whether the engine takes the text for a whole value of a schema."""
    matcher, tokens = _begun(LLMatcher.grammar_from_json_schema(json.dumps(schema))), list(text.encode())
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def _begun(grammar: str) -> LLMatcher:
    return LLMatcher(_bytes(), grammar, log_level=0, limits=LIMITS)


@cache
def _bytes() -> LLTokenizer:
    return LLTokenizer("byte")
