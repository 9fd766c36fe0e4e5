"""Parses an answer as it arrives: reasoning, content, calls of tools.

The text is read character by character, so the deltas of an answer joined are the same however it was cut.
"""

from __future__ import annotations

from collections.abc import Collection

from core.tools.answer import (
    AnswerDelta,
    CallPart,
    CallsState,
    Part,
    ReasoningPart,
    delta_of,
)
from core.tools.call_reader import CallReader
from core.tools.character_reader import SPACES, Steps
from core.tools.format import ToolFormat
from core.tools.markers import without_marks
from core.tools.reasoning import Reasoning


class AnswerStream(CallReader):
    """One answer. A name not in `names` is no call; without a `tool_format` nothing is.

    With `reasoning` the answer may begin with it; if `opened`, the prompt has written the marker that begins it. Marks
    in the text that turn out to be content are left out, unless `special_tokens` are to be shown. If a grammar writes
    the calls, they are `constrained`.
    """

    def __init__(
        self,
        tool_format: ToolFormat | None = None,
        names: Collection[str] = (),
        reasoning: Reasoning | None = None,
        opened: bool = False,
        special_tokens: bool = False,
        constrained: bool = False,
    ) -> None:
        super().__init__(names, constrained)
        self._special_tokens = special_tokens
        self._steps = self._answer(tool_format, reasoning, opened)

    @property
    def calls(self) -> CallsState:
        """Whether the answer so far has calls, all of them whole."""
        if self._calling:
            return "cut"
        return "whole" if self._num_calls else "none"

    def push(self, text: str) -> AnswerDelta:
        """What the next characters of the answer make certain."""
        self._feed(text)
        return self._new()

    def finish(self) -> AnswerDelta:
        """What was pending at the end of the answer."""
        self._end()
        return self._new()

    def cut(self, following: str = "") -> AnswerDelta:
        """What was pending where the answer was cut, but for the beginning of a marker or of a call.

        `following` is what it would have gone on with, as far as anybody knows.
        """
        self._cut, self._following = True, following
        return self.finish()

    def _new(self) -> AnswerDelta:
        delta = delta_of(self._shown(part) for part in delta_of(self._parts).parts)
        self._parts.clear()
        return delta

    def _shown(self, part: Part) -> Part:
        if isinstance(part, CallPart):
            arguments = without_marks(part.arguments, written_out=self._special_tokens)
            return CallPart(part.index, part.name, arguments)
        return type(part)(without_marks(part.text, written_out=self._special_tokens))

    def _answer(self, tool_format: ToolFormat | None, reasoning: Reasoning | None, opened: bool) -> Steps[None]:
        if reasoning is not None:
            yield from self._reasoning(reasoning, opened)
        if tool_format is not None:
            yield from tool_format.read(self)
        while self.char:
            yield from self._release_next()
        self._give_up()

    def _reasoning(self, reasoning: Reasoning, opened: bool) -> Steps[None]:
        """Reasoning and the spaces around it, if there is any."""
        if not opened:
            yield from self.spaces()
            if (yield from self.read(reasoning.begin)) is None:
                if not self._was_cut():
                    self._rewind()
                return
        yield from self.spaces()
        self.pending.clear()
        while self.char:
            if self.begins(reasoning.end) and (yield from self.read(reasoning.end)):
                yield from self.spaces()
                self.pending.clear()
                return
            if self.pending and not SPACES.issuperset(self.pending):  # the beginning of the marker, and no more
                self._release_reasoning()
            elif self.char in SPACES:
                yield from self.spaces()
            elif self.char:
                self.pending.append(self.char)
                self._release_reasoning()
                yield from self.advance()
        self._release_reasoning()

    def _release_reasoning(self) -> None:
        if not self._was_cut():
            self._parts.append(ReasoningPart("".join(self.pending)))
        self.pending.clear()
