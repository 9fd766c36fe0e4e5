"""A client of the service as anybody would write one: chat completions streamed over HTTP.

A question enters, an `Answer` leaves; what arrives in between is shown to whoever asks for it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import httpx2 as httpx

from core.errors import TaskSpecError

MAX_TOKENS = 400  # the longest answer the shipped corpora ask for
AT_ONCE = 8  # enough for the verifier to batch, few enough for any service
PATIENCE = 120.0  # seconds without a byte


class BadAnswer(TaskSpecError):
    """The service refused a question or broke off its answer."""


@dataclass(frozen=True)
class Question:
    """A prompt of a known task, and how its answer is to be drawn."""

    task: str
    prompt: str
    temperature: float
    seed: int


@dataclass
class Answer:
    """Everything one streamed answer told. `runs` holds the tokens of each target pass, the prefill's first."""

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: str | None = None
    runs: list[int] = field(default_factory=list)
    proposed: int = 0
    accepted: int = 0
    task: str = ""

    def same_as(self, other: Answer) -> bool:
        return (self.tokens, self.text, self.finish_reason) == (other.tokens, other.text, other.finish_reason)


Shown = Callable[[Sequence[int], int], None]  # the tokens of a run, and how many of them were accepted
Speculation = Mapping[str, object]  # what a request says of it; nothing leaves it to the service
AS_ROUTED: Speculation = {}
OFF: Speculation = {"enabled": False}


class Client:
    """Asks one service, at most `AT_ONCE` questions at a time."""

    def __init__(self, url: str, model: str) -> None:
        # trust_env: a proxy set for the internet is no way to a loopback address.
        self._http = httpx.AsyncClient(base_url=url, timeout=PATIENCE, trust_env=False)
        self._model = model
        self._room = asyncio.Semaphore(AT_ONCE)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def ask(self, question: Question, speculation: Speculation, show: Shown | None = None) -> Answer:
        """Raises `BadAnswer`."""
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": question.prompt}],
            "temperature": question.temperature,
            "seed": question.seed,
            "max_tokens": MAX_TOKENS,
            "stream": True,
            "stream_options": {"include_usage": True},
            "speculation": dict(speculation),
        }
        answer = Answer()
        try:
            async with self._room, aclosing(self._chunks(body)) as chunks:
                async for chunk in chunks:
                    _add(answer, chunk, show)
        except httpx.TransportError as error:
            raise BadAnswer(f"the connection to the service failed: {error or type(error).__name__}") from error
        return answer

    async def _chunks(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        async with self._http.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != httpx.codes.OK:
                raise BadAnswer(f"the service said {response.status_code}: {(await response.aread()).decode()}")
            async for line in response.aiter_lines():
                if line == "data: [DONE]":
                    return
                if line:
                    yield json.loads(line.removeprefix("data: "))
        raise BadAnswer("the service broke off an answer")


def _add(answer: Answer, chunk: dict[str, Any], show: Shown | None) -> None:
    if "error" in chunk:
        raise BadAnswer(f"the service failed while answering: {chunk['error']['message']}")
    if "usage" in chunk:
        answer.task = chunk["usage"]["speculation"]["task"]
    for choice in chunk["choices"]:
        answer.text += choice["delta"]["content"]
        answer.finish_reason = choice["finish_reason"]
        tokens, counts = choice["token_ids"], choice["speculation"]
        if not tokens:  # the opening chunk, which tells the role
            continue
        answer.tokens += tokens
        answer.runs.append(len(tokens))
        answer.proposed += counts["proposed"]
        answer.accepted += counts["accepted"]
        if show is not None:
            show(tokens, counts["accepted"])
