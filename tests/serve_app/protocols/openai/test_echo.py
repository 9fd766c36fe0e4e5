"""The prompt before its answer, as those who score texts ask for it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serve_app.clients import events, http_client
from tests.serve_app.scripted import BOS_ID, ScriptedService, logprob_of, tokens_of, toy_tokenizer

PROMPT = "naïve 答案 is"
IDS = tokens_of(PROMPT)


async def complete(**fields: Any) -> dict[str, Any]:
    body = {"model": "org/toy", "prompt": PROMPT, "max_tokens": 5, "echo": True, **fields}
    async with http_client(ScriptedService()) as client:
        response = await client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def test_the_text_and_its_logprobs_begin_with_the_prompt() -> None:
    body = await complete(logprobs=2)
    [choice] = body["choices"]
    plain = (await complete(logprobs=2, echo=False))["choices"][0]
    assert choice["text"] == PROMPT + plain["text"]
    read, said = choice["logprobs"], plain["logprobs"]
    number = len(IDS) + 1
    assert read["tokens"] == [toy_tokenizer().token_text(token) for token in (BOS_ID, *IDS)] + said["tokens"]
    assert read["token_logprobs"][0] is read["top_logprobs"][0] is None
    expected = [logprob_of(n, token, 2).logprob for n, token in enumerate(IDS, start=1)]
    assert read["token_logprobs"][1:number] == expected
    assert read["token_logprobs"][number:] == said["token_logprobs"]
    assert read["text_offset"][number:] == [len(PROMPT) + at for at in said["text_offset"]]
    assert read["text_offset"][1] == 0
    assert body["usage"]["prompt_tokens"] == number


async def test_no_token_is_generated_where_none_is_wanted() -> None:
    for echo, text in ((True, PROMPT), (False, "")):
        body = await complete(logprobs=0, max_tokens=0, echo=echo)
        [choice] = body["choices"]
        assert (choice["text"], choice["token_ids"], choice["finish_reason"]) == (text, [], "length")
        assert len(choice["logprobs"]["tokens"]) == (len(IDS) + 1 if echo else 0)
        assert body["usage"]["completion_tokens"] == 0


@pytest.mark.parametrize(("length", "status"), [(-1, 200), (0, 400)])
async def test_a_prompt_that_is_only_read_leaves_room_for_one_token(length: int, status: int) -> None:
    service = ScriptedService()
    body = {"model": "org/toy", "prompt": [IDS[0]] * (service.context + length), "max_tokens": 0, "echo": True}
    async with http_client(service) as client:
        response = await client.post("/v1/completions", json=body)
    assert response.status_code == status
    assert status == 200 or "must hold it and at least one more" in response.json()["error"]["message"]


@pytest.mark.parametrize("prompt", [[BOS_ID, *IDS], [[BOS_ID, *IDS], IDS[:2]], [PROMPT, "the"]])
async def test_prompts_of_every_form_are_shown_for_every_choice(prompt: Any) -> None:
    choices = (await complete(prompt=prompt, n=2))["choices"]
    answer = (await complete(echo=False))["choices"][0]["text"]
    texts = [PROMPT, "the" if isinstance(prompt[-1], str) else toy_tokenizer().raw.decode(IDS[:2])]
    prompts = texts[: len(choices) // 2]
    assert [choice["text"] for choice in choices] == [text + answer for text in prompts for _ in range(2)]
    assert all(choice["logprobs"] is None for choice in choices)


async def test_a_stream_shows_the_prompt_with_its_first_piece() -> None:
    body = {"model": "org/toy", "prompt": PROMPT, "max_tokens": 5, "echo": True, "logprobs": 1, "stream": True}
    async with http_client(ScriptedService()) as client:
        *chunks, _ = events((await client.post("/v1/completions", json=body)).text)
    whole = (await complete(logprobs=1))["choices"][0]
    pieces = [chunk["choices"][0] for chunk in chunks]
    assert pieces[0]["text"].startswith(PROMPT)
    assert "".join(piece["text"] for piece in pieces) == whole["text"]
    for field in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert [entry for piece in pieces for entry in piece["logprobs"][field]] == whole["logprobs"][field]
