"""A client of any OpenAI-compatible server: streamed chat completions, with the arrival time of each chunk.

TaskSpec's own fields (`token_ids`, `speculation`, `seed`) are read if the server sends them. With these an answer that
is cut goes on where it was: the client asks for the rest.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import httpx2 as httpx
import msgspec

from core.errors import TaskSpecError

READ_TIMEOUT = 120.0  # seconds without a byte
CONNECT_TIMEOUT = 10.0  # seconds
CONTINUED_FOR = 60.0  # seconds from a cut in which the rest is asked for again
LONGEST_SILENCE = 30.0  # seconds without a byte after which an answer counts as cut; a service comments every 10 s
PAUSES = (0.1, 2.0)  # seconds before the first time, and before each later one at most
LONGEST_QUOTE = 500  # characters of a response that is not JSON
LOOPBACK = ("localhost", "127.0.0.1", "::1")
TEXTS = ("reasoning_content", "reasoning", "content")  # the fields of a delta with text, in the order of the answer

_LATER = frozenset({429, 500, 502, 503, 504})  # statuses of a server that may answer later

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class BadAnswer(TaskSpecError):
    """The server refused a request or broke off its answer; `status` is the HTTP status, None if there was none."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Unreachable(BadAnswer):
    """The connection failed."""


class CutAnswer(BadAnswer):
    """The server ended an answer before its end."""


@dataclass
class Answer:
    """A streamed answer.

    `runs` (the number of token ids, 0 if the server sends none) and `arrivals` (seconds on the client's clock) have an
    entry for each chunk with text or tokens. A TaskSpec service sends a chunk per target pass, the prefill's first.
    `usage` is the server's own, empty if it sends none, and `seed` what it drew with. `cuts` counts how often the
    answer was cut and went on.
    """

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: str | None = None
    runs: list[int] = field(default_factory=list)
    proposed: int = 0
    accepted: int = 0
    arrivals: list[float] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    cuts: int = 0

    @property
    def speculation(self) -> dict[str, Any]:
        """The server's account of it, empty if it gives none."""
        return self.usage.get("speculation") or {}

    @property
    def task(self) -> str:
        """The task whose draft proposed last; empty if the server does not say."""
        return self.speculation.get("task") or ""

    def same_as(self, other: Answer) -> bool:
        return (self.tokens, self.text, self.finish_reason) == (other.tokens, other.text, other.finish_reason)


