"""The state of a grammar: what it allows and forces, and that only committed tokens move it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as RawTokenizer

from core.errors import InvalidRequest
from core.grammar.building import of_choice, of_json_schema, of_regex
from core.grammar.grammar_tokenizer import grammar_tokenizer
from core.grammar.matching import REMEMBERED, Grammars
from tests.core.grammar.test_building import FIELD, PERSON, grammars, tokenizer
from tests.core.toy_tokenizer import EOS, byte_fallback, byte_level

NAMES = st.text("abc \\\"\n'é中🙂{}", max_size=8)
PEOPLE = st.builds(lambda name, age: {"name": name, "age": age}, NAMES, st.integers(-99, 99))  # in the schema's order
GRAMMAR = of_json_schema(PERSON, FIELD)


@settings(max_examples=60, deadline=None)
@given(PEOPLE, st.data())
def test_looking_ahead_agrees_with_going_there(person: dict[str, Any], data: st.DataObject) -> None:
    ids = tokenizer().encode_answer(json.dumps(person, ensure_ascii=False))
    state, walker = grammars().begin(GRAMMAR), grammars().begin(GRAMMAR)
    at = 0
    while at < len(ids):
        proposed = ids[at : at + data.draw(st.integers(1, 7))]
        assert state.valid(proposed) == len(proposed)
        rows = state.allowed(proposed)
        for row, token in zip(rows, proposed, strict=False):
            assert np.array_equal(row, walker.allowed(())[0])
            assert row[token]
            walker.advance([token])
        assert np.array_equal(rows[-1], walker.allowed(())[0])
        state.advance(proposed)
        at += len(proposed)
    assert set(np.flatnonzero(state.allowed(())[0])) == set(tokenizer().eos_ids)
    assert not state.fault


@settings(max_examples=30, deadline=None)
@given(PEOPLE)
def test_forced_tokens_are_the_only_ones_allowed(person: dict[str, Any]) -> None:
    state, forced = grammars().begin(GRAMMAR), 0
    for token in tokenizer().encode_answer(json.dumps(person, ensure_ascii=False)):
        ahead = state.forced()
        rows = state.allowed(ahead)
        for row, only in zip(rows, ahead, strict=False):
            assert list(np.flatnonzero(row)) == [only]
        forced += len(ahead) > 0
        if ahead and ahead[0] != token:  # the tokenizer would cut the text otherwise; it is the same text
            return
        state.advance([token])
    assert forced > 1


def test_a_token_that_is_not_allowed_ends_what_is_valid() -> None:
    state = grammars().begin(of_regex("ab[0-9]", "x"))
    a, b, c, nine = (tokenizer().encode_answer(letter)[0] for letter in "abc9")
    assert state.valid([a, b, nine]) == 3
    assert state.valid([a, b, c]) == 2
    assert state.valid([c]) == 0
    assert not state.fault


def test_states_of_one_grammar_know_nothing_of_each_other() -> None:
    first, second = grammars().begin(GRAMMAR), grammars().begin(GRAMMAR)
    before = second.allowed(())
    first.advance(first.forced())
    assert np.array_equal(second.allowed(()), before)
    assert not np.array_equal(first.allowed(()), before)


def test_a_token_that_was_not_allowed_is_a_fault_told_in_one_line() -> None:
    state = grammars().begin(GRAMMAR)
    state.advance(tokenizer().encode_answer("nothing of the kind"))
    assert state.fault
    assert "\n" not in state.fault


@pytest.mark.parametrize("raw", [byte_level(), byte_fallback()])
@pytest.mark.parametrize("text", ["a<eos>b", " a <eos> 中é", "<eos><eot>", "<0x41>", "e\u0301", "▁"])
def test_text_is_spelled_with_ordinary_tokens_of_any_vocabulary(raw: RawTokenizer, text: str) -> None:
    class Words:
        eos_ids = (raw.token_to_id(EOS),)
        num_valid = raw.get_vocab_size()

        def __init__(self) -> None:
            self.raw = raw

    state = Grammars(Words()).begin(of_choice([text], "x"))
    spelled = grammar_tokenizer(Words())
    while tokens := state.forced():
        assert not any(map(spelled.is_special_token, tokens))
        state.advance(tokens)
        text = text.removeprefix(spelled.decode_str(tokens))
    assert text == ""


def test_what_cannot_be_compiled_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="unknown name"):
        grammars().begin("start: nothing")


UNUSABLE = {
    "looks only one way": 'start: "a" t\nt[max_tokens=5]: /[a-z ]+/',
    "stops at a text": 'start: "a" t\nt[stop="x"]: /[a-z ]+/',
    "names a token that is text": 'start: "a" <[300]>',
    "says nothing": 'start: a\na: a "x"',
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_what_would_give_up_at_once_or_under_proposals_is_refused(kind: str) -> None:
    with pytest.raises(InvalidRequest):
        grammars().begin(UNUSABLE[kind])


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        (of_json_schema({"const": "<[300]>"}, "x"), '"<[300]>"'),
        (of_choice(["<[300]>"], "x"), "<[300]>"),
        (of_regex(r"<\[300\]>", "x"), "<[300]>"),
        ('start: "<[300]>" /<\\[300]>\\/x/ // <[300]>\n', "<[300]><[300]>/x"),
        ('start: %json {"const": "\\"<[300]>"} # <[300]>', '"\\"<[300]>"'),
    ],
)
def test_what_looks_like_a_named_token_in_a_text_is_text(grammar: str, text: str) -> None:
    assert tokenizer().raw.decode(grammars().begin(grammar).forced()) == text


def test_a_grammar_whose_masks_take_ever_longer_gives_up() -> None:
    state, letter = grammars().begin("start: s\ns: s s | /[a-z ]/ | "), tokenizer().encode_answer("a")
    for _ in range(200):
        state.allowed(())
        if state.fault:
            return
        state.advance(letter)
    raise AssertionError("its masks would hold up all others")


def test_only_so_many_compiled_grammars_are_kept() -> None:
    own = Grammars(tokenizer())
    for number in range(REMEMBERED + 3):
        own.begin(of_regex(f"{number}", "x"))
    assert len(own._compiled) == REMEMBERED
