"""OpenAI's own client, unchanged, against /v1/responses."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.serve_app.clients import http_client, openai_client
from tests.serve_app.scripted import EOS_ID, ScriptedService, tokens_of

ANSWER = "the answer is forty-two. END of the story"
TOKENS = [*tokens_of(ANSWER), EOS_ID]


async def test_an_answer_repeats_what_was_asked_for() -> None:
    async with openai_client(ScriptedService()) as client:
        response = await client.responses.create(
            model="org/toy",
            input="the answer",
            instructions="be brief",
            metadata={"run": "7"},
            temperature=0.5,
            max_output_tokens=50,
            store=False,
        )
    assert (response.output_text, response.status, response.error) == (ANSWER, "completed", None)
    assert (response.instructions, response.metadata) == ("be brief", {"run": "7"})
    assert (response.temperature, response.top_p, response.max_output_tokens) == (0.5, 1.0, 50)
    assert (response.tools, response.tool_choice, response.parallel_tool_calls) == ([], "auto", True)
    assert response.usage.output_tokens == len(TOKENS)
    assert response.usage.total_tokens == response.usage.input_tokens + len(TOKENS)
    assert response.usage.speculation["accepted"] > 0


async def test_a_stream_says_the_same_piece_by_piece() -> None:
    async with openai_client(ScriptedService()) as client:
        async with client.responses.stream(model="org/toy", input="the answer") as stream:
            deltas = [event.delta async for event in stream if event.type == "response.output_text.delta"]
            final = await stream.get_final_response()
        whole = await client.responses.create(model="org/toy", input="the answer")
    assert "".join(deltas) == final.output_text == whole.output_text == ANSWER
    assert len(deltas) > 1
    assert final.usage == whole.usage


async def test_an_answer_cut_by_its_limit_is_incomplete() -> None:
    async with openai_client(ScriptedService()) as client:
        whole = await client.responses.create(model="org/toy", input="the answer", max_output_tokens=4)
        stream = await client.responses.create(model="org/toy", input="the answer", max_output_tokens=4, stream=True)
        *_, last = [event async for event in stream]
    for response in (whole, last.response):
        assert response.status == "incomplete"
        assert response.incomplete_details.reason == "max_output_tokens"
        assert response.usage.output_tokens == 4
        assert ANSWER.startswith(response.output_text)


async def test_the_output_can_be_sent_back_as_part_of_the_input() -> None:
    service = ScriptedService()
    async with openai_client(service) as client:
        first = await client.responses.create(model="org/toy", input="the answer")
        history = [{"role": "user", "content": "the answer"}, *first.output, {"role": "user", "content": "again"}]
        again = await client.responses.create(model="org/toy", input=history)
    assert again.output_text == ANSWER
    prompt = service.tokenizer.raw.decode(service.asked[-1].tokens)
    assert f"user: the answer\nassistant: {ANSWER}\nuser: again\nassistant:" in prompt


async def test_own_fields_go_in_the_extra_body() -> None:
    service = ScriptedService()
    async with openai_client(service) as client:
        extra = {"seed": 7, "top_k": 5, "speculation": {"task": "math", "num_speculative_tokens": 3}}
        response = await client.responses.create(model="org/toy", input="the", store=False, extra_body=extra)
    (asked,) = service.asked
    assert (asked.params.seed, asked.params.top_k, asked.num_speculative_tokens, asked.store) == (7, 5, 3, False)
    assert response.usage.speculation["task"] == "math"


async def test_errors_are_the_clients_own() -> None:
    async with openai_client(ScriptedService()) as client:
        with pytest.raises(openai.BadRequestError) as refusal:
            await client.responses.create(model="org/toy", input="the", previous_response_id="resp_1")
    assert refusal.value.param == "previous_response_id"


async def test_a_stream_that_breaks_has_failed_and_raises() -> None:
    service = ScriptedService()
    service.failure, service.fails_after = RuntimeError(), 2
    told: list[Any] = []

    async def read(stream: Any) -> None:
        async for event in stream:
            told.append(event)  # noqa: PERF401 - what came before the error counts

    async with openai_client(service) as client:
        stream = await client.responses.create(model="org/toy", input="the answer", stream=True)
        with pytest.raises(openai.APIError, match="failed while answering"):
            await read(stream)
    assert told[-1].type == "response.failed"
    assert (told[-1].response.status, told[-1].response.error.code) == ("failed", "server_error")
    assert service.open == 0


async def test_a_failure_before_the_first_token_has_its_own_status() -> None:
    service = ScriptedService()
    service.failure = RuntimeError()
    async with http_client(service) as client:
        body = {"model": "org/toy", "input": "the answer", "stream": True}
        response = await client.post("/v1/responses", json=body)
    assert response.status_code == 500
