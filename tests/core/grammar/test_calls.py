"""Grammars of calls, as llguidance reads them over the tokenizers of real and shipped models."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer
from transformers import PreTrainedTokenizerBase

from core.grammar.calls import Tool, calls_grammar
from core.tools.answer_stream import AnswerStream
from core.tools.formats import FORMATS
from core.tools.markers import MARKS
from core.tools.reasoning import Reasoning
from tests.core.text.chat_formats import FORMATS as CHATS
from tests.core.tools.parsed import ToolCall, parse

THINK = Reasoning("<think>", "</think>")
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
    "required": ["city"],
    "additionalProperties": False,
}
POINT = {
    "properties": {"at": {"$ref": "#/$defs/point"}},
    "$defs": {"point": {"type": "array", "items": {"type": "number"}}},
}
TOOLS = [Tool("weather", CITY, strict=True), Tool("weather_map", POINT)]
VALID = [
    ToolCall("weather", '{"city": "a}\\"b<tool>é", "days": 3}'),
    ToolCall("weather", '{"city": ""}'),
    ToolCall("weather_map", '{"at": [1.5, -2]}'),
]
INVALID = [
    ToolCall("weather", '{"days": 3}'),
    ToolCall("weather", '{"city": "a", "days": 0}'),
    ToolCall("weather", '{"city": "a", "x": 1}'),
    ToolCall("weather", '{"city": "a"'),
    ToolCall("weather_map", '{"at": "here"}'),
    ToolCall("forecast", "{}"),
]
FORMS = tuple(FORMATS)
MODELS = [name for name in ("family", "smollm2", "qwen3") if name in CHATS]


@cache
def tokenizers_of(model: str) -> tuple[PreTrainedTokenizerBase, LLTokenizer]:
    hf = CHATS[model].hf
    return hf, LLTokenizer(hf.backend_tokenizer.to_str(), n_vocab=len(hf), eos_token=[hf.eos_token_id])


def markers(model: str) -> dict[str, int]:
    hf, _ = tokenizers_of(model)
    return {str(token): number for number, token in hf.added_tokens_decoder.items() if str(token) in MARKS}


def written(calls: list[ToolCall], form: str) -> str:
    key = "parameters" if form == "llama3" else "arguments"
    objects = [f'{{"name": "{call.name}", "{key}": {call.arguments}}}' for call in calls]
    if form == "hermes":
        return "\n".join(f"<tool_call>\n{one}\n</tool_call>" for one in objects)
    if form == "llama3":
        return "; ".join(objects)
    listed = f"[{', '.join(objects)}]"
    return f"[TOOL_CALLS] {listed}" if form == "mistral" else objects[0] if len(objects) == 1 else listed


def accepts(grammar: str, text: str, model: str) -> bool:
    hf, tokenizer = tokenizers_of(model)
    assert not LLMatcher.validate_grammar(grammar, tokenizer)
    matcher, ids = LLMatcher(tokenizer, grammar), hf.backend_tokenizer.encode(text, add_special_tokens=False).ids
    return bool(matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting())


def grammar_of(form: str, model: str, **fields: Any) -> str:
    return calls_grammar(FORMATS[form], TOOLS, tokens=markers(model), **fields)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("required", [True, False])
def test_valid_calls_are_accepted_and_others_refused(form: str, model: str, required: bool) -> None:
    grammar = grammar_of(form, model, required=required)
    for call in VALID:
        assert accepts(grammar, written([call], form), model), call
    for call in INVALID:
        if required or call.name != "weather_map":  # that tool is not strict
            assert not accepts(grammar, written([call], form), model), call
    assert accepts(grammar, written(VALID, form), model)
    assert not accepts(grammar, written([VALID[0], INVALID[0]], form), model)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("required", [True, False])
def test_without_parallel_calls_there_is_at_most_one(form: str, required: bool) -> None:
    grammar = grammar_of(form, "family", required=required, parallel=False)
    assert accepts(grammar, written(VALID[:1], form), "family")
    assert not accepts(grammar, written(VALID[:2], form), "family")


@pytest.mark.parametrize("form", FORMS)
def test_text_is_free_where_no_call_is_required(form: str) -> None:
    for text in ("Hello, { you", "12 + 7 < 20\n", "", " é🙂", "```json\n{}\n```"):
        assert accepts(grammar_of(form, "family", required=False), text, "family"), text
        assert not accepts(grammar_of(form, "family", required=True), text, "family")


@pytest.mark.parametrize("form", ["hermes", "mistral"])
def test_calls_may_stand_behind_and_before_free_text(form: str) -> None:
    grammar = grammar_of(form, "family", required=False)
    assert accepts(grammar, f"I look. {written(VALID[:1], form)}\nDone.", "family")
    assert not accepts(grammar, f"I look. {written(INVALID[:1], form)}\nDone.", "family")


@pytest.mark.parametrize("form", FORMS)
def test_the_parser_reads_what_the_grammar_accepts(form: str) -> None:
    answer = parse(written(VALID, form), AnswerStream(FORMATS[form], [tool.name for tool in TOOLS]))
    assert answer.calls == tuple(VALID)
    assert not answer.content


@pytest.mark.parametrize("model", MODELS)
def test_reasoning_may_come_first(model: str) -> None:
    calls = written(VALID[:1], "hermes")
    closed = grammar_of("hermes", model, required=True, reasoning=THINK)
    for text, accepted in ((calls, True), (f"<think>\nhm {{\n</think>\n\n{calls}", True), (f"<think>{calls}", False)):
        assert accepts(closed, text, model) == accepted, text
    opened = grammar_of("hermes", model, required=True, reasoning=THINK, opened=True)
    for text, accepted in ((f"hm\n</think>\n\n{calls}", True), (calls, False), ("hm", False)):
        assert accepts(opened, text, model) == accepted, text


def test_a_tool_may_be_called_without_arguments_and_no_space_is_free() -> None:
    grammar = calls_grammar(FORMATS["json"], [Tool("now", {"additionalProperties": False})], required=True)
    assert accepts(grammar, '{"name": "now", "arguments": {}}', "family")
    assert not accepts(grammar, '{"name": "now", "arguments": { }}', "family")
    assert not accepts(grammar, '{"name": "now", "arguments": {"a": 1}}', "family")


def test_mistrals_newer_form_is_that_of_its_token_for_arguments() -> None:
    tokens = {"[TOOL_CALLS]": 5, "[ARGS]": 6}
    grammar = calls_grammar(FORMATS["mistral"], TOOLS, required=True, tokens=tokens)
    tokenizer = tokenizers_of("family")[1]
    assert not LLMatcher.validate_grammar(grammar, tokenizer)
    hf = tokenizers_of("family")[0]

    def ids(text: str) -> list[int]:
        return list(hf.backend_tokenizer.encode(text, add_special_tokens=False).ids)

    call = [5, *ids("weather"), 6, *ids('{"city": "Oslo"}')]
    for answer, accepted in ((call, True), (call * 2, True), ([5, *ids("weather"), 6, *ids("{}")], False)):
        matcher = LLMatcher(tokenizer, grammar)
        assert (matcher.try_consume_tokens(answer) == len(answer) and matcher.is_accepting()) == accepted


def test_a_marker_that_is_a_token_is_not_spelled_out() -> None:
    hf, tokenizer = tokenizers_of("family")
    token = hf.backend_tokenizer.token_to_id("<|user|>")
    assert token is not None
    assert tokenizer.is_special_token(token)
    grammar = calls_grammar(FORMATS["hermes"], TOOLS, required=False, tokens={"<tool_call>": token})

    def ids(text: str) -> list[int]:
        return list(hf.backend_tokenizer.encode(text, add_special_tokens=False).ids)

    call = ids('\n{"name": "weather", "arguments": {}}')
    spelled = [number for part in ("so ", "<", "tool_call", ">") for number in ids(part)]
    matcher = LLMatcher(tokenizer, grammar)
    assert matcher.validate_tokens(spelled) == len(spelled) - 1
    assert matcher.validate_tokens([*ids("so "), token, *call]) < len([*ids("so "), token, *call])  # held to the schema
    assert not matcher.is_error()


def test_128_tools_make_one_grammar() -> None:
    tools = [Tool(f"tool_{n}", CITY) for n in range(128)]
    grammar = calls_grammar(FORMATS["hermes"], tools, required=True)
    call = json.dumps({"name": "tool_77", "arguments": {"city": "Oslo"}})
    assert accepts(grammar, f"<tool_call>\n{call}\n</tool_call>", "family")
