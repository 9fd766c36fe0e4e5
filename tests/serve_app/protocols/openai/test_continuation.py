"""An answer that was cut is continued: the rest is sent and nothing else, wherever it was cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serve_app.calling import CallingService
from tests.serve_app.clients import events, http_client
from tests.serve_app.scripted import ScriptedService, tokens_of

COMPLETION = {"model": "org/toy", "prompt": "the answer", "max_tokens": 60, "seed": 3}
CHAT = {"model": "org/toy", "messages": [{"role": "user", "content": "the answer"}], "seed": 3}
BODIES = {"/v1/completions": COMPLETION, "/v1/chat/completions": CHAT}
TEXT = "the answer 中文 🙂 naïve END of the story"
LENGTHS = st.lists(st.integers(1, 5), min_size=1, max_size=4)
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}

pytestmark = pytest.mark.parametrize("path", list(BODIES))


async def post(service: ScriptedService, path: str, **fields: Any) -> httpx2.Response:
    async with http_client(service) as client:
        return await client.post(path, json={**BODIES[path], **fields})


async def whole(service: ScriptedService, path: str, **fields: Any) -> dict[str, Any]:
    response = await post(service, path, **fields)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def stream(service: ScriptedService, path: str, **fields: Any) -> list[Any]:
    asked = {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, done = events((await post(service, path, **asked, **fields)).text)
    assert done == "[DONE]"
    return chunks


def text_of(choice: dict[str, Any]) -> str:
    said = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
    return said.get("content") or ""


def joined(chunks: Sequence[dict[str, Any]]) -> tuple[str, list[int], list[float], str | None]:
    """Text, token ids, logprobs and finish reason of all chunks."""
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    ids = [token for choice in choices for token in choice["token_ids"]]
    reasons = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    assert len(reasons) <= 1
    given_logprobs = [choice.get("logprobs") or {} for choice in choices]
    logprobs = [
        *(value for entry in given_logprobs for value in entry.get("token_logprobs", ())),
        *(token["logprob"] for entry in given_logprobs for token in entry.get("content", ())),
    ]
    return "".join(map(text_of, choices)), ids, logprobs, reasons[0] if reasons else None


@settings(max_examples=60, deadline=None)
@given(data=st.data(), before=LENGTHS, after=LENGTHS)
async def test_the_rest_follows_what_the_client_has(
    path: str, data: st.DataObject, before: list[int], after: list[int]
) -> None:
    tokens, logprobs = tokens_of(TEXT), 2 if path == "/v1/completions" else True
    chunks = await stream(ScriptedService(tokens, before), path, logprobs=logprobs, stop=["story"])
    cut = data.draw(st.integers(0, len(chunks)))
    text, ids, logs, reason = joined(chunks[:cut])
    rest = await stream(ScriptedService(tokens, after), path, logprobs=logprobs, stop=["story"], continue_from=ids)
    more_text, more_ids, more_logs, more_reason = joined(rest)
    assert (text + more_text, ids + more_ids, logs + more_logs, more_reason) == joined(chunks)
    assert rest[-1]["usage"]["completion_tokens"] == chunks[-1]["usage"]["completion_tokens"]
    assert reason in (None, more_reason)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), lengths=LENGTHS)
async def test_a_client_that_has_the_content_alone_gets_the_rest_of_it(
    path: str, data: st.DataObject, lengths: list[int]
) -> None:
    service = ScriptedService(tokens_of(TEXT), lengths)
    content = text_of((await whole(service, path, stop=["story"]))["choices"][0])
    cut = data.draw(st.integers(0, len(content)))
    rest = await stream(service, path, stop=["story"], continue_from=content[:cut])
    assert content[:cut] + joined(rest)[0] == content
    assert joined(rest)[3] == "stop"
    answer = (await whole(service, path, stop=["story"], continue_from=content[:cut]))["choices"][0]
    assert text_of(answer) == content[cut:]


async def test_what_the_client_has_is_proposed(path: str) -> None:
    service = ScriptedService()
    await whole(service, path, continue_from=service.tokens[:5])
    assert service.asked[-1].prediction == tuple(service.tokens[:5])


async def test_a_continued_stream_has_no_opening(path: str) -> None:
    service = ScriptedService()
    chunks = await stream(
        service, path, continue_from=service.tokens[:5], **({"echo": True} if "chat" not in path else {})
    )
    assert not any("role" in choice.get("delta", {}) for chunk in chunks for choice in chunk["choices"])
    assert "the answer" not in joined(chunks)[0]
    assert not any("seed" in chunk for chunk in chunks)


@pytest.mark.parametrize("stream_it", [False, True])
@pytest.mark.parametrize(
    ("received", "reason"),
    [
        ([3, 5], "token 0 is"),
        (tokens_of("the answer is fifty"), "token "),
        ([*tokens_of("the answer is forty-two. END of the story"), 1, 7], "ends after"),
        ("the answer is fifty", "its content is another"),
        ("the answer is forty-two. END of the story and more", "characters"),
    ],
)
async def test_an_answer_that_begins_otherwise_is_refused(
    path: str, received: object, reason: str, stream_it: bool
) -> None:
    service = ScriptedService()
    response = await post(service, path, continue_from=received, stream=stream_it)
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (409, "continue_from", "continuation_differs")
    assert reason in error["message"]
    assert service.open == 0


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"n": 2}, "continue_from", "set n to 1"),
        ({"seed": None}, "seed", "its first chunk has"),
        ({"continue_from": [10**6]}, "continue_from", "token ids go from 0"),
        ({"continue_from": [5] * 300}, "continue_from", "the context holds 256"),
        ({"continue_from": "x" * 10**6}, "continue_from", "cannot hold them"),
        ({"continue_from": {"tokens": 3}}, "continue_from", "a string or a list of token ids"),
        ({"continue_from": [[1]]}, "continue_from", "a string or a list of token ids"),
    ],
)
async def test_what_cannot_be_continued_is_refused(path: str, fields: dict[str, Any], field: str, message: str) -> None:
    response = await post(ScriptedService(), path, **{"continue_from": [5], **fields})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == field
    assert message in response.json()["error"]["message"]


async def test_a_greedy_answer_needs_no_seed(path: str) -> None:
    service = ScriptedService()
    rest = await whole(service, path, temperature=0, seed=None, continue_from=service.tokens[:2])
    assert rest["choices"][0]["token_ids"][: len(service.tokens) - 2] == service.tokens[2:]


async def test_a_drawn_seed_is_given_back_and_exact_in_javascript(path: str) -> None:
    service = ScriptedService()
    answer = await whole(service, path, seed=None)
    assert answer["seed"] == service.asked[-1].params.seed < 2**53
    chunks = await stream(service, path, seed=None)
    assert chunks[0]["seed"] == service.asked[-1].params.seed != answer["seed"]
    assert not any("seed" in chunk for chunk in chunks[1:])


async def test_several_prompts_have_seeds_of_their_own(path: str) -> None:
    if "chat" in path:
        pytest.skip("a chat has one prompt")
    service = ScriptedService()
    answer = await whole(service, path, prompt=["the", "the"], seed=None)
    assert "seed" not in answer
    assert len({request.params.seed for request in service.asked}) == 2
    response = await post(service, path, prompt=["the", "the"], continue_from=[1])
    assert "send one prompt" in response.json()["error"]["message"]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), before=LENGTHS, after=LENGTHS)
async def test_a_call_goes_on_where_it_was_cut(
    path: str, data: st.DataObject, before: list[int], after: list[int]
) -> None:
    if "chat" not in path:
        return
    chunks = await stream(CallingService(lengths=before), path, tools=[TOOL])
    cut = data.draw(st.integers(1, len(chunks)))
    rest = await stream(CallingService(lengths=after), path, tools=[TOOL], continue_from=joined(chunks[:cut])[1])
    assert calls([*chunks[:cut], *rest]) == calls(chunks) != []
    assert joined(rest)[3] == "tool_calls"


def calls(chunks: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """The name and arguments of every call."""
    made: dict[int, tuple[str, str]] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            for call in choice["delta"].get("tool_calls", ()):
                name, arguments = made.get(call["index"], ("", ""))
                function = call["function"]
                made[call["index"]] = (name + function.get("name", ""), arguments + function["arguments"])
    return list(made.values())
