"""OpenAI's own client, unchanged, against the HTTP face."""

# mypy: disable-error-code="attr-defined"
# The client's models have our fields, too.

from __future__ import annotations

import openai
import pytest

from tests.serve_app.clients import openai_client
from tests.serve_app.scripted import EOS_ID, ScriptedService, tokens_of

ANSWER = "the answer is forty-two. END of the story"
TOKENS = [*tokens_of(ANSWER), EOS_ID]
MESSAGES = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": "the answer"}]


async def test_chat_with_two_choices_stop_logprobs_and_seed() -> None:
    service = ScriptedService()
    async with openai_client(service) as client:
        answer = await client.chat.completions.create(
            model="org/toy", messages=MESSAGES, n=2, stop=["END"], logprobs=True, top_logprobs=2, seed=7
        )
    assert [choice.message.content for choice in answer.choices] == ["the answer is forty-two. "] * 2
    assert [choice.finish_reason for choice in answer.choices] == ["stop", "stop"]
    content = answer.choices[0].logprobs.content
    assert [len(entry.top_logprobs) for entry in content] == [2] * len(content)
    assert {request.params.seed for request in service.asked} == {7}
    assert answer.usage.completion_tokens == 2 * len(content)


async def test_chat_streamed_with_usage() -> None:
    text, tokens, usage = "", [], None
    async with openai_client(ScriptedService()) as client:
        chunks = await client.chat.completions.create(
            model="org/toy", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
        async for chunk in chunks:
            usage = chunk.usage
            for choice in chunk.choices:
                text += choice.delta.content
                tokens += choice.token_ids
    assert (text, tokens) == (ANSWER, TOKENS)
    assert usage.speculation["accepted"] > 0


async def test_an_answer_can_be_sent_back_as_part_of_the_conversation() -> None:
    async with openai_client(ScriptedService()) as client:
        answer = await client.chat.completions.create(model="org/toy", messages=MESSAGES)
        history = [*MESSAGES, answer.choices[0].message.model_dump(), MESSAGES[-1]]
        again = await client.chat.completions.create(model="org/toy", messages=history)
    assert again.choices[0].message.content == ANSWER


async def test_completions_whole_and_streamed() -> None:
    async with openai_client(ScriptedService()) as client:
        whole = await client.completions.create(model="org/toy", prompt="the", max_tokens=50, logprobs=1)
        chunks = await client.completions.create(model="org/toy", prompt="the", max_tokens=50, stream=True)
        text = "".join([chunk.choices[0].text async for chunk in chunks])
    assert whole.choices[0].text == text == ANSWER
    assert len(whole.choices[0].logprobs.tokens) == len(TOKENS)


async def test_own_fields_go_in_the_extra_body() -> None:
    service = ScriptedService()
    async with openai_client(service) as client:
        extra = {"top_k": 5, "speculation": {"task": "math", "num_speculative_tokens": 3}}
        answer = await client.completions.create(model="org/toy", prompt="the", extra_body=extra)
    assert service.asked[0].params.top_k == 5
    assert answer.usage.speculation["task"] == "math"


async def test_models_are_listed_and_found_by_names_with_slashes() -> None:
    async with openai_client(ScriptedService()) as client:
        assert [model.id async for model in client.models.list()] == ["org/toy"]
        assert (await client.models.retrieve("org/toy")).numerics == "exact"
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("org/other")


async def test_errors_are_the_clients_own() -> None:
    async with openai_client(ScriptedService()) as client:
        with pytest.raises(openai.BadRequestError) as refusal:
            await client.completions.create(model="org/toy", prompt="")
        assert refusal.value.param == "prompt"
        with pytest.raises(openai.NotFoundError) as missing:
            await client.completions.create(model="gpt-x", prompt="the")
        assert missing.value.code == "model_not_found"


async def test_a_stream_that_breaks_raises() -> None:
    service = ScriptedService()
    service.failure, service.fails_after = RuntimeError(), 2
    async with openai_client(service) as client:
        chunks = await client.completions.create(model="org/toy", prompt="the", stream=True)
        with pytest.raises(openai.APIError, match="failed while answering"):
            [chunk async for chunk in chunks]