def own_names(cards: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of models as a server lists them, without those that are aliases of others among them."""
    roots = {str(card.get("id")): str(card.get("root")) for card in cards}
    return [name for name, root in roots.items() if root == name or root not in roots]


OnChunk = Callable[[str, int], None]  # called with the text of a chunk and how many of its characters were accepted
Speculation = Mapping[str, object]  # the `speculation` of a request; an empty one leaves it to the service
AS_ROUTED: Speculation = {}
OFF: Speculation = {"enabled": False}


class Client:
    """Sends requests to one server; `url` is the base URL that OpenAI's own clients take."""

    def __init__(self, url: str, key: str | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        self._http = httpx.AsyncClient(
            base_url=url,
            timeout=httpx.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT),
            headers={"Authorization": f"Bearer {key}"} if key else {},
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),  # the caller limits them
            trust_env=httpx.URL(url).host not in LOOPBACK,  # a proxy for the internet does not lead to this machine
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
        """The models that the server lists, an object with an `id` each. Raises `BadAnswer`."""
        try:
            response = await self._http.get("/models")
        except httpx.RequestError as error:
            raise _failed(error) from error
        if response.status_code != httpx.codes.OK:
            raise self._refusal(response.status_code, response.content)
        try:
            return msgspec.convert(_decode(response.content)["data"], list[dict[str, Any]])
        except (msgspec.DecodeError, KeyError) as error:
            raise BadAnswer("/models does not return a list of models") from error

    async def ask(self, body: Mapping[str, Any], on_chunk: OnChunk | None = None) -> Answer:
        """Stream a chat completion; `stream` and its options are added to the body. Raises `BadAnswer`."""
        answer = Answer()
        body = {**body, "stream": True, "stream_options": {"include_usage": True}}
        pause, until = PAUSES[0], None
        while True:
            length = len(answer.tokens)
            try:
                await self._stream(_continued(body, answer), answer, on_chunk)
            except BadAnswer as error:
                if not (_is_cut(error) and answer.tokens and answer.seed is not None):
                    raise
                if until is None or len(answer.tokens) > length:
                    pause, until = PAUSES[0], self._clock() + CONTINUED_FOR
                elif self._clock() >= until:
                    raise
            else:
                return answer
            answer.cuts += 1
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSES[1])

    async def _stream(self, body: dict[str, Any], answer: Answer, on_chunk: OnChunk | None) -> None:
        try:
            async with aclosing(self._chunks(body, answer)) as chunks:
                async for chunk in chunks:
                    self._add(answer, chunk, on_chunk)
        except httpx.RequestError as error:
            raise _failed(error) from error

    async def _chunks(self, body: dict[str, Any], answer: Answer) -> AsyncGenerator[dict[str, Any], None]:
        async with self._http.stream("POST", "/chat/completions", json=body) as response:
            if response.status_code != httpx.codes.OK:
                raise self._refusal(response.status_code, await response.aread())
            async with aclosing(_lines(response, answer)) as lines:
                async for line in lines:
                    if not line.startswith(b"data:"):  # blank lines, comments, other fields
                        continue
                    data = line.removeprefix(b"data:").strip()
                    if data == b"[DONE]":
                        return
                    try:
                        yield _decode(data)
                    except msgspec.DecodeError as error:
                        quote = data.decode(errors="replace")[:LONGEST_QUOTE]
                        raise BadAnswer(f"the service sent an event that is not JSON: {quote}") from error
        raise CutAnswer("the service broke off an answer")

    def _add(self, answer: Answer, chunk: dict[str, Any], on_chunk: OnChunk | None) -> None:
        if "error" in chunk:
            raise _failure(chunk)
        if usage := chunk.get("usage"):
            answer.usage = usage
        answer.seed = chunk.get("seed", answer.seed)
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            text = "".join(delta.get(name) or "" for name in TEXTS)
            tokens = choice.get("token_ids") or []
            answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
            if not (text or tokens):  # the opening chunk, which holds the role
                continue
            counts = choice.get("speculation") or {"proposed": 0, "accepted": 0}
            answer.arrivals.append(self._clock())
            answer.text += text
            answer.tokens += tokens
            answer.runs.append(len(tokens))
            answer.proposed += counts["proposed"]
            answer.accepted += counts["accepted"]
            if on_chunk is not None:
                on_chunk(text, counts.get("accepted_characters", 0))

    def _refusal(self, status: int, body: bytes) -> BadAnswer:
        try:
            quote = _message(_decode(body))
        except msgspec.DecodeError:
            quote = body.decode(errors="replace")[:LONGEST_QUOTE]
        if self._key:
            quote = quote.replace(self._key, "<key>")  # some servers quote it, and messages may be stored
        return BadAnswer(f"the service answered {status}: {quote.strip() or 'nothing more'}", status)


async def _lines(response: httpx.Response, answer: Answer) -> AsyncGenerator[bytes, None]:
    """The lines of a stream, which end with a line feed alone: texts may have other ends of lines in them.

    A service that names the seed also comments on its silences, so one that says nothing at all is gone.
    """
    parts, buffered, has_begun = response.aiter_bytes(), b"", False
    while True:
        comments = has_begun and answer.seed is not None
        try:
            async with asyncio.timeout(LONGEST_SILENCE if comments else None):
                part = await anext(parts, b"")
        except TimeoutError:
            raise CutAnswer(f"the service has said nothing for {LONGEST_SILENCE:.0f} s") from None
        if not part:
            return
        has_begun = True
        *lines, buffered = (buffered + part).split(b"\n")
        for line in lines:
            yield line


def _continued(body: dict[str, Any], answer: Answer) -> dict[str, Any]:
    """The request for what is missing of its answer."""
    return {**body, "seed": answer.seed, "continue_from": answer.tokens} if answer.tokens else body


def _is_cut(error: BadAnswer) -> bool:
    """Whether the server may have the rest, now or soon."""
    return isinstance(error, Unreachable | CutAnswer) or error.status in _LATER


def _failed(error: httpx.RequestError) -> Unreachable:
    return Unreachable(f"the connection to the service failed: {error or type(error).__name__}")


def _failure(chunk: dict[str, Any]) -> BadAnswer:
    """What the server says in place of the rest of an answer."""
    message, error = f"the service failed while answering: {_message(chunk)}", chunk["error"]
    return (CutAnswer if isinstance(error, dict) and error.get("code") == "overloaded" else BadAnswer)(message)


def _message(body: dict[str, Any]) -> str:
    """The message of an error, in OpenAI's form or in any other."""
    error = body.get("error", body)
    return str(error.get("message", error) if isinstance(error, dict) else error)
