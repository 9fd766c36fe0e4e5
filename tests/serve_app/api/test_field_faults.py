"""Fields of a request: a fault is named with its field, and nothing reaches a model; what is no fault is served."""

from __future__ import annotations

from typing import Any

import pytest

from core.sampling.params import MAX_STOPS, MAX_TOP_LOGPROBS
from tests.serve_app.api.refusals import CHAT, COMPLETIONS, GOOD, body_of, refused
from tests.serve_app.clients import JSON, http_client
from tests.serve_app.scripted import ScriptedService

NAN, INFINITY = float("nan"), float("inf")


def predicted(content: str) -> dict[str, str]:
    return {"type": "content", "content": content}


# field at fault, fields of the body (None takes one away), part of the message
SHARED: list[tuple[str, dict[str, Any], str]] = [
    ("model", {"model": None}, "required"),
    ("model", {"model": 3}, "valid string"),
    ("temperature", {"temperature": -1}, "greater than or equal to 0"),
    ("temperature", {"temperature": 2.1}, "less than or equal to 2"),
    ("temperature", {"temperature": NAN}, "'temperature' is NaN, which JSON does not have"),
    ("temperature", {"temperature": INFINITY}, "is Infinity, which JSON does not have"),
    ("logit_bias.5", {"logit_bias": {"5": -INFINITY}}, "is -Infinity, which JSON does not have"),
    ("guided_json.maximum", {"guided_json": {"type": "number", "maximum": NAN}}, "is NaN, which JSON does not have"),
    ("temperature", {"temperature": "0.5"}, "valid number"),
    ("temperature", {"temperature": True}, "valid number"),
    ("temperature", {"temperature": 10**400}, ""),
    ("top_p", {"top_p": -0.1}, "greater than or equal to 0"),
    ("top_p", {"top_p": 1.5}, "less than or equal to 1"),
    ("top_k", {"top_k": -2}, "greater than or equal to -1"),
    ("top_k", {"top_k": 2**63}, "less than"),
    ("min_p", {"min_p": -0.1}, "greater than or equal to 0"),
    ("max_completion_tokens", {"max_completion_tokens": 0}, "greater than or equal to 1"),
    ("max_tokens", {"max_tokens": 1.5}, "valid integer"),
    ("max_tokens", {"max_tokens": 5, "max_completion_tokens": 5}, "not both"),
    ("max_completion_tokens", {"max_completion_tokens": 0}, "greater than or equal to 1"),
    ("n", {"n": 0}, "greater than or equal to 1"),
    ("n", {"n": 10000}, "at most 4"),
    ("n", {"n": True}, "valid integer"),
    ("seed", {"seed": 2**63}, "less than"),
    ("seed", {"seed": 10**3000}, "less than"),
    ("stop", {"stop": 7}, "a string or a list of strings"),
    ("stop", {"stop": ""}, "at least 1 character"),
    ("stop[1]", {"stop": ["a", ""]}, "at least 1 character"),
    ("stop", {"stop": ["a"] * (MAX_STOPS + 1)}, f"at most {MAX_STOPS}"),
    ("stop_token_ids", {"stop_token_ids": [320]}, "from 0 to 319"),
    ("stop_token_ids", {"stop_token_ids": [-1]}, "from 0 to 319"),
    ("stop_token_ids", {"stop_token_ids": [1] * 2000}, "at most 1024"),
    ("stop_token_ids[0]", {"stop_token_ids": ["a"]}, "valid integer"),
    ("skip_special_tokens", {"skip_special_tokens": "no"}, "valid boolean"),
    ("include_stop_str_in_output", {"include_stop_str_in_output": 1}, "valid boolean"),
    ("presence_penalty", {"presence_penalty": 3}, "less than or equal to 2"),
    ("frequency_penalty", {"frequency_penalty": -3}, "greater than or equal to -2"),
    ("logit_bias", {"logit_bias": {"12x": 1}}, "decimal digits"),
    ("logit_bias", {"logit_bias": {"-1": 1}}, "decimal digits"),
    ("logit_bias", {"logit_bias": {"319999": 1}}, "between 0 and"),
    ("logit_bias", {"logit_bias": [1]}, "dictionary"),
    ("logit_bias.5", {"logit_bias": {"5": 101}}, "less than or equal to 100"),
    ("logit_bias", {"logit_bias": dict.fromkeys(map(str, range(2000)), 1)}, "at most 1024"),
    ("stream", {"stream": 1}, "valid boolean"),
    ("stream_options", {"stream_options": {"include_usage": True}}, "needs stream"),
    ("stream_options.include_usages", {"stream": True, "stream_options": {"include_usages": True}}, "'include_usage'"),
    ("temprature", {"temprature": 1}, "the nearest known one is 'temperature'"),
    ("max_token", {"max_token": 1}, "the nearest known one is 'max_tokens'"),
    ("x" * 200, {"x" * 200: 1}, "unknown field"),
    ("mirostat", {"mirostat": 2}, "'mirostat'; /docs lists those of this endpoint"),
    ("min_tokens", {"min_tokens": 300}, "between 0 and"),
    ("min_tokens", {"min_tokens": -1}, "greater than or equal to 0"),
    ("ignore_eos", {"ignore_eos": True, "guided_regex": "a*"}, "cannot be set with a grammar"),
    ("min_tokens", {"min_tokens": 1, "guided_regex": "a*"}, "cannot be set with a grammar"),
    ("repetition_penalty", {"repetition_penalty": 0}, "greater than or equal to 0.01"),
    ("response_format.type", {"response_format": {"type": "xml"}}, "'json_schema'"),
    ("response_format.json_schema", {"response_format": {"type": "json_schema"}}, "goes with the type json_schema"),
    ("guided_json", {"guided_json": 3}, "a JSON schema, as an object or as text"),
    ("guided_json", {"guided_json": "{"}, "not valid JSON"),
    ("guided_json", {"guided_json": "[" * 9000 + "]" * 9000}, "not valid JSON"),
    ("guided_json", {"guided_json": "[]"}, "an object"),
    ("guided_json.properties.a", {"guided_json": {"properties": {"a": {"type": "txt"}}}}, "there is no type txt"),
    ("guided_regex", {"guided_regex": "("}, "unclosed group"),
    ("guided_choice", {"guided_choice": []}, "none of them empty"),
    ("guided_choice", {"guided_choice": ["a"] * 2000}, "at most 1024"),
    ("guided_grammar", {"guided_grammar": "start: nothing"}, "unknown name"),
    ("guided_choice", {"guided_choice": ["a"], "guided_regex": "a"}, "cannot be had together"),
    ("structured_outputs.json", {"structured_outputs": {"json": {"type": "txt"}}}, "there is no type txt"),
    ("structured_outputs", {"structured_outputs": {"regex": "a", "choice": ["a"]}}, "cannot be had together"),
    ("structured_outputs.jsn", {"structured_outputs": {"jsn": {}}}, "the nearest known one is 'json'"),
    ("store", {"store": "no"}, "valid boolean"),
    ("speculation", {"speculation": True}, "dictionary"),
    ("speculation.tasks", {"speculation": {"tasks": "math"}}, "the nearest known one is 'task'"),
    ("speculation.task", {"speculation": {"task": "maths"}}, "unknown task 'maths'; the nearest known one is 'math'"),
    ("speculation.task", {"speculation": {"task": "cooking"}}, "this service has 'general', 'math', 'python'"),
    ("speculation.task", {"speculation": {"task": 1}}, "valid string"),
    ("speculation.num_speculative_tokens", {"speculation": {"num_speculative_tokens": -1}}, "greater than or equal"),
    ("speculation.num_speculative_tokens", {"speculation": {"num_speculative_tokens": 17}}, "less than or equal to 16"),
    ("speculation.enabled", {"speculation": {"enabled": "yes"}}, "valid boolean"),
]
ONLY_COMPLETIONS: list[tuple[str, dict[str, Any], str]] = [
    ("prompt", {"prompt": None}, "required"),
    ("prompt", {"prompt": ""}, "must not be empty"),
    ("prompt", {"prompt": []}, "must not be empty"),
    ("prompt[1]", {"prompt": ["a", ""]}, "must not be empty"),
    ("prompt[0]", {"prompt": [[], [1]]}, "must not be empty"),
    ("prompt", {"prompt": {"text": "a"}}, "a string, a list of strings, a list of token ids"),
    ("prompt[1]", {"prompt": ["a", 1]}, "valid string"),
    ("prompt[1]", {"prompt": [1, "a"]}, "valid integer"),
    ("prompt[1][0]", {"prompt": [[1], [1.5]]}, "valid integer"),
    ("prompt", {"prompt": ["a"] * 3000}, "at most 2048"),
    ("prompt", {"prompt": [0, 320]}, "from 0 to 319"),
    ("prompt", {"prompt": [-1]}, "from 0 to 319"),
    ("prompt[1]", {"prompt": [[1], [10**30]]}, "from 0 to 319"),
    ("logprobs", {"logprobs": MAX_TOP_LOGPROBS + 1}, f"less than or equal to {MAX_TOP_LOGPROBS}"),
    ("logprobs", {"logprobs": True}, "valid integer"),
    ("top_logprobs", {"top_logprobs": 2}, "unknown field"),
    ("messages", {"messages": []}, "unknown field"),
    *[(name, {name: value}, "not supported") for name, value in {"best_of": 2, "suffix": "x"}.items()],
]
MESSAGE = {"role": "user", "content": "the answer"}
TOOL = {"type": "function", "function": {"name": "f"}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def tool_with(parameters: object) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


def allowed(mode: str, *tools: Any) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(tools)}}


