"""Which parts of an answer are calls that its grammar holds: there no stop string ends it.

The verifier, which ends answers, and the ingress, which shows them, both have to find the same end. So this is a
function of the text alone, and the form of the answer travels with its request.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from core.parsing import marks
from core.parsing.character_reader import SPACES, CharacterReader, Steps
from core.parsing.formats import BARE, Reasoning, ToolFormat
from core.parsing.marks import MARKS

_OPENING = {"hermes": marks.TOOL_CALL, "mistral": marks.TOOL_CALLS}


class AnswerForm(msgspec.Struct, frozen=True):
    """What to know of an answer to look for stop strings in its text.

    `markers` are the special tokens that are markers, by id. Calls in the form `held` are held by the grammar of the
    answer; None if it holds none. The target may reason first, between the markers `reasoning`, the first of which the
    prompt has written if `opened`.
    """

    markers: dict[int, str] = {}
    held: ToolFormat | None = None
    reasoning: Reasoning | None = None
    opened: bool = False


PLAIN = AnswerForm()
"""Of an answer in which nothing keeps a stop string from ending it."""


class Span(NamedTuple):
    """A part of an answer, and whether it belongs to calls: from the marker that opens one to that which closes it."""

    text: str
    in_call: bool


class CallSpans(CharacterReader):
    """Splits one answer, whose calls a grammar holds, as it arrives.

    A part is handed out as soon as it is certain whether it is a call: only what may become a marker has to wait.
    """

    def __init__(self, tool_format: ToolFormat, reasoning: Reasoning | None, opened: bool) -> None:
        super().__init__()
        self._spans: list[Span] = []
        self._steps = self._answer(tool_format, reasoning, opened)

    def push(self, text: str) -> list[Span]:
        """What the next characters of the answer make certain."""
        for self._char in text:
            next(self._steps)
        return self._new()

    def finish(self) -> list[Span]:
        """What has waited, at the end of the answer."""
        self._char = ""
        next(self._steps, None)
        self._hand_out(in_call=False)
        return self._new()

    def _new(self) -> list[Span]:
        spans, self._spans = self._spans, []
        return spans

    def _hand_out(self, *, in_call: bool) -> None:
        if self._held:
            self._spans.append(Span("".join(self._held), in_call))
        self._held.clear()

    def _pass(self, *, in_call: bool) -> Steps[None]:
        """Hand out the next character."""
        self._held.append(self._char)
        self._hand_out(in_call=in_call)
        yield from self._next()

    def _answer(self, tool_format: ToolFormat, reasoning: Reasoning | None, opened: bool) -> Steps[None]:
        if reasoning is not None:
            yield from self._reasoned(reasoning, opened)
        if marker := _OPENING.get(tool_format):
            while self._char:
                yield from self._call_or_text(marker)
        else:
            yield from self._blank()
            in_call = bool(self._char) and self._char in BARE[tool_format]
            while self._char:
                yield from self._pass(in_call=in_call)

    def _reasoned(self, reasoning: Reasoning, opened: bool) -> Steps[None]:
        """Reasoning and its markers, if there is any."""
        if not opened:
            yield from self._blank()
            if (yield from self._read(reasoning.begin)) is None:
                self._read_again()
                return
            self._hand_out(in_call=False)
        last = ""
        while self._char and last != reasoning.end:
            marked = self._char == MARKS[reasoning.end]
            last = reasoning.end if marked else (last + self._char)[-len(reasoning.end) :]
            yield from self._pass(in_call=False)

    def _blank(self) -> Steps[None]:
        while self._char in SPACES:
            yield from self._pass(in_call=False)

    def _call_or_text(self, marker: str) -> Steps[None]:
        """A call from its marker to its end, or a character that is not of one."""
        if not self._begins(marker):
            yield from self._pass(in_call=False)
        elif (yield from self._read(marker)):
            while self._char and self._char not in "{[":
                yield from self._pass(in_call=True)
            yield from self._brackets(self._called)
            if marker == marks.TOOL_CALL:
                yield from self._spaces()
                yield from self._read(marks.END_TOOL_CALL)
                self._hand_out(in_call=True)
        else:
            self._hand_out(in_call=False)

    def _called(self, char: str) -> None:
        self._held.append(char)
        self._hand_out(in_call=True)
