"""Logprobs in both of OpenAI's forms, one entry per committed token."""

from __future__ import annotations

from typing import Any

import pytest

from core.generation import TokenLogprob
from serve_app.http.output.choices import Piece
from serve_app.protocols.openai.logprobs import LOWEST, chat_logprobs, completion_logprobs
from tests.serve_app.clients import http_client
from tests.serve_app.scripted import EOS_ID, ScriptedService, logprob_of, tokens_of, toy_tokenizer

TEXT = "the answer 🙂 END"
TOKENS = [*tokens_of(TEXT), EOS_ID]


async def post(path: str, **fields: Any) -> dict[str, Any]:
    async with http_client(ScriptedService(tokens_of(TEXT))) as client:
        response = await client.post(path, json={"model": "org/toy", "max_tokens": 100, **fields})
    assert response.status_code == 200, response.text
    return dict(response.json()["choices"][0])


@pytest.mark.parametrize("top", [0, 2])
async def test_completion_logprobs_are_parallel_lists(top: int) -> None:
    choice = await post("/v1/completions", prompt="the", logprobs=top)
    logprobs, entries = choice["logprobs"], [logprob_of(n, token, top) for n, token in enumerate(TOKENS)]
    assert choice["token_ids"] == TOKENS
    assert logprobs["tokens"] == [toy_tokenizer().token_text(token) for token in TOKENS]
    assert logprobs["token_logprobs"] == [entry.logprob for entry in entries]
    shown = [{toy_tokenizer().token_text(token): value for token, value in entry.top} for entry in entries]
    assert logprobs["top_logprobs"] == shown


async def test_text_offsets_point_at_each_tokens_text() -> None:
    choice = await post("/v1/completions", prompt="the", logprobs=0)
    offsets, tokens = choice["logprobs"]["text_offset"], choice["logprobs"]["tokens"]
    assert offsets[0] == 0
    assert offsets == sorted(offsets)
    for offset, token in zip(offsets, tokens[:-1], strict=False):
        assert token.startswith("bytes:") or choice["text"][offset:].startswith(token)


@pytest.mark.parametrize("top", [None, 3])
async def test_chat_logprobs_are_a_list_of_tokens(top: int | None) -> None:
    message = {"role": "user", "content": "the"}
    choice = await post("/v1/chat/completions", messages=[message], logprobs=True, top_logprobs=top)
    content = choice["logprobs"]["content"]
    assert b"".join(bytes(entry["bytes"]) for entry in content[:-1]).decode() == TEXT
    for entry, token, position in zip(content, TOKENS, range(len(TOKENS)), strict=True):
        assert (entry["token"], entry["logprob"]) == (toy_tokenizer().token_text(token), -float(position))
        assert len(entry["top_logprobs"]) == (top or 1)


async def test_none_are_reported_unless_asked_for() -> None:
    assert (await post("/v1/completions", prompt="the"))["logprobs"] is None
    message = {"role": "user", "content": "the"}
    assert (await post("/v1/chat/completions", messages=[message], logprobs=False))["logprobs"] is None


def test_an_infinitely_unlikely_token_has_a_number_that_json_can_hold() -> None:
    entry = TokenLogprob(9, -float("inf"), ((9, -float("inf")),))
    piece = Piece("", (9,), (entry,), (0,), 0, 0, None)
    assert completion_logprobs(piece, toy_tokenizer()).token_logprobs == [LOWEST]
    assert chat_logprobs(piece, toy_tokenizer()).content[0].top_logprobs[0].logprob == LOWEST


def test_of_two_ids_with_one_text_the_likelier_is_kept() -> None:
    plain = next(token for token in range(2, 320) if toy_tokenizer().token_text(token) == "a")
    entry = TokenLogprob(plain, -1.0, ((plain, -1.0), (plain, -2.0)))
    piece = Piece("a", (plain,), (entry,), (0,), 0, 0, None)
    assert completion_logprobs(piece, toy_tokenizer()).top_logprobs == [{"a": -1.0}]