IMAGE = {"type": "image_url", "image_url": {"url": "http://a/b.png"}}
ONLY_CHAT: list[tuple[str, dict[str, Any], str]] = [
    ("messages", {"messages": None}, "required"),
    ("messages", {"messages": []}, "at least 1 item"),
    ("messages", {"messages": "hello"}, "list"),
    ("messages", {"messages": [MESSAGE] * 5000}, "at most 4096"),
    ("messages[0]", {"messages": ["hello"]}, "dictionary"),
    ("messages[1].role", {"messages": [MESSAGE, {"content": "a"}]}, "required"),
    ("messages[0].role", {"messages": [{"role": "pirate", "content": "a"}]}, "'system'"),
    ("messages[0].content", {"messages": [{"role": "user", "content": None}]}, "required"),
    ("messages[0].content", {"messages": [{"role": "user", "content": 3}]}, "a list of text parts"),
    ("messages[0].content", {"messages": [{"role": "user", "content": []}]}, "a list of text parts that is not empty"),
    ("messages[0].content", {"messages": [{"role": "assistant", "content": None}]}, "required"),
    ("messages[0].refusal", {"messages": [{**MESSAGE, "refusal": "no"}]}, "only a message of the role 'assistant'"),
    ("messages[0].content[0].refusal", {"messages": [{**MESSAGE, "content": [{"type": "refusal"}]}]}, "required"),
    ("messages[0].content[0].image_url", {"messages": [{"role": "user", "content": [IMAGE]}]}, "not supported"),
    ("messages[0].content[0].text", {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "required"),
    ("messages[0].tool_calls[0].id", {"messages": [{**MESSAGE, "tool_calls": [{}]}]}, "required"),
    ("messages[0].tool_calls", {"messages": [{**MESSAGE, "tool_calls": [CALL]}]}, "only a message of the role"),
    ("messages[0].tool_calls", {"messages": [{"role": "assistant", "tool_calls": [CALL]}]}, "template has no tools"),
    ("messages[0].reasoning_content", {"messages": [{**MESSAGE, "reasoning_content": "hm"}]}, "only a message of"),
    ("messages[0].tool_call_id", {"messages": [{"role": "tool", "content": "a"}]}, "required"),
    ("messages[0].tool_call_id", {"messages": [{**MESSAGE, "tool_call_id": "a"}]}, "only there"),
    ("messages[0].role", {"messages": [{"role": "tool", "content": "a", "tool_call_id": "b"}]}, "has no tools"),
    ("tools", {"tools": [TOOL]}, "template has no tools"),
    ("tools", {"tools": [TOOL] * 129}, "at most 128"),
    ("tools[0].type", {"tools": [{**TOOL, "type": "custom"}]}, "'function'"),
    ("tools[0].function", {"tools": [{"type": "function"}]}, "required"),
    ("tools[0].function.name", {"tools": [{"type": "function", "function": {"name": "a b"}}]}, "pattern"),
    ("tools[0].function.name", {"tools": [{"type": "function", "function": {"name": "a" * 129}}]}, "pattern"),
    ("tools[1].function.name", {"tools": [TOOL, TOOL]}, "names must differ"),
    ("tools[0].function.parameters", {"tools": [tool_with([])]}, "dictionary"),
    ("tools[0].function.parameters", {"tools": [tool_with({"type": "string"})]}, "schema of an object"),
    ("tools[0].function.schema", {"tools": [{"type": "function", "function": {"name": "f", "schema": {}}}]}, "unknown"),
    ("tool_choice", {"tool_choice": "required"}, "needs tools"),
    ("tool_choice", {"tool_choice": "always"}, "'required'"),
    ("tool_choice", {"tool_choice": 3}, "must be none, auto"),
    ("tool_choice.type", {"tool_choice": {"type": "custom", "function": {"name": "g"}}}, "'function'"),
    ("tool_choice.function.name", {"tool_choice": {"type": "function", "function": {"name": "g"}}}, "none of the 0"),
    ("tool_choice.allowed_tools", {"tool_choice": {"type": "allowed_tools"}}, "required"),
    ("tool_choice.allowed_tools.mode", {"tool_choice": allowed("none", TOOL)}, "'required'"),
    ("tool_choice.allowed_tools.tools", {"tools": [TOOL], "tool_choice": allowed("auto")}, "at least 1 item"),
    ("tool_choice.allowed_tools.tools", {"tool_choice": allowed("auto", *[TOOL] * 129)}, "at most 128"),
    ("tool_choice.allowed_tools.tools[0].type", {"tool_choice": allowed("auto", {"type": "mcp"})}, "'function'"),
    (
        "tool_choice.allowed_tools.tools[1].function.name",
        {"tools": [TOOL], "tool_choice": allowed("auto", TOOL, {"type": "function", "function": {"name": "g"}})},
        "none of the 1 tools",
    ),
    ("parallel_tool_calls", {"parallel_tool_calls": "no"}, "valid boolean"),
    ("include_reasoning", {"include_reasoning": "no"}, "valid boolean"),
    ("reasoning_effort", {"reasoning_effort": "high"}, "knows no reasoning effort"),
    ("reasoning_effort", {"reasoning_effort": "much"}, "'high'"),
    ("messages[0].contents", {"messages": [{**MESSAGE, "contents": "a"}]}, "the nearest known one is 'content'"),
    ("messages", {"messages": [{"role": "user", "content": "refuse me"}]}, "this template will not have it"),
    ("logprobs", {"logprobs": 2}, "valid boolean"),
    ("top_logprobs", {"logprobs": True, "top_logprobs": 21}, "less than or equal to 20"),
    ("top_logprobs", {"top_logprobs": 2}, "needs logprobs"),
    ("prompt", {"prompt": "a"}, "unknown field"),
    ("continue_final_message", {"continue_final_message": True, "add_generation_prompt": True}, "leave out"),
    ("chat_template_kwargs", {"chat_template_kwargs": {"tokenize": True}}, "no variable of a chat template"),
    ("chat_template_kwargs", {"chat_template_kwargs": [1]}, "dictionary"),
    ("special_tokens_in_content", {"special_tokens_in_content": 1}, "valid boolean"),
    ("add_special_tokens", {"add_special_tokens": True}, "not supported"),
    ("prediction", {"prediction": "a"}, "dictionary"),
    ("prediction.type", {"prediction": {"content": "a"}}, "required"),
    ("prediction.type", {"prediction": {"type": "text", "content": "a"}}, "'content'"),
    ("prediction.content", {"prediction": {"type": "content"}}, "required"),
    ("prediction.content", {"prediction": {"type": "content", "content": 3}}, "a list of text parts"),
    ("prediction.content[0].text", {"prediction": {"type": "content", "content": [{"type": "text"}]}}, "required"),
    ("prediction.contents", {"prediction": {"type": "content", "contents": "a"}}, "the nearest known one is 'content'"),
    *[
        (name, {name: value}, "not supported")
        for name, value in {
            "chat_template": "{{ messages }}",
            "functions": [{"name": "f"}],
            "modalities": ["text", "audio"],
            "audio": {"voice": "x"},
        }.items()
    ],
]
FAULTS = [
    *[(path, *fault) for path in GOOD for fault in SHARED],
    *[(COMPLETIONS, *fault) for fault in ONLY_COMPLETIONS],
    *[(CHAT, *fault) for fault in ONLY_CHAT],
]


@pytest.mark.parametrize(("path", "param", "fields", "message"), FAULTS)
async def test_a_fault_is_named(path: str, param: str, fields: dict[str, Any], message: str) -> None:
    status, error = await refused(path, content=body_of(path, fields), headers=JSON)
    assert (status, error["param"]) == (400, param)
    assert message in error["message"]
    assert len(error["message"]) < 300


@pytest.mark.parametrize(
    ("path", "fields", "param", "message"),
    [
        (COMPLETIONS, {"prompt": [2] * 256}, "prompt", "256 tokens; the context of 256"),
        (COMPLETIONS, {"prompt": [2] * 250, "max_tokens": 7}, "max_tokens", "250 tokens of prompt and max_tokens of 7"),
        (COMPLETIONS, {"prompt": ["a", "the answer " * 200]}, "prompt[1]", "the context of 256"),
        (COMPLETIONS, {"prompt": "the answer " * 50000}, "prompt", "a context of 256 tokens"),
        (COMPLETIONS, {"max_tokens": 10**30}, "max_tokens", "exceed the context of 256"),
        (CHAT, {"messages": [{"role": "user", "content": "the answer " * 200}]}, "messages", "the context of 256"),
        (CHAT, {"messages": [{"role": "user", "content": "the answer " * 50000}]}, "messages", "context of 256 tokens"),
        (CHAT, {"max_completion_tokens": 256}, "max_tokens", "exceed the context of 256"),
        (CHAT, {"prediction": predicted("the " * 300)}, "prediction.content", "tokens; the context holds 256"),
        (CHAT, {"prediction": predicted("the " * 50000)}, "prediction.content", "context of 256 tokens"),
    ],
)
async def test_what_does_not_fit_the_context_names_field_and_limit(
    path: str, fields: dict[str, Any], param: str, message: str
) -> None:
    status, error = await refused(path, json={**GOOD[path], **fields})
    assert (status, error["param"], error["code"]) == (400, param, "context_length_exceeded")
    assert message in error["message"]


@pytest.mark.parametrize("path", GOOD)
async def test_an_unknown_model_is_not_found(path: str) -> None:
    status, error = await refused(path, json={**GOOD[path], "model": "gpt-x"})
    assert (status, error["param"], error["code"]) == (404, "model", "model_not_found")
    assert "'org/toy'" in error["message"]


async def test_a_whole_number_may_be_written_with_a_fraction_of_zero() -> None:
    fields = {"max_tokens": 6.0, "seed": 7e3, "n": 2.0, "top_k": 5.0, "stop_token_ids": [3.0, 4], "temperature": 1}
    service = ScriptedService()
    async with http_client(service) as client:
        response = await client.post(COMPLETIONS, json={**GOOD[COMPLETIONS], **fields, "prompt": [2.0, 3.0]})
    assert response.status_code == 200, response.text
    assert [request.tokens for request in service.asked] == [(2, 3)] * 2
    params = service.asked[0].params
    assert (params.max_tokens, params.seed, params.top_k, params.stop_ids) == (6, 7000, 5, (3, 4))
