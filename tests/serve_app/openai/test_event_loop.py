"""What takes long is done in a thread: one client's huge request must not hold up the tokens of the others."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from core.text.tokenizer import Tokenizer
from serve_app.openai.answers import INLINE_LOGPROBS
from serve_app.openai.prompts import INLINE_CHARACTERS
from tests.serve_app.clients import http_client
from tests.serve_app.scripted import ScriptedService, toy_tokenizer


class Watching(Tokenizer):
    """The toy tokenizer; notes which threads write logprobs with it, and which tokenise."""

    def __init__(self) -> None:
        self.__dict__.update(toy_tokenizer().__dict__)
        self.writers: set[int] = set()
        self.encoders: set[int] = set()

    def token_text(self, token: int) -> str:
        self.writers.add(threading.get_ident())
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


async def test_many_short_prompts_are_tokenised_in_a_thread_as_one_long_one_is() -> None:
    here, short = {threading.get_ident()}, "the answer "
    number = 2 + INLINE_CHARACTERS // len(short)
    assert (await ask(prompt=[short] * 3)).encoders == here
    assert not (await ask(prompt=[short] * number)).encoders & here
    assert not (await ask(prompt="a " * (number // 100))).encoders - here
