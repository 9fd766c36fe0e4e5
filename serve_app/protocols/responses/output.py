"""The output items of an answer, built from its pieces, and the events that tell of each step."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator
from typing import Any, Literal

from core.tools.answer import AnswerDelta, CallPart, CallsState, ContentPart, ReasoningPart
from serve_app.protocols.responses.bodies import (
    ArgumentsDelta,
    ArgumentsDone,
    FunctionCallItem,
    Item,
    ItemEvent,
    MessageItem,
    OutputText,
    PartEvent,
    ReasoningDelta,
    ReasoningDone,
    ReasoningItem,
    ReasoningText,
    Status,
    StreamEvent,
    TextDelta,
    TextDone,
)

ItemEventType = Literal["response.output_item.added", "response.output_item.done"]


class Output:
    """The items of one answer in order; the last is open until another begins or the answer ends.

    `numbers` gives the sequence numbers of the events. They have parts of the items, so each is to be written before
    the next is asked for.
    """

    def __init__(self, numbers: Iterator[int] | None = None) -> None:
        self.items: list[Item] = []
        self._numbers = itertools.count() if numbers is None else numbers
        self._open: Item | None = None
        self._call: int | None = None  # the index of the open call

    def push(self, delta: AnswerDelta) -> Iterator[StreamEvent]:
        """Add what is new, in its order."""
        for part in delta.parts:
            match part:
                case ReasoningPart(text=text):
                    yield from self._reasoning(text)
                case ContentPart(text=text):
                    yield from self._content(text)
                case CallPart():
                    yield from self._function_call(part)

    def finish(self, status: Status, calls: CallsState) -> Iterator[StreamEvent]:
        """The end of the answer, and with it of its last item; one that says nothing has an empty message."""
        if not self.items:
            yield from self._begin_message()
        if isinstance(self._open, FunctionCallItem):
            status = "incomplete" if calls == "cut" else "completed"
        yield from self._close(status)

    def _reasoning(self, text: str) -> Iterator[StreamEvent]:
        if not isinstance(self._open, ReasoningItem):
            yield from self._begin(ReasoningItem(id=_id("rs"), content=[ReasoningText(text="")]))
        match self._open:
            case ReasoningItem(content=[part]):
                part.text += text
        yield ReasoningDelta(**self._place(), delta=text)

    def _content(self, text: str) -> Iterator[StreamEvent]:
        if not isinstance(self._open, MessageItem):
            yield from self._begin_message()
        match self._open:
            case MessageItem(content=[part]):
                part.text += text
        yield TextDelta(**self._place(), delta=text)

    def _begin_message(self) -> Iterator[StreamEvent]:
        return self._begin(MessageItem(id=_id("msg"), content=[OutputText(text="")]))

    def _function_call(self, call: CallPart) -> Iterator[StreamEvent]:
        if self._call != call.index:
            yield from self._begin(FunctionCallItem(id=_id("fc"), call_id=_id("call"), name=call.name or ""))
            self._call = call.index
        match self._open:
            case FunctionCallItem() as item if call.arguments:
                item.arguments += call.arguments
                yield ArgumentsDelta(**self._place(), delta=call.arguments)

    def _begin(self, item: Item) -> Iterator[StreamEvent]:
        yield from self._close("completed")
        self.items.append(item)
        self._open = item
        parts = [] if isinstance(item, FunctionCallItem) else item.content
        yield self._item_event("response.output_item.added", item.model_copy(update={"content": []} if parts else {}))
        for part in parts:
            yield PartEvent(type="response.content_part.added", **self._place(), part=part)

    def _close(self, status: Status) -> Iterator[StreamEvent]:
        item = self._open
        match item:
            case None:
                return
            case ReasoningItem(content=[part]):
                yield ReasoningDone(**self._place(), text=part.text)
                yield PartEvent(type="response.content_part.done", **self._place(), part=part)
            case MessageItem(content=[part]):
                yield TextDone(**self._place(), text=part.text)
                yield PartEvent(type="response.content_part.done", **self._place(), part=part)
            case FunctionCallItem():
                yield ArgumentsDone(**self._place(), arguments=item.arguments)
        item.status = status
        yield self._item_event("response.output_item.done", item)
        self._open, self._call = None, None

    def _place(self) -> dict[str, Any]:
        """The fields of an event about the last item."""
        at = len(self.items) - 1
        return {"sequence_number": next(self._numbers), "item_id": self.items[at].id, "output_index": at}

    def _item_event(self, type_: ItemEventType, item: Item) -> ItemEvent:
        number = next(self._numbers)
        return ItemEvent(type=type_, sequence_number=number, output_index=len(self.items) - 1, item=item)


def _id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"
