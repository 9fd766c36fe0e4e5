"""The response to one request: its output items, whole or as the events of a stream."""

from __future__ import annotations

import itertools
import secrets
import time
from typing import Any, Literal

from core.tools.answer import CallPart, ContentPart, ReasoningPart
from serve_app.http.errors import failure_of
from serve_app.http.output.choices import Piece
from serve_app.http.output.usage import Usage
from serve_app.http.schema.requests import ChatRequest
from serve_app.http.service import Service
from serve_app.protocols.responses.bodies import (
    ArgumentsDelta,
    ArgumentsDone,
    ErrorEvent,
    FunctionCallItem,
    IncompleteDetails,
    Item,
    ItemEvent,
    MessageItem,
    OutputText,
    OutputTextDelta,
    OutputTextDone,
    OutputTokensDetails,
    PartEvent,
    ReasoningDelta,
    ReasoningDone,
    ReasoningItem,
    ReasoningText,
    ResponseBody,
    ResponseEvent,
    ResponseFailure,
    ResponseUsage,
    Status,
)
from serve_app.protocols.responses.requests import ResponsesRequest
from serve_app.protocols.single_answer import AnswerPart, NamedEvents, SingleAnswerWriter, written

ItemEventType = Literal["response.output_item.added", "response.output_item.done"]


class ResponseWriter(SingleAnswerWriter):
    """Answers `body`, whose chat request is `chat`."""

    def __init__(self, body: ResponsesRequest, chat: ChatRequest, service: Service) -> None:
        super().__init__(service.tokenizer)
        self._head: dict[str, Any] = {
            "id": _id("resp"),
            "created_at": int(time.time()),
            "model": body.model,
            **_repeated(body, chat),
        }
        self._numbers = itertools.count()  # of the events
        self._items: list[Item] = []
        self._status: Literal["completed", "incomplete"] = "completed"

    def opening(self, _index: int, /) -> bytes:
        response = self._response("in_progress")
        return self._event("response.created", response) + self._event("response.in_progress", response)

    def failure(self, error: Exception) -> bytes:
        detail = failure_of(error).detail
        response = self._response("failed", error=ResponseFailure(message=detail.message))
        return self._event("response.failed", response) + written(
            ErrorEvent(
                sequence_number=next(self._numbers),
                code=detail.code,
                message=detail.message,
                param=detail.param,
                error=detail,
            )
        )

    def closing(self, usage: Usage) -> bytes:
        return self._event(f"response.{self._status}", self._body(usage))

    def _body(self, usage: Usage) -> ResponseBody:
        details = IncompleteDetails() if self._status == "incomplete" else None
        return self._response(self._status, incomplete_details=details, usage=self._usage(usage))

    def _response(self, status: str, **facts: Any) -> ResponseBody:
        return ResponseBody(**self._head, status=status, output=self._items, **facts)

    def _usage(self, usage: Usage) -> ResponseUsage:
        return ResponseUsage(
            input_tokens=usage.prompt_tokens,
            output_tokens=usage.completion_tokens,
            output_tokens_details=OutputTokensDetails(reasoning_tokens=self._reasoning_tokens),
            total_tokens=usage.total_tokens,
            speculation=usage.speculation,
        )

    def _event(self, type_: str, response: ResponseBody) -> bytes:
        return written(ResponseEvent(type=type_, sequence_number=next(self._numbers), response=response))

    def _begin_item(self, part: AnswerPart) -> NamedEvents:
        item = _empty_item(part)
        self._items.append(item)
        parts = [] if isinstance(item, FunctionCallItem) else item.content
        yield self._item_event("response.output_item.added", item.model_copy(update={"content": []} if parts else {}))
        for content in parts:
            yield PartEvent(type="response.content_part.added", **self._place(), part=content)

    def _grow_item(self, part: AnswerPart) -> NamedEvents:
        match self._items[-1], part:
            case ReasoningItem(content=[content]), ReasoningPart(text=text):
                content.text += text
                yield ReasoningDelta(**self._place(), delta=text)
            case MessageItem(content=[content]), ContentPart(text=text):
                content.text += text
                yield OutputTextDelta(**self._place(), delta=text)
            case FunctionCallItem() as item, CallPart(arguments=arguments) if arguments:
                item.arguments += arguments
                yield ArgumentsDelta(**self._place(), delta=arguments)

    def _end_item(self, status: Status = "completed") -> NamedEvents:
        item = self._items[-1]
        match item:
            case ReasoningItem(content=[content]):
                yield ReasoningDone(**self._place(), text=content.text)
                yield PartEvent(type="response.content_part.done", **self._place(), part=content)
            case MessageItem(content=[content]):
                yield OutputTextDone(**self._place(), text=content.text)
                yield PartEvent(type="response.content_part.done", **self._place(), part=content)
            case FunctionCallItem():
                yield ArgumentsDone(**self._place(), arguments=item.arguments)
        item.status = status
        yield self._item_event("response.output_item.done", item)

    def _finish(self, last: Piece) -> NamedEvents:
        """An answer that says nothing has an empty message."""
        self._status = "incomplete" if last.finish_reason == "length" else "completed"
        if not self._items:
            yield from self._begin_item(ContentPart(""))
        if isinstance(self._items[-1], FunctionCallItem):
            yield from self._end_item("incomplete" if last.calls == "cut" else "completed")
        else:
            yield from self._end_item(self._status)

    def _place(self) -> dict[str, Any]:
        """The fields of an event about the last item."""
        index = len(self._items) - 1
        return {"sequence_number": next(self._numbers), "item_id": self._items[index].id, "output_index": index}

    def _item_event(self, type_: ItemEventType, item: Item) -> ItemEvent:
        number = next(self._numbers)
        return ItemEvent(type=type_, sequence_number=number, output_index=len(self._items) - 1, item=item)


def _empty_item(part: AnswerPart) -> Item:
    match part:
        case ReasoningPart():
            return ReasoningItem(id=_id("rs"), content=[ReasoningText(text="")])
        case ContentPart():
            return MessageItem(id=_id("msg"), content=[OutputText(text="")])
        case CallPart(name=name):
            return FunctionCallItem(id=_id("fc"), call_id=_id("call"), name=name or "")


def _id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"


def _repeated(body: ResponsesRequest, chat: ChatRequest) -> dict[str, Any]:
    """What a response repeats of its request."""
    return {
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "reasoning": {"effort": body.reasoning.effort, "summary": None},
        "temperature": chat.temperature,
        "text": {"format": body.text.format or {"type": "text"}},
        "tool_choice": "auto" if body.tool_choice is None else body.tool_choice,
        "tools": [tool.model_dump() for tool in body.tools],
        "top_p": chat.top_p,
    }
