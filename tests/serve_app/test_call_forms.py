"""Calls in all three protocols: every form that models write, whole and streamed, and where an answer is cut.

A chat, a response and a message say the same of one answer, whether it comes whole or token by token.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import httpx2
import pytest
from transformers import PreTrainedTokenizerFast

from core.text.tokenizer import Tokenizer
from tests.core.tools.call_forms import CALL, FORMS, FRAMES, NAMES, WRITTEN
from tests.core.tools.parsed import ToolCall
from tests.serve_app.calling import TEMPLATE
from tests.serve_app.clients import events, http_client
from tests.serve_app.scripted import BOS, EOS, EOS_ID, ScriptedService, tokens_of, toy_tokenizer

USER = [{"role": "user", "content": "x"}]
PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/messages")
ENDS = {"end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_calls", "max_tokens": "length"}
OFFERED: dict[str, Any] = {
    PATHS[0]: [{"type": "function", "function": {"name": name}} for name in NAMES],
    PATHS[1]: [{"type": "function", "name": name} for name in NAMES],
    PATHS[2]: [{"name": name, "input_schema": {"type": "object"}} for name in NAMES],
}
ONE_OF_EACH = [(form, frames[0].strip().replace("{}", WRITTEN)) for form, frames in FRAMES.items()]


class Said(NamedTuple):
    """What a client gets of an answer, in words of /v1/chat/completions."""

    content: str
    calls: tuple[ToolCall, ...]
    end: str


def service(tool_format: str, text: str) -> ScriptedService:
    """A service that answers `text`, a token per run."""
    hf = PreTrainedTokenizerFast(
        tokenizer_object=toy_tokenizer().raw, bos_token=BOS, eos_token=EOS, chat_template=TEMPLATE
    )
    made = ScriptedService(tokens_of(text), (1,))
    made.tokenizer, made.context = Tokenizer(hf, [EOS_ID], tool_format), 4096
    return made


def asked(path: str, fields: dict[str, Any], *, stream: bool) -> dict[str, Any]:
    """The body of a request; `fields` are those of /v1/chat/completions."""
    body = {"model": "org/toy", "tools": OFFERED[path], "stream": stream, **fields}
    if path == PATHS[1]:
        most = {"max_output_tokens": body.pop("max_tokens")} if "max_tokens" in body else {}
        return {**body, **most, "input": "x"}
    if path == PATHS[2]:
        choice = {"tool_choice": {"type": "any"}} if body.pop("tool_choice", "auto") == "required" else {}
        stops = {"stop_sequences": body.pop("stop")} if "stop" in body else {}
        return {"max_tokens": 2000, **body, **choice, **stops, "messages": USER}
    return {**body, "messages": USER}


async def answers(client: httpx2.AsyncClient, path: str, **fields: Any) -> list[Said]:
    """The answer whole, and streamed."""
    whole = await client.post(path, json=asked(path, fields, stream=False))
    parts = await client.post(path, json=asked(path, fields, stream=True))
    assert whole.status_code == parts.status_code == 200, whole.text + parts.text
    reads = {PATHS[0]: (of_chat, of_chunks), PATHS[1]: (of_response, of_events), PATHS[2]: (of_message, of_blocks)}
    return [reads[path][0](whole.json()), reads[path][1](parts.text)]


def of_chat(body: Any) -> Said:
    choice = body["choices"][0]
    functions = [call["function"] for call in choice["message"].get("tool_calls") or []]
    calls = tuple(ToolCall(function["name"], function["arguments"]) for function in functions)
    return Said(choice["message"]["content"] or "", calls, choice["finish_reason"])


def of_chunks(text: str) -> Said:
    content, end, calls = "", "", list[list[str]]()
    for chunk in events(text)[:-1]:
        choice = chunk["choices"][0]
        content += choice["delta"].get("content") or ""
        end = choice["finish_reason"] or end
        for call in choice["delta"].get("tool_calls", []):
            if "name" in call["function"]:
                calls.append([call["function"]["name"], ""])
            calls[call["index"]][1] += call["function"]["arguments"]
    return Said(content, tuple(ToolCall(name, arguments) for name, arguments in calls), end)


def of_response(body: Any) -> Said:
    items = body["output"]
    content = "".join(item["content"][0]["text"] for item in items if item["type"] == "message")
    calls = [item for item in items if item["type"] == "function_call"]
    end = "length" if body["status"] == "incomplete" else "tool_calls" if calls else "stop"
    if calls:
        is_whole = all(item["status"] == "completed" for item in calls)
        assert is_whole or calls[-1] is items[-1]
        assert is_whole or end == "length"
    return Said(content, tuple(ToolCall(item["name"], item["arguments"]) for item in calls), end)


def named_events(text: str) -> list[Any]:
    return [json.loads(block.partition("data: ")[2]) for block in text.split("\n\n") if block]


def of_events(text: str) -> Said:
    told = named_events(text)
    parts: dict[str, list[str]] = {"response.output_text.delta": [], "response.function_call_arguments.delta": []}
    for event in told:
        if event["type"] in parts:
            parts[event["type"]].append(event["delta"])
    said = of_response(told[-1]["response"])
    assert "".join(parts["response.output_text.delta"]) == said.content
    assert "".join(parts["response.function_call_arguments.delta"]) == "".join(call.arguments for call in said.calls)
    return said


def of_message(body: Any) -> Said:
    """Its calls have the arguments as an object."""
    content = "".join(block["text"] for block in body["content"] if block["type"] == "text")
    blocks = [block for block in body["content"] if block["type"] == "tool_use"]
    calls = tuple(ToolCall(block["name"], json.dumps(block["input"])) for block in blocks)
    return Said(content, calls, ENDS[body["stop_reason"]])


def of_blocks(text: str) -> Said:
    content, end, calls = "", "", list[list[str]]()
    for event in named_events(text):
        match event:
            case {"type": "content_block_start", "content_block": {"type": "tool_use", "name": name}}:
                calls.append([name, ""])
            case {"type": "content_block_delta", "delta": {"text": str(said)}}:
                content += said
            case {"type": "content_block_delta", "delta": {"partial_json": str(said)}}:
                calls[-1][1] += said
            case {"type": "message_delta", "delta": {"stop_reason": str(reason)}}:
                end = ENDS[reason]
    return Said(content, tuple(ToolCall(name, arguments) for name, arguments in calls), end)


def normal(said: Said) -> Said:
    """The same with arguments as `json.dumps` writes them, as far as they are JSON."""
    return said._replace(calls=tuple(ToolCall(call.name, _dumped(call.arguments)) for call in said.calls))


def _dumped(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments))
    except ValueError:
        return arguments


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("tool_format", FRAMES)
async def test_each_form_is_calls_whole_and_streamed(path: str, tool_format: str) -> None:
    asking = service(tool_format, "x")
    async with http_client(asking) as client:
        for form in FORMS:
            if form.tool_format == tool_format:
                asking.tokens = tokens_of(form.text)
                expected = Said(form.content, form.calls, "tool_calls" if form.calls else "stop")
                assert [normal(said) for said in await answers(client, path)] == [normal(expected)] * 2, form


@pytest.mark.parametrize(("tool_format", "text"), ONE_OF_EACH)
async def test_no_stop_string_ends_a_call_that_a_grammar_holds(tool_format: str, text: str) -> None:
    async with http_client(service(tool_format, text)) as client:
        for path in (PATHS[0], PATHS[2]):
            for stop in ('"x"', "}", '"', "get", "a"):
                for said in await answers(client, path, tool_choice="required", stop=[stop]):
                    assert said == Said("", (CALL,), "tool_calls"), (path, stop)


@pytest.mark.parametrize(("tool_format", "text"), ONE_OF_EACH)
async def test_a_call_that_was_cut_is_never_one_to_run(tool_format: str, text: str) -> None:
    in_it = tokens_of('"x"')[-1:]
    async with http_client(service(tool_format, text)) as client:
        for path in (PATHS[0], PATHS[2]):
            for stop in ('"x"', "}", "x", "}}"):
                whole, parts = await answers(client, path, stop=[stop])
                assert whole.end == parts.end == "stop", (path, stop)
                assert whole.content == parts.content == ""
        for choice in ("auto", "required"):
            whole, parts = await answers(client, PATHS[0], stop_token_ids=in_it, tool_choice=choice)
            assert whole == parts
            assert whole.end == "stop"
        message = await client.post(PATHS[2], json=asked(PATHS[2], {"stop": ["x"]}, stream=False))
        assert (message.json()["stop_reason"], message.json()["stop_sequence"]) == ("stop_sequence", "x")


@pytest.mark.parametrize(("tool_format", "text"), ONE_OF_EACH)
@pytest.mark.parametrize("choice", ["auto", "required"])
async def test_a_limit_anywhere_shows_no_part_of_a_marker(tool_format: str, text: str, choice: str) -> None:
    async with http_client(service(tool_format, text)) as client:
        for most in range(1, len(tokens_of(text)), 7):
            chat = await answers(client, PATHS[0], max_tokens=most, tool_choice=choice)
            assert chat[0] == chat[1]
            others = [await answers(client, path, max_tokens=most, tool_choice=choice) for path in PATHS[1:]]
            told = {(said.content, len(said.calls), said.end) for said in [*chat, *others[0], *others[1]]}
            assert told == {(chat[0].content, len(chat[0].calls), "length")}
            assert all(CALL.arguments.startswith(call.arguments) for call in chat[0].calls)
            bare = choice == "auto" and tool_format in ("llama3", "json")  # it may become other JSON
            assert chat[0].content == "" or (bare and '"name":' not in chat[0].content), most


async def test_a_stop_string_ends_the_content_around_calls_that_a_grammar_holds() -> None:
    text = f"I look. <tool_call>\n{WRITTEN}\n</tool_call>\nIt is x END so."
    strict = [{"type": "function", "function": {"name": "get", "strict": True}}]
    async with http_client(service("hermes", text)) as client:
        for stop, expected in (
            ("x", Said("I look. \nIt is ", (CALL,), "tool_calls")),
            ("<tool", Said("I look. \nIt is x END so.", (CALL,), "tool_calls")),
            ("look", Said("I ", (), "stop")),
        ):
            assert await answers(client, PATHS[0], tools=strict, stop=[stop]) == [expected] * 2
