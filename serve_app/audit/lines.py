"""Requests and answers of any OpenAI-compatible server, from a file with a JSON object a line.

A line has the body of a `request` for chat or a completion, and that of its `answer`, or the chunks of a stream. A
request is read as our own service reads it. So a field that we do not have is an error, since it may have changed the
answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from core.audit.audit import Question
from core.audit.expected import ExpectedAnswer, RecordedIds, RecordedMessage, RecordedText
from core.errors import ConfigError, InvalidRequest
from core.generation import FinishReason, Run
from core.sampling.params import GREEDY_BELOW
from serve_app.audit.bodies import RecordedAnswer, RecordedChoice, RecordedChunk, joined
from serve_app.audit.recorded import Lack, NamedAnswer, Recording
from serve_app.http.batch import Batch, chat_batch, completion_batch
from serve_app.http.errors import first_fault
from serve_app.http.output.choices import NO_PARSING, Choice, Piece
from serve_app.http.schema.requests import ChatRequest, CompletionRequest
from serve_app.http.service import Service

# Of our own service or of vLLM; no token of an answer hangs on them.
INERT = frozenset(
    {"speculation", "return_token_ids", "return_tokens_as_token_ids", "priority", "request_id", "cache_salt"}
)
_REASONS: dict[str | None, FinishReason] = {
    "stop": "stop",
    "tool_calls": "stop",
    "function_call": "stop",
    "length": "length",
}
Body = TypeVar("Body", bound=BaseModel)


def read(file: Path, service: Service) -> Recording:
    """Raises `ConfigError` for a line that cannot be read, which names it and its field."""
    recording = Recording()
    try:
        lines = file.read_text(encoding="utf-8").split("\n")  # texts may have other ends of lines in them
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from error
    asyncio.run(_read(lines, file, service, recording))
    return recording


async def _read(lines: Sequence[str], file: Path, service: Service, recording: Recording) -> None:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            items = await _items(line, f"line {number}", service)
        except InvalidRequest as error:
            raise ConfigError(f"{file}, line {number}: {error}") from error
        for item in items:
            if isinstance(item, NamedAnswer):
                recording.answers.append(item)
            else:
                recording.lacks.append(item)


async def _items(line: str, name: str, service: Service) -> list[NamedAnswer | Lack]:
    """The choices of a line."""
    request, answer = _halves(line)
    recorded = _recorded(answer)
    if recorded.error is not None:
        return [Lack(name, "an error and no answer")]
    if recorded.choices is None:
        raise InvalidRequest("answer.choices", "'answer.choices' is required")
    if request.get("seed") is None and recorded.seed is not None:
        request = request | {"seed": recorded.seed}
    body, batch = await _batch(request, service)
    if body.seed is None and body.temperature >= GREEDY_BELOW and recorded.seed is None:
        return [Lack(name, "neither request nor answer has the seed, and its temperature is over 0")]
    if batch.ending.reads_only:
        return [Lack(name, "it asks for no token")]
    return list(_choices(name, body, batch, recorded.choices, service))


def _halves(line: str) -> tuple[dict[str, Any], Any]:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise InvalidRequest(None, f"it is no JSON: {error}") from error
    if not isinstance(entry, dict):
        raise InvalidRequest(None, "it must be an object with 'request' and 'answer'")
    for half in ("request", "answer"):
        if half not in entry:
            raise InvalidRequest(half, f"'{half}' is required")
    if not isinstance(entry["request"], dict):
        raise InvalidRequest("request", "'request' must be an object, the body of a request")
    return {name: value for name, value in entry["request"].items() if name not in INERT}, entry["answer"]


def _recorded(answer: Any) -> RecordedAnswer:
    if isinstance(answer, list):
        return joined([_checked(RecordedChunk, chunk, f"answer[{at}]") for at, chunk in enumerate(answer)])
    if isinstance(answer, dict):
        return _checked(RecordedAnswer, answer, "answer")
    raise InvalidRequest("answer", "'answer' must be an object, the body of an answer, or a list of chunks")


async def _batch(request: dict[str, Any], service: Service) -> tuple[ChatRequest | CompletionRequest, Batch]:
    if "messages" in request:
        chat = _checked(ChatRequest, request, "request")
        return chat, await _named(lambda: chat_batch(chat, service, None))
    if "prompt" in request:
        completion = _checked(CompletionRequest, request, "request")
        return completion, await _named(lambda: completion_batch(completion, service, None))
    raise InvalidRequest("request", "'request' has neither 'messages' nor 'prompt': only chat and completions are read")


async def _named(batch: Callable[[], Any]) -> Batch:
    try:
        result: Batch = await batch()
    except InvalidRequest as error:
        raise _within("request", error) from error
    return result


def _checked(model: type[Body], content: object, half: str) -> Body:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        fault = first_fault([{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors()])
        raise _within(half, fault) from error


def _within(half: str, fault: InvalidRequest) -> InvalidRequest:
    """The same fault, about a field of this half of the line."""
    field = half if fault.field is None else f"{half}.{fault.field}"
    return InvalidRequest(field, f"'{field}': {fault}")


def _choices(
    name: str,
    body: ChatRequest | CompletionRequest,
    batch: Batch,
    choices: Sequence[RecordedChoice],
    service: Service,
) -> Iterator[NamedAnswer | Lack]:
    by_index = {at if choice.index is None else choice.index: choice for at, choice in enumerate(choices)}
    for index in by_index.keys() - set(range(len(batch.requests))):
        raise InvalidRequest("answer.choices", f"'answer.choices' has an index {index} that was not asked for")
    for index, request in enumerate(batch.requests):
        called = name if len(batch.requests) == 1 else f"{name}, choice {index}"
        if index not in by_index:
            yield Lack(called, "it was asked for, and is not in the answer", missing=True)
            continue
        expected = _expected(by_index[index], body, batch, service)
        yield Lack(called, expected) if isinstance(expected, str) else NamedAnswer(called, Question(request, expected))


def _expected(
    choice: RecordedChoice,
    body: ChatRequest | CompletionRequest,
    batch: Batch,
    service: Service,
) -> ExpectedAnswer | str:
    """What plain decoding is held to, of a continued answer with its beginning; or why nothing can be."""
    reason, received = _REASONS.get(choice.finish_reason), batch.received
    cut, beginning = reason is None, received if isinstance(received, str) else ""
    if choice.token_ids is not None and not beginning:
        return RecordedIds((*(received or ()), *choice.token_ids), reason, cut)
    if isinstance(body, CompletionRequest):
        if body.echo:
            return "it has no token ids, and its text begins with the prompt"
        text = choice.text
    else:
        text = None if choice.message is None else choice.message.parts[1]
    if text is None:
        field = "text" if isinstance(body, CompletionRequest) else "message"
        raise InvalidRequest("answer.choices", f"a choice in 'answer.choices' has neither 'token_ids' nor '{field}'")
    if received and not beginning:
        return "it was continued from token ids, and has none"
    shown = _Shown(batch, service)
    if choice.message is not None and batch.parsing is not NO_PARSING:
        if cut or received:
            return "it was cut or continued, and has no token ids, but a message that was read out of its text"
        return RecordedMessage(choice.message.parts, shown.parts, reason)
    ending = batch.ending
    return RecordedText(
        beginning + text,
        service.tokenizer.raw,
        shown.text,
        reason,
        cut,
        ending.stop,
        ending.ids,
        ending.skip_special_tokens,
    )


class _Shown:
    """What a client gets of tokens."""

    def __init__(self, batch: Batch, service: Service) -> None:
        self._batch = batch
        self._tokenizer = service.tokenizer.raw

    def text(self, tokens: Sequence[int], finish_reason: FinishReason) -> str:
        return self._piece(tokens, finish_reason).text

    def parts(self, tokens: Sequence[int], finish_reason: FinishReason) -> object:
        """As `RecordedReply.parts`."""
        delta = self._piece(tokens, finish_reason).delta
        calls: dict[int, tuple[str, str]] = {}
        for part in delta.calls:
            name, arguments = calls.get(part.index, ("", ""))
            calls[part.index] = name + (part.name or ""), arguments + part.arguments
        return delta.reasoning, delta.content, tuple(calls.values())

    def _piece(self, tokens: Sequence[int], finish_reason: FinishReason) -> Piece:
        choice = Choice(self._tokenizer, self._batch.ending, logprobs=False, parsing=self._batch.parsing)
        return choice.push(Run(tuple(tokens), finish_reason=finish_reason))
