"""A grammar is tried before it is used: compiled, and followed as far as it leaves no choice.

This takes no tokenizer. The texts that a grammar allows are the same for any, and here a token is a byte. What fails
is told in words of this service: those of the engine name its own options and states.
"""

from __future__ import annotations

import re
from functools import cache

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from core.grammar.matching import MASK_FUEL, MASK_ITEMS, STATES

_SAID = 200  # characters of a complaint, which may quote the whole grammar
_TOO_MUCH = "it allows too much at one place, or its texts never end; name fewer optional properties or choices"
_TOO_COMPLEX = "its patterns, lengths and multiples are too complex; write shorter patterns and smaller bounds"
_NOTHING = "nothing is valid here; its parts contradict each other"
_IN_OUR_WORDS = {
    r"NoExtension": "nothing is valid here, or no text that ends; give it a text that ends",
    r"Too many items|too many rules|ParserTooComplex": _TOO_MUCH,
    r"lexer error|LexerTooComplex|too many (expressions|states)|fuel|Unable to determine|can't determine": _TOO_COMPLEX,
    r"Unsatisfiable schema|Regex is empty": _NOTHING,
    r"lookarounds not supported.*(Start|StartLF)": "'^' may stand only where a text begins",
    r"lookarounds not supported.*(End|EndLF)": "'$' may stand only where a text ends",
    r"lookarounds not supported": "word boundaries and look-around are not supported; write what the text is",
    r"look-around": "look-ahead and look-behind are not supported; write what the text is",
    r"backreferences": "back-references are not supported; write the text out",
    r"circular references": "a reference to a schema around it may have no other keywords beside it; leave them out",
    r"patternProperty regexes .* are not disjoint": "two names in 'patternProperties' match one name; let them differ",
    r"min/maxProperties": "'minProperties' and 'maxProperties' cannot be enforced here; write 'required' instead",
    r"recursion limit|stack level|schema too large|too deep": "it is nested too deeply, or too large; write it simpler",
    r"max_tokens|stop=|temperature|suffix": "rules with attributes such as max_tokens or stop are not supported here",
}


def complaint(grammar: str, *, named_tokens: bool = False) -> str:
    """What is wrong with a grammar; empty if nothing is known to be. One with `named_tokens` can only be read."""
    if named_tokens:
        return in_our_words(LLMatcher.validate_grammar(grammar))
    limits = LLParserLimits(
        step_max_items=MASK_ITEMS, step_lexer_fuel=MASK_FUEL, max_lexer_states=STATES, verbose_errors=False
    )
    matcher = LLMatcher(_bytes(), grammar, log_level=0, limits=limits)
    forced = [] if matcher.is_error() else list(matcher.compute_ff_bytes())
    if not matcher.is_error():
        matcher.consume_tokens(forced)
        matcher.compute_bitmask()
    return in_our_words(matcher.get_error()) if matcher.is_error() else ""


def in_our_words(complaint: str) -> str:
    """What the engine says of a grammar, without its own notions; of a grammar in Lark, what it says of its text."""
    if not complaint.strip():
        return ""
    for pattern, words in _IN_OUR_WORDS.items():
        if re.search(pattern, complaint):
            return words
    return _first_line(complaint)


def _first_line(complaint: str) -> str:
    """What is wrong, without the picture of where."""
    lines = [line.strip() for line in complaint.replace("<non-verbose/>", "").splitlines() if line.strip()]
    return next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), lines[0])[:_SAID]


@cache
def _bytes() -> LLTokenizer:
    return LLTokenizer("byte")
