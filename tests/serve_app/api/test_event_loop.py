"""What takes long is done in a thread: one client's huge request must not hold up the tokens of the others."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from core.text.tokenizer import Tokenizer
from serve_app.http.answers import INLINE_LOGPROBS
from serve_app.http.prompts import INLINE_CHARACTERS
from serve_app.http.schema.values import MAX_OBJECTS
from serve_app.protocols.anthropic import routes as anthropic_routes
from serve_app.protocols.responses import routes as responses_routes
from tests.serve_app.clients import JSON, http_client
from tests.serve_app.scripted import ScriptedService, toy_tokenizer


class Watching(Tokenizer):
    """The toy tokenizer; notes which threads write logprobs with it, and which tokenise."""

    def __init__(self) -> None:
        self.__dict__.update(toy_tokenizer().__dict__)
        self.writers: set[int] = set()
        self.written = 0
        self.encoders: set[int] = set()

    def token_text(self, token: int) -> str:
        self.writers.add(threading.get_ident())
        self.written += 1
        return super().token_text(token)

    def encode_text(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        self.encoders.add(threading.get_ident())
        return super().encode_text(text, add_special_tokens=add_special_tokens)


async def ask(tokens: int = 1, **fields: Any) -> Watching:
    service = ScriptedService(tokens=[9] * 200, lengths=[tokens])
    service.tokenizer = Watching()
    async with http_client(service) as client:
        body = {"model": "org/toy", "prompt": "the", "max_tokens": tokens, **fields}
        response = await client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    return service.tokenizer


@pytest.mark.parametrize("stream", [False, True])
async def test_many_logprobs_are_written_in_a_thread_and_few_are_not(*, stream: bool) -> None:
    here = {threading.get_ident()}
    few = await ask(2, logprobs=5, stream=stream)
    assert few.writers == here
    many = await ask(3 * INLINE_LOGPROBS, logprobs=5, stream=stream)
    assert not many.writers <= here
    if not stream:
        assert not many.writers & here


@pytest.mark.parametrize("stream", [False, True])
async def test_many_logprobs_of_a_prompt_are_written_in_a_thread_and_once_for_all_choices(*, stream: bool) -> None:
    here, prompt = {threading.get_ident()}, [9] * (3 * INLINE_LOGPROBS)
    read = {"prompt": prompt, "echo": True, "logprobs": 0, "max_tokens": 0, "stream": stream}
    one = await ask(**read)
    assert one.writers
    assert not one.writers & here
    assert (await ask(**read, n=3)).written < 2 * one.written
    few = await ask(**{**read, "prompt": prompt[:2]})
    assert few.writers == here


async def test_many_short_prompts_are_tokenised_in_a_thread_as_one_long_one_is() -> None:
    here, short = {threading.get_ident()}, "the answer "
    number = 2 + INLINE_CHARACTERS // len(short)
    assert (await ask(prompt=[short] * 3)).encoders == here
    assert not (await ask(prompt=[short] * number)).encoders & here
    assert not (await ask(prompt="a " * (number // 100))).encoders - here


def part(kind: str, number: int) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": kind, "text": "a"}] * number}


def uses(number: int) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}] * number}


CALL = {"id": "a", "function": {"name": "f", "arguments": "{}"}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "a"}] * 99}
OUTPUT = {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "a"}] * 99}


@pytest.mark.parametrize(
    ("path", "field", "entries"),
    [
        ("/v1/chat/completions", "messages", [part("text", 20)] * 4000),
        ("/v1/chat/completions", "messages", [{"role": "assistant", "tool_calls": [CALL] * 128}] * 64),
        ("/tokenize", "messages", [part("text", 20)] * 4000),
        ("/v1/messages", "messages", [part("text", 20)] * 4000),
        ("/v1/messages", "messages", [uses(128)] * 400),
        ("/v1/messages", "messages", [{"role": "user", "content": [RESULT]}] * 100),
        ("/v1/messages/count_tokens", "messages", [uses(128)] * 400),
        ("/v1/responses", "input", [part("input_text", 20)] * 4000),
        ("/v1/responses", "input", [OUTPUT] * 100),
    ],
)
async def test_conversations_of_too_many_objects_in_all_are_refused_before_any_is_looked_at(
    path: str, field: str, entries: list[dict[str, Any]]
) -> None:
    """Four megabytes may hold more than a hundred thousand, each of which takes its time."""
    entries = [*entries, {"role": "nobody"}]
    body = {"model": "org/toy", field: entries} | ({"max_tokens": 9} if path == "/v1/messages" else {})
    async with http_client(ScriptedService()) as client:
        response = await client.post(path, json=body)
    assert response.status_code == 400
    told = f"'{field}': must have at most {MAX_OBJECTS} messages, parts and calls in all"
    assert response.json()["error"]["message"] == told


@pytest.mark.parametrize(
    ("module", "path", "body"),
    [
        (anthropic_routes, "/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": "a"}]}),
        (anthropic_routes, "/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "a"}]}),
        (responses_routes, "/v1/responses", {"input": "a"}),
    ],
)
async def test_large_bodies_of_other_protocols_are_translated_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, module: Any, path: str, body: dict[str, Any]
) -> None:
    translate, threads = module.translated, list[int]()

    def noted(given: Any) -> Any:
        threads.append(threading.get_ident())
        return translate(given)

    monkeypatch.setattr(module, "translated", noted)
    async with http_client(ScriptedService()) as client:
        for spaces in (0, INLINE_CHARACTERS):
            content = json.dumps({"model": "org/toy", **body}).encode() + b" " * spaces
            response = await client.post(path, content=content, headers=JSON)
            assert response.status_code == 200, response.text
    assert threads[0] == threading.get_ident() != threads[1]
