"""What /v1/responses refuses, by the client's own name of the field."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serve_app.clients import http_client
from tests.serve_app.scripted import ScriptedService

BODY = {"model": "org/toy", "input": "the answer"}
USER = {"role": "user", "content": "the answer"}
FUNCTION = {"type": "function", "name": "f"}


def allowed(mode: str, *tools: Any) -> dict[str, Any]:
    return {"type": "allowed_tools", "mode": mode, "tools": list(tools)}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("input", {"input": None}, "required"),
    ("input", {"input": 3}, "a string or a list of items"),
    ("input", {"input": []}, "a string or a list of items"),
    ("input", {"input": [USER] * 5000}, "at most 4096"),
    ("input", {"input": [{"type": "reasoning", "content": []}]}, "say nothing; add a message"),
    ("input[0]", {"input": [{"type": "item_reference", "id": "msg_1"}]}, "items of type 'item_reference' are not"),
    ("input[1]", {"input": [USER, {"type": "web_search_call", "id": "w"}]}, "takes message, function_call"),
    ("input[0]", {"input": [USER, 3]} | {"input": [{"type": ["a"]}]}, "items of type '...'"),
    ("input[1]", {"input": [USER, 3]}, "must be an object"),
    ("input[0].role", {"input": [{"role": "tool", "content": "a"}]}, "'system'"),
    ("input[0].content", {"input": [{"role": "user", "content": 3}]}, "a string or a list of text parts"),
    ("input[0].content[0]", {"input": [{**USER, "content": [{"type": "input_image"}]}]}, "parts of type 'input_image'"),
    ("input[0].call_id", {"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "required"),
    ("input[0].name", {"input": [{"type": "function_call", "call_id": "c", "arguments": "{}"}]}, "required"),
    ("input[0].output", {"input": [{"type": "function_call_output", "call_id": "c"}]}, "required"),
    ("input[0].contents", {"input": [{**USER, "contents": "a"}]}, "the nearest known one is 'content'"),
    ("input", {"input": "refuse me"}, "this template will not have it"),
    ("input", {"input": "word " * 300}, "the context of 256"),
    ("previous_response_id", {"previous_response_id": "resp_1"}, "keeps no state; send the whole conversation"),
    ("conversation", {"conversation": {"id": "conv_1"}}, "keeps no state"),
    ("background", {"background": True}, "keeps no state"),
    ("prompt", {"prompt": {"id": "pmpt_1"}}, "keeps no state"),
    ("truncation", {"truncation": "auto"}, 'leave it out or send "disabled"'),
    ("top_logprobs", {"top_logprobs": 3}, "not supported; leave it out or send 0"),
    ("include", {"include": ["message.output_text.logprobs"]}, "/v1/chat/completions has logprobs"),
    ("tools[1]", {"tools": [{"type": "web_search"}]} | {"tools": [{"type": "function", "name": "f"}, 3]}, "an object"),
    *[
        ("tools[0]", {"tools": [{"type": kind}]}, f"tools of type '{kind}' are not supported; this service takes")
        for kind in ("web_search", "file_search", "computer_use_preview", "code_interpreter", "mcp", "custom")
    ],
    ("tools[0].name", {"tools": [{"type": "function"}]}, "required"),
    ("tools[0].defer_loading", {"tools": [{"type": "function", "name": "f", "defer_loading": True}]}, "not supported"),
    ("tool_choice", {"tool_choice": "any"}, "'required'"),
    ("tool_choice", {"tool_choice": {"type": "file_search"}}, "tool choices of type 'file_search' are not supported"),
    ("tool_choice.mode", {"tool_choice": allowed("any", FUNCTION)}, "'required'"),
    ("tool_choice.tools", {"tools": [FUNCTION], "tool_choice": allowed("auto")}, "at least 1 item"),
    ("tool_choice.tools[0]", {"tool_choice": allowed("auto", {"type": "mcp"})}, "allowed tools of type 'mcp' are not"),
    (
        "tool_choice.tools[1].name",
        {"tools": [FUNCTION], "tool_choice": allowed("auto", FUNCTION, {"type": "function", "name": "g"})},
        "'tool_choice.tools[1].name' is none of the 1 tools",
    ),
    ("input[0].content", {"input": [{"role": "user", "content": []}]}, "a list of text parts that is not empty"),
    ("input[0].content[0].refusal", {"input": [{**USER, "content": [{"type": "refusal"}]}]}, "required"),
    ("max_output_tokens", {"max_output_tokens": 0}, "greater than or equal to 1"),
    ("max_output_tokens", {"max_output_tokens": 10_000}, "max_output_tokens of 10000 exceed the context"),
    ("temperature", {"temperature": 3.0}, "less than or equal to 2"),
    ("top_p", {"top_p": -1.0}, "greater than or equal to 0"),
    ("text.format.type", {"text": {"format": {"type": "grammar"}}}, "'text.format"),
    ("text.formats", {"text": {"formats": {}}}, "the nearest known one is 'format'"),
    ("text.verbosity", {"text": {"verbosity": "low"}}, 'leave it out or send "medium"'),
    ("reasoning.effort", {"reasoning": {"effort": 3}}, "valid string"),
    ("metadata", {"metadata": {str(number): "" for number in range(17)}}, "at most 16"),
    ("metadata.a", {"metadata": {"a": 1}}, "valid string"),
    ("speculation.task", {"speculation": {"task": "maths"}}, "the nearest known one is 'math'"),
    ("temprature", {"temprature": 1}, "the nearest known one is 'temperature'"),
    ("messages", {"messages": [USER]}, "unknown field 'messages'"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("param", "fields", "message"), REFUSED)
async def test_the_field_at_fault_is_named(param: str, fields: dict[str, Any], message: str, stream: bool) -> None:
    service = ScriptedService()
    async with http_client(service) as client:
        response = await client.post("/v1/responses", json={**BODY, **fields, "stream": stream})
    error = response.json()["error"]
    assert response.status_code == 400, error
    assert error["param"] == param
    assert message in error["message"]
    assert not service.asked


async def test_the_model_is_checked() -> None:
    async with http_client(ScriptedService()) as client:
        response = await client.post("/v1/responses", json={**BODY, "model": "gpt-x"})
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize(
    "fields",
    [
        {"store": True, "background": False, "truncation": "disabled", "top_logprobs": 0, "tools": []},
        {"previous_response_id": None, "conversation": None, "instructions": None, "metadata": None, "text": None},
        {"include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}, "text": {"verbosity": "medium"}},
        {"text": {"format": {"type": "text"}}, "service_tier": "auto", "user": "u", "prompt_cache_key": "k"},
        {"client_metadata": {"x-codex-installation-id": "i"}},
    ],
)
async def test_what_asks_for_nothing_is_accepted(fields: dict[str, Any]) -> None:
    async with http_client(ScriptedService()) as client:
        response = await client.post("/v1/responses", json={**BODY, **fields})
    assert response.status_code == 200, response.text
