"""1,000 requests whose answers are held to a grammar; what comes back is judged by jsonschema.

800 are for JSON: each of 200 schemas four times, at temperatures 0 and 0.8, the schema shown in the prompt or not.
200 are for calls of tools: each of 40 tools five times, offered beside others, in the four forms of calls in turns.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, NamedTuple

from core.generation import GenerationRequest
from core.grammar.building import engine_schema, of_json_schema
from core.grammar.calls import Tool, calls_grammar
from core.sampling.params import SamplingParams
from core.text.tokenizer import Tokenizer
from core.text.written_tools import with_written_tools
from core.tools.formats import FORMATS
from tests.core.grammar.corpus import Case, schemas
from tests.core.grammar.offered_tools import tools
from tests.core.grammar.validity import calls_fault, json_fault

JSON, CALLS = "JSON", "calls"
MAX_TOKENS = 120
TEMPERATURES = (0.0, 0.8)
NUM_REQUESTS = 1000
_TIMES_SCHEMA, _TIMES_TOOL = 4, 5
_SHOWN = 600  # characters of a schema
_MOST_PROMPT = 512  # tokens; of longer ones the end
_FORMATS = [FORMATS[name] for name in ("hermes", "llama3", "mistral", "json")]  # which format a case has depends on it


class Question(NamedTuple):
    """A request; `of` is its schema or its tool, and `fault` says what is wrong with a whole answer, "" if nothing."""

    kind: str
    of: str
    request: GenerationRequest
    fault: Callable[[str], str]


def questions(tokenizer: Tokenizer, count: int = NUM_REQUESTS) -> list[Question]:
    """So many of the requests, of all kinds, the same every time."""
    drawn = [(case, turn) for case in schemas() for turn in range(_TIMES_SCHEMA)]
    called = [(number, turn) for number in range(len(tools())) for turn in range(_TIMES_TOOL)]
    makers = [partial(_for_json, tokenizer, *one) for one in drawn] + [
        partial(_for_calls, tokenizer, *one) for one in called
    ]
    Random(0).shuffle(makers)
    return [make(number) for number, make in enumerate(makers[:count])]


def _for_json(tokenizer: Tokenizer, case: Case, turn: int, number: int) -> Question:
    asked = f"Describe {case.topic} in JSON."
    if turn // len(TEMPERATURES):
        asked += f" It has to be valid against this schema:\n{json.dumps(case.schema, ensure_ascii=False)[:_SHOWN]}"
    grammar = of_json_schema(case.schema, "schema")
    request = _request(tokenizer, [{"role": "user", "content": asked}], grammar, turn, number)
    return Question(JSON, json.dumps(case.schema), request, partial(json_fault, case.schema))


def _for_calls(tokenizer: Tokenizer, tool: int, turn: int, number: int) -> Question:
    """The tool and as many others as this turn's number; in even turns several calls are allowed."""
    every, form = tools(), _FORMATS[(tool + turn) % len(_FORMATS)]
    offered = [every[(tool + other) % len(every)] for other in range(turn + 1)]
    asked = {"role": "user", "content": f"{every[tool].description} Use {every[tool].name}."}
    told = with_written_tools([asked], [{"function": one._asdict()} for one in offered], form)
    parallel = turn % 2 == 0
    written = [Tool(one.name, engine_schema(one.parameters, "schema")) for one in offered]
    grammar = calls_grammar(form, written, required=True, parallel=parallel)
    request = _request(tokenizer, told, grammar, turn, number)
    return Question(CALLS, every[tool].name, request, partial(calls_fault, offered, form, parallel))


def _request(
    tokenizer: Tokenizer, messages: list[dict[str, Any]], grammar: str, turn: int, number: int
) -> GenerationRequest:
    tokens = tuple(tokenizer.encode_chat(messages)[-_MOST_PROMPT:])
    temperature = TEMPERATURES[turn % len(TEMPERATURES)]
    params = SamplingParams(seed=number, max_tokens=MAX_TOKENS, temperature=temperature, grammar=grammar)
    return GenerationRequest(tokens=tokens, prompt_length=len(tokens), params=params, always_draft=True)
