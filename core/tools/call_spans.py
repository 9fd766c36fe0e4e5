"""Which parts of an answer are calls that its grammar constrains: there no stop string ends it.

The verifier, which ends answers, and the ingress, which shows them, both have to find the same end. So this is a
function of the text alone, and the form of the answer travels with its request.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from core.tools.character_reader import SPACES, CharacterReader, Steps
from core.tools.format import ToolFormat
from core.tools.markers import MARKS
from core.tools.reasoning import Reasoning


class AnswerForm(msgspec.Struct, frozen=True):
    """What to know of an answer to look for stop strings in its text.

    `markers` are the special tokens that are markers, by id. `constrained` names the tool format of the calls that the
    grammar of the answer writes; None if it writes none. The target may reason first, between the markers `reasoning`,
    the first of which the prompt has written if `opened`.
    """

    markers: dict[int, str] = {}
    constrained: str | None = None
    reasoning: Reasoning | None = None
    opened: bool = False


PLAIN = AnswerForm()
"""Of an answer in which nothing keeps a stop string from ending it."""


class TextSpan(NamedTuple):
    """A part of an answer, and whether it belongs to calls: from the marker that opens one to that which closes it."""

    text: str
    in_call: bool


class CallSpans(CharacterReader):
    """Splits one answer, whose calls a grammar constrains, as it arrives.

    A part is released as soon as it is certain whether it is a call: only what may become a marker is pending.
    """

    def __init__(self, tool_format: ToolFormat, reasoning: Reasoning | None, opened: bool) -> None:
        super().__init__()
        self._spans: list[TextSpan] = []
        self._steps = self._answer(tool_format, reasoning, opened)

    def push(self, text: str) -> list[TextSpan]:
        """What the next characters of the answer make certain."""
        self._feed(text)
        return self._new()

    def finish(self) -> list[TextSpan]:
        """What was pending at the end of the answer."""
        self._end()
        self._release(in_call=False)
        return self._new()

    def _new(self) -> list[TextSpan]:
        spans, self._spans = self._spans, []
        return spans

    def _release(self, *, in_call: bool) -> None:
        if self.pending:
            self._spans.append(TextSpan("".join(self.pending), in_call))
        self.pending.clear()

    def _release_next(self, *, in_call: bool) -> Steps[None]:
        self.pending.append(self.char)
        self._release(in_call=in_call)
        yield from self.advance()

    def _answer(self, tool_format: ToolFormat, reasoning: Reasoning | None, opened: bool) -> Steps[None]:
        if reasoning is not None:
            yield from self._reasoning(reasoning, opened)
        if tool_format.bare:
            yield from self._blank()
            in_call = bool(self.char) and self.char in tool_format.bare
            while self.char:
                yield from self._release_next(in_call=in_call)
        while self.char:
            yield from self._call_or_text(tool_format.opening, tool_format.closing)

    def _reasoning(self, reasoning: Reasoning, opened: bool) -> Steps[None]:
        """Reasoning and its markers, if there is any."""
        if not opened:
            yield from self._blank()
            if (yield from self.read(reasoning.begin)) is None:
                self._rewind()
                return
            self._release(in_call=False)
        tail = ""
        while self.char and tail != reasoning.end:
            marked = self.char == MARKS[reasoning.end]
            tail = reasoning.end if marked else (tail + self.char)[-len(reasoning.end) :]
            yield from self._release_next(in_call=False)

    def _blank(self) -> Steps[None]:
        while self.char in SPACES:
            yield from self._release_next(in_call=False)

    def _call_or_text(self, opening: str, closing: str) -> Steps[None]:
        """A call from its marker to its end, or a character that is not of one."""
        if not self.begins(opening):
            yield from self._release_next(in_call=False)
        elif (yield from self.read(opening)):
            while self.char and self.char not in "{[":
                yield from self._release_next(in_call=True)
            yield from self.brackets(self._release_in_call)
            if closing:
                yield from self.spaces()
                yield from self.read(closing)
                self._release(in_call=True)
        else:
            self._release(in_call=False)

    def _release_in_call(self, char: str) -> None:
        self.pending.append(char)
        self._release(in_call=True)
