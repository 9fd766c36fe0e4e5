"""The schemas and tools of the corpus, and whatever their grammars allow: it is valid, whoever chooses the tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from core.family import TARGET_DIR
from core.grammar.building import of_json_schema
from core.grammar.matching import Allowed, Grammars
from core.text.tokenizer import Tokenizer, load_tokenizer
from core.tools.formats import FORMATS
from tests.core.grammar.corpus import Schema, schemas
from tests.core.grammar.offered_tools import OfferedTool, tools
from tests.core.grammar.validity import calls_fault, json_fault

LONGEST = 250  # tokens
ENDING = (b'"', b'"}', b"]", b"}", b'",', b"Z")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(TARGET_DIR)


def every_schema() -> Iterator[Schema]:
    yield from (case.schema for case in schemas())
    yield from (tool.parameters for tool in tools())


def wandering(schema: Schema, tokenizer: Tokenizer, grammars: Grammars, random: Random, ending: Allowed) -> str | None:
    """A text of tokens drawn from all that are allowed, rather those that end something; None if it grew too long."""
    state, said = grammars.begin(of_json_schema(schema, "schema")), b""
    for _ in range(LONGEST):
        [allowed] = state.allowed(())
        if allowed[tokenizer.eos_ids[0]] and (allowed.sum() == 1 or random.random() < 0.5):
            return said.decode()
        ends = allowed & ending if random.random() < 0.25 else allowed
        [ids] = (ends if ends.any() else allowed).nonzero()
        token = int(random.choice(ids))
        if token in tokenizer.eos_ids:
            return said.decode()
        state.advance([token])
        assert not state.fault
        said += tokenizer.token_bytes(token)
    return None


def assert_valid(tokenizer: Tokenizer, turns: int) -> None:
    grammars, random, whole = Grammars(tokenizer), Random(turns), 0
    ending = np.array([tokenizer.token_bytes(token) in ENDING for token in range(tokenizer.num_valid)])
    for schema in every_schema():
        for _ in range(turns):
            text = wandering(schema, tokenizer, grammars, random, ending)
            if text is not None:
                whole += 1
                assert not json_fault(schema, text), (schema, text)
    assert whole > 0.9 * 240 * turns


def test_there_are_200_schemas_and_40_tools_no_two_alike() -> None:
    assert len({json.dumps(case.schema) for case in schemas()}) == len(schemas()) == 200
    assert len({tool.name for tool in tools()}) == len({json.dumps(tool.parameters) for tool in tools()}) == 40


def test_each_is_a_grammar_without_leave_to_ignore_anything() -> None:
    for schema in every_schema():
        assert of_json_schema(schema, "schema", strict=True)


def test_whatever_a_grammar_allows_is_valid(tokenizer: Tokenizer) -> None:
    assert_valid(tokenizer, 3)


@pytest.mark.soak
def test_whatever_a_grammar_allows_is_valid_in_many_more_cases(tokenizer: Tokenizer) -> None:
    assert_valid(tokenizer, 60)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "integer", "maximum": 3}, "4"),
        ({"type": "integer"}, "[1"),
        ({"type": "string", "format": "time"}, '"14:10:60Z"'),
        ({"type": "string", "format": "time"}, '"14:10:30"'),
        ({"type": "string", "format": "date"}, '"2023-02-29"'),
        ({"type": "string", "format": "date-time"}, '"2023-02-28"'),
        ({"type": "string", "format": "hostname"}, '"a..b"'),
        ({"type": "string", "format": "duration"}, '"P"'),
        ({"type": "string", "format": "uri"}, '"no scheme"'),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "null"}]}, "[0]"),
    ],
)
def test_an_invalid_text_is_found_out(schema: Schema, text: str) -> None:
    assert json_fault(schema, text)


def test_an_answer_that_is_not_all_valid_calls_is_found_out() -> None:
    offered = [OfferedTool("wait", "", {"type": "object", "properties": {"s": {"type": "integer"}}, "required": ["s"]})]
    call = '{"name": "wait", "arguments": {"s": 1}}'
    assert not calls_fault(offered, FORMATS["json"], False, call)
    assert not calls_fault(offered, FORMATS["json"], True, f"[{call}, {call}]")
    assert calls_fault(offered, FORMATS["json"], False, f"[{call}, {call}]") == "2 calls"
    for text in (f"Well: {call}", call.replace("wait", "go"), call.replace("1", '"1"'), "{}", ""):
        assert calls_fault(offered, FORMATS["json"], True, text)


@pytest.mark.parametrize(
    ("form", "text", "exists"),
    [
        ("date", "2024-02-29", True),
        ("date", "2000-02-29", True),
        ("date", "1900-02-29", False),
        ("date", "2023-02-29", False),
        ("date", "2023-02-28", True),
        ("date", "2023-12-31", True),
        ("date", "2023-04-31", False),
        ("date", "0000-01-01", False),
        ("date", "0400-02-29", True),
        ("date-time", "2024-02-29T23:59:59Z", True),
        ("date-time", "2023-10-10T00:00:00.5+01:00", True),
        ("date-time", "2023-02-29T00:00:00Z", False),
        ("date-time", "2023-02-28T00:00:60Z", False),
        ("time", "23:59:59Z", True),
        ("time", "23:59:60Z", False),
    ],
)
def test_dates_and_times_that_a_grammar_allows_exist(tokenizer: Tokenizer, form: str, text: str, exists: bool) -> None:
    state = Grammars(tokenizer).begin(of_json_schema({"type": "string", "format": form}, "schema"))
    said = tokenizer.encode_answer(json.dumps(text))
    assert (state.valid(said) == len(said)) == exists
