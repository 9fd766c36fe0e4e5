"""Streams: a chunk per committed run, sent as it comes; joined they are the whole answer, however runs were cut."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.api.app import create_app
from tests.serve_app.clients import Connection, events, http_client
from tests.serve_app.scripted import ScriptedService, tokens_of, toy_tokenizer

COMPLETION = {"model": "org/toy", "prompt": "the answer", "max_tokens": 60}
CHAT = {"model": "org/toy", "messages": [{"role": "user", "content": "the answer"}]}
Complete = Callable[[list[int], list[int], dict[str, Any]], str]
WORDS = ["the end", " END", "END of", "stop", "中文", "🙂", " é", "答案", "a"]


async def stream(service: ScriptedService, path: str, body: dict[str, Any]) -> list[Any]:
    async with http_client(service) as client:
        response = await client.post(path, json={**body, "stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return events(response.text)


async def test_one_chunk_per_run_with_its_tokens_and_counts() -> None:
    answered = ScriptedService().tokens
    *chunks, done = await stream(ScriptedService(), "/v1/completions", {**COMPLETION, "max_tokens": 8})
    assert done == "[DONE]"
    assert [len(chunk["choices"][0]["token_ids"]) for chunk in chunks] == [1, 1, 3, 2, 1]
    assert [chunk["choices"][0]["speculation"] for chunk in chunks[1:3]] == [
        {"proposed": 1, "accepted": 0, "accepted_characters": 0},
        {"proposed": 3, "accepted": 2, "accepted_characters": len(toy_tokenizer().raw.decode(answered[2:4]))},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 4 + ["length"]
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert not any("usage" in chunk for chunk in chunks)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_a_character_counts_as_accepted_if_the_token_that_completes_it_is(path: str) -> None:
    tokens = tokens_of("中x中")  # three bytes and as many tokens each; the prefill gives one, a pass three
    assert len(tokens) == 7
    body = COMPLETION if path == "/v1/completions" else CHAT
    *chunks, _ = await stream(ScriptedService(tokens, lengths=(3,)), path, body)
    choices = [chunk["choices"][0] for chunk in chunks]
    texts = [choice["text"] if "text" in choice else choice["delta"]["content"] for choice in choices]
    counted = [choice["speculation"]["accepted_characters"] for choice in choices]
    assert list(zip(texts, counted, strict=True))[-4:] == [("", 0), ("中x", 1), ("中", 0), ("", 0)]


async def test_a_whole_answer_has_no_count_of_accepted_characters() -> None:
    async with http_client(ScriptedService()) as client:
        whole = (await client.post("/v1/chat/completions", json=CHAT)).json()
    assert whole["choices"][0]["speculation"].keys() == {"proposed", "accepted"}


async def test_usage_comes_last_when_asked_for() -> None:
    asked = {**COMPLETION, "stream_options": {"include_usage": True}}
    *_, last, done = await stream(ScriptedService(), "/v1/completions", asked)
    async with http_client(ScriptedService()) as client:
        whole = (await client.post("/v1/completions", json=COMPLETION)).json()
    assert done == "[DONE]"
    assert last["choices"] == []
    assert last["usage"] == whole["usage"]


@pytest.mark.parametrize(("path", "body"), [("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)])
async def test_usage_comes_with_every_chunk_when_asked_for(path: str, body: dict[str, Any]) -> None:
    asked = {**body, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    *chunks, last, _ = await stream(ScriptedService(), path, asked)
    counted = [chunk["usage"]["completion_tokens"] for chunk in chunks if chunk["choices"][0]["token_ids"]]
    tokens = [len(chunk["choices"][0]["token_ids"]) for chunk in chunks if chunk["choices"][0]["token_ids"]]
    assert counted == list(itertools.accumulate(tokens))
    assert last["usage"]["completion_tokens"] == counted[-1]


@pytest.mark.parametrize(("path", "body"), [("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)])
async def test_each_chunk_says_who_proposed_its_run_when_asked_to(path: str, body: dict[str, Any]) -> None:
    options = {"include_usage": True, "include_speculation": True}
    asked = {**body, "n": 2, "speculation": {"task": "math"}, "stream_options": options}
    *chunks, last, _ = await stream(ScriptedService(), path, asked)
    told = [chunk["choices"][0]["speculation"] for chunk in chunks if chunk["choices"][0]["index"] == 1]
    runs = [run for run in told if "pass" in run]
    assert len(told) - len(runs) == (path == "/v1/chat/completions")  # the chunk that opens the message is no run
    assert [run["pass"] for run in runs] == list(range(len(runs)))
    assert {run["task"] for run in runs} == {"math"}
    assert [run["source"] for run in runs] == [None if not run["proposed"] else "draft" for run in runs]
    assert {run["source"] for run in runs} == {None, "draft"}
    assert last["usage"]["speculation"]["sources"]["draft"]["accepted"] == 2 * sum(run["accepted"] for run in runs)


async def test_the_passes_of_an_answer_that_goes_on_are_counted_from_its_beginning() -> None:
    options = {"stream_options": {"include_speculation": True}, "seed": 1}
    *whole, _ = await stream(ScriptedService(), "/v1/completions", {**COMPLETION, **options})
    received = [token for chunk in whole[:3] for token in chunk["choices"][0]["token_ids"]][:-1]
    *rest, _ = await stream(ScriptedService(), "/v1/completions", {**COMPLETION, **options, "continue_from": received})
    passes = [[chunk["choices"][0]["speculation"]["pass"] for chunk in chunks] for chunks in (whole[2:], rest)]
    assert passes[1] == passes[0]


async def test_each_choice_of_a_chat_opens_with_its_role() -> None:
    *chunks, _ = await stream(ScriptedService(), "/v1/chat/completions", {**CHAT, "n": 2})
    for index in (0, 1):
        mine = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == index]
        assert mine[0]["delta"] == {"role": "assistant", "content": ""}
        assert all("role" not in choice["delta"] for choice in mine[1:])
        text = "".join(choice["delta"]["content"] for choice in mine)
        assert text == "the answer is forty-two. END of the story"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}


async def test_a_chunk_is_sent_before_the_next_run_is_there() -> None:
    service, turn = ScriptedService(), asyncio.Semaphore(1)
    service.step = turn.acquire
    connection = Connection(create_app(service), "/v1/completions", {**COMPLETION, "stream": True})
    await connection.until("data: ")
    assert connection.text.count("data: ") == 1
    turn.release()
    await connection.until("\n\ndata: ")
    assert connection.text.count("data: ") == 2
    connection.hang_up()
    await connection.ended()


@pytest.mark.parametrize("include_usage", [False, True])
async def test_a_failure_after_the_first_chunk_ends_the_stream_with_an_error_event(*, include_usage: bool) -> None:
    service = ScriptedService()
    service.failure, service.fails_after = RuntimeError("secret"), 2
    asked = {**COMPLETION, "stream_options": {"include_usage": include_usage}}
    *chunks, error = await stream(service, "/v1/completions", asked)
    assert len(chunks) == 2
    assert error["error"]["type"] == "server_error"
    assert "secret" not in error["error"]["message"]
    assert service.open == 0


async def test_a_service_that_ends_without_a_reason_is_a_failure_and_no_short_answer() -> None:
    service = ScriptedService()
    runs = service.runs
    service.runs = lambda request: iter(list(runs(request))[:2])  # type: ignore[method-assign]
    assert "error" in (await stream(service, "/v1/completions", COMPLETION))[-1]


TOKENS = st.lists(
    st.sampled_from(WORDS).map(tokens_of) | st.integers(2, 319).map(lambda token: [token]), max_size=12
).map(lambda parts: [token for part in parts for token in part])


@pytest.fixture(scope="module")
def complete() -> Iterator[Complete]:
    """Sends a completion request and gives the body of the response; the service is told what to answer first."""
    service = ScriptedService()
    client = http_client(service)

    def send(tokens: list[int], lengths: list[int], body: dict[str, Any]) -> str:
        service.tokens, service.lengths = tokens, lengths
        return loop.run(client.post("/v1/completions", json=body)).text

    with asyncio.Runner() as loop:
        yield send
        loop.run(client.aclose())


@settings(max_examples=100)
@given(
    TOKENS,
    st.lists(st.integers(1, 7), min_size=1, max_size=3),
    st.lists(st.sampled_from(["END", "the end", "stop", "中", "🙂"]), max_size=2),
    st.integers(1, 40),
)
def test_where_runs_are_cut_shows_nowhere_in_what_the_client_gets(
    complete: Complete, tokens: list[int], lengths: list[int], stop: list[str], max_tokens: int
) -> None:
    body = {**COMPLETION, "max_tokens": max_tokens, "stop": stop, "logprobs": 1}
    plain = choice_of(complete(tokens, [1], body))
    assert choice_of(complete(tokens, lengths, body)) == plain
    *chunks, _ = events(complete(tokens, lengths, {**body, "stream": True}))
    assert joined([chunk["choices"][0] for chunk in chunks]) == plain
    if not stop:
        assert plain["text"] == toy_tokenizer().raw.decode(plain["token_ids"])


def choice_of(body: str) -> dict[str, Any]:
    choice = json.loads(body)["choices"][0]
    del choice["speculation"]
    return dict(choice)


def joined(choices: list[dict[str, Any]]) -> dict[str, Any]:
    logprobs = [choice["logprobs"] for choice in choices]
    return {
        "index": 0,
        "text": "".join(choice["text"] for choice in choices),
        "logprobs": {name: [entry for lists in logprobs for entry in lists[name]] for name in logprobs[0]},
        "finish_reason": choices[-1]["finish_reason"],
        "token_ids": [token for choice in choices for token in choice["token_ids"]],
    }
