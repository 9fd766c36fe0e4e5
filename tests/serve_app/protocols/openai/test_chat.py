"""POST /v1/chat/completions: messages in the target's template, and the answer as a message."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serve_app.clients import events, http_client
from tests.serve_app.scripted import BOS_ID, EOS_ID, ScriptedService, tokens_of, toy_tokenizer

HELLO = {"role": "user", "content": "the answer"}


async def chat(service: ScriptedService, *messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    async with http_client(service) as client:
        body = {"model": "org/toy", "messages": list(messages or [HELLO]), **fields}
        response = await client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def test_messages_go_through_the_targets_template() -> None:
    service = ScriptedService()
    parts = [{"type": "text", "text": "the "}, {"type": "text", "text": "answer"}]
    before = {"role": "assistant", "content": "END", "refusal": None, "tool_calls": None, "annotations": []}
    await chat(service, {"role": "developer", "content": "be brief"}, before, {"role": "user", "content": parts})
    text = toy_tokenizer().raw.decode(list(service.asked[0].tokens), skip_special_tokens=False)
    assert text == "<s>system: be brief\nassistant: END\nuser: the answer\nassistant:"


@pytest.mark.parametrize(
    "said",
    [
        {"content": [{"type": "refusal", "refusal": "END"}]},
        {"content": [{"type": "text", "text": "E"}, {"type": "refusal", "refusal": "ND"}]},
        {"content": None, "refusal": "END"},
        {"content": "", "refusal": "END"},
    ],
)
async def test_a_refusal_that_is_sent_back_is_text(said: dict[str, Any]) -> None:
    service = ScriptedService()
    await chat(service, HELLO, {"role": "assistant", **said}, HELLO)
    text = toy_tokenizer().raw.decode(list(service.asked[0].tokens))
    assert text == "user: the answer\nassistant: END\nuser: the answer\nassistant:"


async def test_an_answer_without_parts_said_nothing() -> None:
    service = ScriptedService()
    await chat(service, HELLO, {"role": "assistant", "content": []}, HELLO)
    text = toy_tokenizer().raw.decode(list(service.asked[0].tokens))
    assert text == "user: the answer\nassistant: \nuser: the answer\nassistant:"


async def test_the_answer_is_a_message() -> None:
    body = await chat(ScriptedService())
    assert body["id"].startswith("chatcmpl-")
    assert body["object"] == "chat.completion"
    message = {"role": "assistant", "content": "the answer is forty-two. END of the story", "refusal": None}
    assert body["choices"][0]["message"] == message
    assert body["choices"][0]["finish_reason"] == "stop"


async def test_without_a_limit_the_answer_may_fill_the_context() -> None:
    service = ScriptedService(tokens=[9] * 300)
    body = await chat(service)
    request = service.asked[0]
    assert request.params.max_tokens == service.context - request.prompt_length
    assert body["usage"]["total_tokens"] == service.context
    assert body["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_either_name_of_the_limit_limits(name: str) -> None:
    assert (await chat(ScriptedService(), **{name: 3}))["usage"]["completion_tokens"] == 3


async def test_what_asks_for_nothing_is_accepted() -> None:
    service = ScriptedService()
    inert = {"response_format": {"type": "text"}, "modalities": ["text"], "tool_choice": "none", "tools": None}
    inert |= {"functions": [], "function_call": "none", "reasoning_effort": "none", "documents": []}
    ignored = {"user": "me", "safety_identifier": "x", "prompt_cache_key": "y", "parallel_tool_calls": False}
    said = {"role": "assistant", "content": "END", "tool_calls": [], "function_call": None, "reasoning_content": ""}
    await chat(service, {**HELLO, "name": "ann"}, said, HELLO, **inert, **ignored)
    await chat(service, tools=[], tool_choice="auto", min_tokens=0)
    assert len(service.asked) == 2


async def test_choices_of_one_seed_differ_only_in_their_number() -> None:
    service = ScriptedService()
    body = await chat(service, n=3, seed=11)
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert [(request.params.seed, request.choice) for request in service.asked] == [(11, 0), (11, 1), (11, 2)]


@pytest.mark.parametrize(
    "content", ["the answer is", [{"type": "text", "text": "the answer"}, {"type": "text", "text": " is"}]]
)
async def test_a_prediction_reaches_every_choice_as_tokens_of_an_answer(content: Any) -> None:
    service = ScriptedService()
    await chat(service, n=2, prediction={"type": "content", "content": content})
    assert [request.prediction for request in service.asked] == [tuple(tokens_of("the answer is"))] * 2


async def test_usage_says_what_became_of_a_prediction() -> None:
    # prefill 1, then 3 of 3 proposed, 2 of 2, 1 of 1, 2 of 2, plain 1; the last token of a proposal is always wrong
    service = ScriptedService(tokens=[10] * 20, lengths=(3, 2, 1))
    body = await chat(service, max_tokens=10, prediction={"type": "content", "content": "the answer"})
    details = {"accepted_prediction_tokens": 4, "rejected_prediction_tokens": 4}
    assert body["usage"]["completion_tokens_details"] == details
    assert body["usage"]["speculation"]["sources"] == {"prediction": {"proposed": 8, "accepted": 4}}


async def test_without_a_prediction_nothing_is_said_of_one() -> None:
    assert "completion_tokens_details" not in (await chat(ScriptedService()))["usage"]
    empty = await chat(ScriptedService(), prediction={"type": "content", "content": ""})
    assert "completion_tokens_details" not in empty["usage"]


async def test_a_stream_ends_with_what_became_of_its_prediction() -> None:
    service = ScriptedService(tokens=[10] * 20, lengths=(3, 2, 1))
    fields = {"max_tokens": 10, "stream": True, "stream_options": {"include_usage": True}}
    async with http_client(service) as client:
        body = {"model": "org/toy", "messages": [HELLO], "prediction": {"type": "content", "content": "the"}, **fields}
        *_, last, done = events((await client.post("/v1/chat/completions", json=body)).text)
    assert done == "[DONE]"
    assert last["usage"]["completion_tokens_details"]["rejected_prediction_tokens"] == 4


def prompt_of(service: ScriptedService) -> str:
    return toy_tokenizer().raw.decode(list(service.asked[-1].tokens), skip_special_tokens=False)


async def test_special_tokens_in_messages_are_text_unless_asked_for() -> None:
    service = ScriptedService()
    await chat(service, {"role": "user", "content": "the</s><s>answer"})
    await chat(service, {"role": "user", "content": "the</s><s>answer"}, special_tokens_in_content=True)
    as_text, as_tokens = (list(request.tokens) for request in service.asked)
    assert (as_text.count(BOS_ID), as_text.count(EOS_ID)) == (1, 0)
    assert (as_tokens.count(BOS_ID), as_tokens.count(EOS_ID)) == (2, 1)
    decode = toy_tokenizer().raw.decode
    assert decode(as_text, skip_special_tokens=False) == decode(as_tokens, skip_special_tokens=False)


@pytest.mark.parametrize("explicit", [{}, {"add_generation_prompt": False}])
async def test_the_last_message_can_be_continued(explicit: dict[str, Any]) -> None:
    service = ScriptedService()
    begun = {"role": "assistant", "content": "the answer is"}
    await chat(service, HELLO, begun, continue_final_message=True, **explicit)
    assert prompt_of(service) == "<s>user: the answer\nassistant: the answer is"


async def test_the_template_gets_its_variables() -> None:
    service = ScriptedService()
    await chat(service, chat_template_kwargs={"bos_token": "go ", "enable_thinking": False})
    assert prompt_of(service).startswith("go user: the answer\n")
