"""A client of any OpenAI-compatible server, as anybody would write one: chat completions streamed over HTTP.

A request's body enters, an `Answer` leaves, with the time at which each of its chunks arrived; what arrives in between
is shown to whoever asks for it. What only this service tells (`token_ids`, `speculation`) is taken where it is there.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import httpx2 as httpx
import msgspec

from core.errors import TaskSpecError

PATIENCE = 120.0  # seconds without a byte
CONNECT_PATIENCE = 10.0  # seconds
LONGEST_QUOTE = 500  # characters of what a server says besides JSON
LOOPBACK = ("localhost", "127.0.0.1", "::1")
TEXTS = ("content", "reasoning_content", "reasoning")  # where servers put what a model writes

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class BadAnswer(TaskSpecError):
    """The server refused a question or broke off its answer; `status` is HTTP's, None where no refusal came."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Unreachable(BadAnswer):
    """The connection failed."""


@dataclass
class Answer:
    """Everything one streamed answer told.

    Chunks that brought text or tokens, and only those, are in `runs` (how many token ids each held, 0 where the server
    sends none) and in `arrivals` (when each came, in seconds on the client's clock). This service sends a chunk per
    target pass, the prefill's first, unless its `ingress.stream_interval_s` gathers them. `usage` is the server's own,
    empty where it tells none.
    """

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: str | None = None
    runs: list[int] = field(default_factory=list)
    proposed: int = 0
    accepted: int = 0
    task: str = ""
    arrivals: list[float] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)

    def same_as(self, other: Answer) -> bool:
        return (self.tokens, self.text, self.finish_reason) == (other.tokens, other.text, other.finish_reason)


Shown = Callable[[Sequence[int], int], None]  # the tokens of a chunk, and how many of them were accepted
Speculation = Mapping[str, object]  # what a request says of it; nothing leaves it to the service
AS_ROUTED: Speculation = {}
OFF: Speculation = {"enabled": False}


class Client:
    """Speaks to one server; `url` is the base URL as OpenAI's own clients take it, `clock` gives seconds."""

    def __init__(self, url: str, key: str | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        self._http = httpx.AsyncClient(
            base_url=url,
            timeout=httpx.Timeout(PATIENCE, connect=CONNECT_PATIENCE),
            headers={"Authorization": f"Bearer {key}"} if key else {},
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),  # who asks, limits
            trust_env=httpx.URL(url).host not in LOOPBACK,  # a proxy set for the internet is no way to this machine
        )
        self._key = key
        self._clock = clock

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def models(self) -> list[dict[str, Any]]:
        """What the server says it serves, an object with an `id` each. Raises `BadAnswer`."""
        try:
            response = await self._http.get("/models")
        except httpx.RequestError as error:
            raise _failed(error) from error
        if response.status_code != httpx.codes.OK:
            raise self._refusal(response.status_code, response.content)
        try:
            return msgspec.convert(_decode(response.content)["data"], list[dict[str, Any]])
        except (msgspec.DecodeError, KeyError) as error:
            raise BadAnswer("what lies at /models is no list of models") from error

    async def ask(self, body: Mapping[str, Any], show: Shown | None = None) -> Answer:
        """The answer to a chat completion; how it is sent is added to the body. Raises `BadAnswer`."""
        answer = Answer()
        asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
        try:
            async with aclosing(self._chunks(asked)) as chunks:
                async for chunk in chunks:
                    self._add(answer, chunk, show)
        except httpx.RequestError as error:
            raise _failed(error) from error
        return answer

    async def _chunks(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        async with self._http.stream("POST", "/chat/completions", json=body) as response:
            if response.status_code != httpx.codes.OK:
                raise self._refusal(response.status_code, await response.aread())
            async for line in response.aiter_lines():
                if not line.startswith("data:"):  # blank lines, comments, and fields that say nothing
                    continue
                data = line.removeprefix("data:").strip()
                if data == "[DONE]":
                    return
                try:
                    yield _decode(data)
                except msgspec.DecodeError as error:
                    raise BadAnswer(f"the service sent what is no chunk: {data[:LONGEST_QUOTE]}") from error
        raise BadAnswer("the service broke off an answer")

    def _add(self, answer: Answer, chunk: dict[str, Any], show: Shown | None) -> None:
        if "error" in chunk:
            raise BadAnswer(f"the service failed while answering: {_message(chunk)}")
        if usage := chunk.get("usage"):
            answer.usage = usage
            answer.task = (usage.get("speculation") or {}).get("task") or ""
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            text = "".join(delta.get(name) or "" for name in TEXTS)
            tokens = choice.get("token_ids") or []
            answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
            if not (text or tokens):  # the opening chunk, which tells the role
                continue
            counts = choice.get("speculation") or {"proposed": 0, "accepted": 0}
            answer.arrivals.append(self._clock())
            answer.text += text
            answer.tokens += tokens
            answer.runs.append(len(tokens))
            answer.proposed += counts["proposed"]
            answer.accepted += counts["accepted"]
            if show is not None:
                show(tokens, counts["accepted"])

    def _refusal(self, status: int, said: bytes) -> BadAnswer:
        try:
            quote = _message(_decode(said))
        except msgspec.DecodeError:
            quote = said.decode(errors="replace")[:LONGEST_QUOTE]
        if self._key:
            quote = quote.replace(self._key, "<key>")  # some servers quote it, and what is told here may be kept
        return BadAnswer(f"the service said {status}: {quote.strip() or 'nothing more'}", status)


def _failed(error: httpx.RequestError) -> Unreachable:
    return Unreachable(f"the connection to the service failed: {error or type(error).__name__}")


def _message(body: dict[str, Any]) -> str:
    """What went wrong, of an error in OpenAI's form or in any other."""
    error = body.get("error", body)
    return str(error.get("message", error) if isinstance(error, dict) else error)
