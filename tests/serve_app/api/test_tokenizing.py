"""/tokenize, /detokenize and /tokenizer_info: the ids that the service itself would use, in vLLM's bodies."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serve_app.clients import http_client
from tests.serve_app.scripted import BOS, BOS_ID, EOS, EOS_ID, ScriptedService, tokens_of, toy_tokenizer

HELLO = {"role": "user", "content": "the answer"}


async def post(path: str, body: Any, status: int = 200) -> dict[str, Any]:
    async with http_client(ScriptedService()) as client:
        response = await client.post(path, json=body)
    assert response.status_code == status, response.text
    return dict(response.json())


async def test_a_prompt_is_counted_and_tokenised() -> None:
    tokens = [BOS_ID, *tokens_of("the answer")]
    body = await post("/tokenize", {"model": "org/toy", "prompt": "the answer"})
    assert body == {"count": len(tokens), "max_model_len": 256, "tokens": tokens, "token_strs": None}


async def test_without_special_tokens_and_with_strings() -> None:
    body = await post("/tokenize", {"prompt": "the answer</s>", "add_special_tokens": False, "return_token_strs": True})
    assert body["tokens"] == [*tokens_of("the answer"), EOS_ID]
    assert body["token_strs"] == [toy_tokenizer().raw.id_to_token(token) for token in body["tokens"]]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"add_generation_prompt": True, "add_special_tokens": False},
        {"special_tokens_in_content": True},
        {"continue_final_message": True},
        {"chat_template_kwargs": {"bos_token": "x"}},
    ],
)
async def test_messages_get_the_ids_that_a_chat_gets(fields: dict[str, Any]) -> None:
    messages = [
        {**HELLO, "content": "the</s>answer"},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
    ]
    body = await post("/tokenize", {"messages": messages, **fields})
    service = ScriptedService()
    async with http_client(service) as client:
        await client.post("/v1/chat/completions", json={"model": "org/toy", "messages": messages, **fields})
    assert body["tokens"] == list(service.asked[0].tokens)
    assert body["count"] == len(body["tokens"])


async def test_a_prompt_longer_than_the_context_is_counted_all_the_same() -> None:
    assert (await post("/tokenize", {"prompt": "the answer " * 5000}))["count"] > 256
    assert (await post("/tokenize", {"messages": [{**HELLO, "content": "the answer " * 5000}]}))["count"] > 256


async def test_ids_become_the_text_with_special_tokens() -> None:
    text = "naïve 答案 🙂</s>the answer"
    tokens = (await post("/tokenize", {"prompt": text}))["tokens"]
    assert await post("/detokenize", {"model": "org/toy", "tokens": tokens}) == {"prompt": "<s>" + text}
    assert await post("/detokenize", {"tokens": []}) == {"prompt": ""}


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/tokenize", {}, 400, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": [HELLO]}, 400, "prompt"),
        ("/tokenize", {"prompt": ["a"]}, 400, "prompt"),
        ("/tokenize", {"prompt": "a", "continue_final_message": True}, 400, "continue_final_message"),
        ("/tokenize", {"messages": [HELLO], "add_special_tokens": True}, 400, "add_special_tokens"),
        ("/tokenize", {"messages": [{"role": "user", "content": "refuse me"}]}, 400, "messages"),
        ("/tokenize", {"prompt": "a", "model": "gpt-x"}, 404, "model"),
        ("/tokenize", {"prompt": "a", "temperature": 1}, 400, "temperature"),
        ("/detokenize", {}, 400, "tokens"),
        ("/detokenize", {"tokens": [320]}, 400, "tokens"),
        ("/detokenize", {"tokens": ["a"]}, 400, "tokens[0]"),
        ("/detokenize", {"tokens": [1], "model": "gpt-x"}, 404, "model"),
    ],
)
async def test_a_fault_is_named(path: str, body: dict[str, Any], status: int, param: str) -> None:
    assert (await post(path, body, status))["error"]["param"] == param


async def test_the_tokens_that_begin_and_end_a_text_are_told() -> None:
    async with http_client(ScriptedService()) as client:
        response = await client.get("/tokenizer_info")
    assert response.json() == {"bos_token": BOS, "eos_token": EOS}
