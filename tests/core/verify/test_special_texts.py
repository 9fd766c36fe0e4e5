"""Grammars that hold the names of special tokens: text is text, whoever proposes, and no proposal fails a request."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLParserLimits
from msgspec import structs
from tokenizers import AddedToken, Tokenizer, normalizers

from core.generation import GenerationRequest
from core.grammar import matching
from core.grammar.building import of_choice, of_json_schema, of_lark, of_regex
from core.sampling.params import SamplingParams
from core.verify.engine import VerifyConfig, VerifyEngine
from core.verify.sources import DEFAULT
from core.wire.messages import Propose
from tests.core.test_speculation import LETTERS, PADDING, WordyModel
from tests.core.toy import Clock, ToyModel
from tests.core.toy_tokenizer import END_OF_TURN, EOS, byte_level
from tests.examples import examples

CALL, MARK, WORD = "<call>", "[MARK]", "stop it"
EVERYTHING = VerifyConfig(prefill_chunk=4, lookup={**DEFAULT, "answers": {"without_owner": True}})
PROMPT = (40, 41, 42)


@cache
def tokenizer() -> Tokenizer:
    """Special tokens in angle brackets and others, added tokens that are not called special, and composed accents."""
    made = Tokenizer.from_str(byte_level().to_str())
    made.add_special_tokens([MARK])
    made.add_tokens([CALL, AddedToken(WORD, lstrip=True)])
    made.normalizer = normalizers.NFC()
    return made


NAMES = (EOS, END_OF_TURN, MARK, CALL)
SPECIAL = {token: name for name in NAMES if (token := tokenizer().token_to_id(name)) is not None}
NUM_IDS = tokenizer().get_vocab_size()


class Words:
    raw = tokenizer()
    eos_ids = (tokenizer().token_to_id(EOS), tokenizer().token_to_id(END_OF_TURN))
    num_valid = NUM_IDS


class Target(WordyModel):
    vocab_size = NUM_IDS + PADDING

    def __init__(self) -> None:
        super().__init__(context=400)
        self._table = ToyModel(sharpness=1.0)._table.repeat(1, 1 + self.vocab_size // 24)[:, : self.vocab_size].clone()
        self._table[:, LETTERS] += 2.0
        self._table[:, list(SPECIAL)] += 3.0
        self._table[:, NUM_IDS:] += 9.0


Answer = tuple[list[int], str | None, list[str]]  # tokens, why it ended, and what it failed with
Draft = Callable[[Sequence[int]], Sequence[int]]  # from the answer so far to what is proposed next


def answered(engine: VerifyEngine, request: GenerationRequest, draft: Draft | None = None) -> Answer:
    [number] = engine.open([request])
    tokens: list[int] = []
    reason = None
    while engine.gauges()["sessions"]:
        if draft is not None:
            engine.receive(b"math#1", Propose(number, 0, len(PROMPT) + len(tokens), tuple(draft(tokens))[:16]))
        engine.wait()
        for _, run in engine.step():
            tokens += run.tokens
            reason = run.finish_reason
    return tokens, reason, [str(failure) for _, failure in engine.failures()]


def new_engine(config: VerifyConfig = EVERYTHING) -> VerifyEngine:
    return VerifyEngine(Target(), Words(), config, Clock())


def asked(grammar: str, **law: Any) -> GenerationRequest:
    params = SamplingParams(**({"seed": 5, "max_tokens": 90, "grammar": grammar} | law))
    return GenerationRequest(tokens=PROMPT, prompt_length=len(PROMPT), params=params)


def plain(request: GenerationRequest) -> Answer:
    return answered(new_engine(), structs.replace(request, num_speculative_tokens=0))


def text_of(tokens: Sequence[int]) -> str:
    """With the names of all tokens but the end."""
    return str(tokenizer().decode(list(tokens), skip_special_tokens=False))


PIECES = (*NAMES, WORD, *'ab<|>[]"\\/ \n', "end", "the ", "<eo", "s>", "é", "e\u0301", "中", "🙂", "<[0]>", "<[300]>")
TEXTS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("".join)


def lark(parts: Sequence[tuple[str, bool]]) -> str:
    """Texts one behind the other, or special tokens that are named."""
    named = [f"<[{tokenizer().token_to_id(CALL)}]>" if name else json.dumps(text) for text, name in parts]
    return of_lark("start: " + " ".join(named), "guided_grammar")


GRAMMARS = st.one_of(
    TEXTS.map(lambda text: of_json_schema({"const": text}, "x")),
    st.lists(TEXTS, min_size=1, max_size=4).map(lambda texts: of_json_schema({"enum": texts}, "x")),
    st.tuples(TEXTS, TEXTS).map(
        lambda pair: of_json_schema(
            {
                "type": "object",
                "properties": {pair[0]: {"const": pair[1]}, "free": {"type": "string", "maxLength": 9}},
                "required": [pair[0], "free"],
                "additionalProperties": False,
            },
            "x",
        )
    ),
    TEXTS.map(lambda text: of_json_schema({"type": "string", "pattern": f"^(a|{re.escape(text)})+$"}, "x")),
    TEXTS.map(lambda text: of_regex(f"({re.escape(text)}|[a-z<]){{1,3}}", "x")),
    st.lists(TEXTS, min_size=1, max_size=4).map(lambda texts: of_choice(texts, "x")),
    st.lists(st.tuples(TEXTS, st.booleans()), min_size=1, max_size=4).map(lark),
)
LAWS = st.fixed_dictionaries(
    {"seed": st.integers(0, 99), "temperature": st.sampled_from([0.0, 0.7, 1.5])},
    optional={
        "max_tokens": st.integers(1, 20),
        "stop": st.sampled_from([("<",), ("e",), ('"', "zz")]),
        "stop_ids": st.lists(st.integers(0, NUM_IDS - 1), max_size=2).map(tuple),
        "presence_penalty": st.sampled_from([-2.0, 2.0]),
    },
)
JUNK = st.lists(st.integers(0, NUM_IDS - 1) | st.sampled_from(sorted(SPECIAL)), max_size=16)


def drafting(truth: Sequence[int], steps: Sequence[tuple[int, Sequence[int]]]) -> Draft:
    """So many right tokens, then others; one step after the other."""
    turns = iter([*steps] * 200)

    def draft(tokens: Sequence[int]) -> Sequence[int]:
        right, wrong = next(turns)
        return [*truth[len(tokens) : len(tokens) + right], *wrong]

    return draft


@settings(max_examples=examples(60), deadline=None)
@given(GRAMMARS, LAWS, JUNK, st.lists(st.tuples(st.integers(0, 9), JUNK), min_size=1, max_size=4), st.data())
def test_whoever_proposes_in_a_grammar_nothing_fails_and_nothing_changes(
    grammar: str, law: dict[str, Any], junk: list[int], steps: list[tuple[int, list[int]]], data: st.DataObject
) -> None:
    request = asked(grammar, **law)
    truth = plain(request)
    tokens, _, failures = truth
    assert not failures
    engine, at = new_engine(), data.draw(st.integers(0, len(tokens)))
    for prediction in (tokens, [*tokens[:at], *junk, *tokens[at:]], junk):
        predicted = structs.replace(request, prediction=tuple(prediction))
        assert answered(engine, predicted, drafting(tokens, steps)) == truth
        assert answered(engine, predicted) == truth  # also from the answers before
    forced = new_engine(VerifyConfig(lookup={"grammar": {}}))
    assert answered(forced, request) == truth


@pytest.mark.parametrize("name", [*NAMES, WORD])
@pytest.mark.parametrize("around", ["{}", "a{}b", "{0}{0}", "é {} e\u0301"])
def test_the_name_of_a_special_token_is_text(name: str, around: str) -> None:
    text = around.format(name)
    written = json.dumps(text, ensure_ascii=False)
    member = json.dumps({text: 1}, ensure_ascii=False)
    named = {"type": "object", "properties": {text: {"const": 1}}, "required": [text], "additionalProperties": False}
    grammars = {
        of_json_schema({"const": text}, "x"): written,
        of_json_schema({"enum": [text]}, "x"): written,
        of_json_schema({"type": "string", "pattern": f"^{re.escape(text)}$"}, "x"): written,
        of_json_schema(named, "x"): member,
        of_choice([text], "x"): text,
        of_regex(re.escape(text), "x"): text,
        of_lark(f"start: {json.dumps(text)}", "x"): text,
    }
    for grammar, expected in grammars.items():
        request = asked(grammar)
        tokens, reason, failures = answered(new_engine(), request)
        assert (text_of(tokens[:-1]), reason, failures) == (expected, "stop", [])
        assert SPECIAL.keys().isdisjoint(tokens[:-1])
        assert tokens[-1] in Words.eos_ids
        assert plain(request) == (tokens, reason, failures)


def test_a_special_token_that_a_grammar_names_is_that_token() -> None:
    call, mark = (tokenizer().token_to_id(name) for name in (CALL, MARK))
    for named in (f"<[{call}]>", CALL):
        tokens, reason, failures = answered(new_engine(), asked(f'start: "<call>" {named} "x" <[{mark}]>'))
        assert (text_of(tokens[:-1]), reason, failures) == ("<call><call>x[MARK]", "stop", [])
        assert [token for token in tokens if token in SPECIAL] == [call, mark, tokens[-1]]


@settings(max_examples=examples(30), deadline=None)
@given(
    st.sampled_from(['start: "a" | "b" s "!"\ns: s s | /[a-z<]/ | ', 'start: "a" | /([ab]*a[ab]{9}c|[a-z]*)/']),
    st.integers(0, 30),
    st.integers(60, 600),
    st.lists(st.lists(st.sampled_from(LETTERS + sorted(SPECIAL)), max_size=16), min_size=1, max_size=4),
)
def test_a_proposal_that_leads_where_the_grammar_gives_up_is_cut(
    grammar: str, seed: int, items: int, steps: list[list[int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        limits = LLParserLimits(
            step_max_items=items, step_lexer_fuel=50_000, max_lexer_states=50_000, verbose_errors=False
        )
        patch.setattr(matching, "LIMITS", limits)
        request = asked(grammar, seed=seed, max_tokens=20)
        truth = plain(request)
        for right in (0, 3, 12):
            drafted = drafting(truth[0], [(right, junk) for junk in steps])
            assert answered(new_engine(), request, drafted) == truth
