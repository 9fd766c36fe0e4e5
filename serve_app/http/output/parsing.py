"""How the answers to one request are taken apart into reasoning, content and calls."""

from __future__ import annotations

from dataclasses import dataclass

from core.text.tokenizer import Tokenizer
from core.tools.answer import AnswerDelta, CallsState, ContentPart, ReasoningPart, delta_of
from core.tools.answer_stream import AnswerStream
from core.tools.call_spans import PLAIN, AnswerForm
from core.tools.format import ToolFormat
from core.tools.reasoning import Reasoning


@dataclass(frozen=True)
class Parsing:
    """What may be in an answer beside content: calls of the tools `names`, and reasoning.

    `opened` says whether the prompt has begun the reasoning; without `include_reasoning` it is dropped. The
    `form` says whether a grammar holds the calls.
    """

    tool_format: ToolFormat | None = None
    names: tuple[str, ...] = ()
    reasoning: Reasoning | None = None
    opened: bool = False
    include_reasoning: bool = True
    form: AnswerForm = PLAIN


NO_PARSING = Parsing()


def parsing_of(
    names: tuple[str, ...], include_reasoning: bool, tokenizer: Tokenizer, opened: bool, grammar: str
) -> Parsing:
    """For answers of this target that may call the tools `names` and agree with the `grammar`, if there is one."""
    reasoning = tokenizer.reasoning
    if not names and reasoning is None:
        return NO_PARSING
    tool_format = tokenizer.tool_format if names else None
    form = AnswerForm(tokenizer.markers, tool_format.name if tool_format and grammar else None, reasoning, opened)
    return Parsing(tool_format, names, reasoning, opened, include_reasoning, form)


class Parser:
    """Takes one answer apart."""

    def __init__(self, parsing: Parsing, special_tokens: bool) -> None:
        self._include_reasoning = parsing.include_reasoning
        self._stream: AnswerStream | None = None
        if parsing is not NO_PARSING:
            self._stream = AnswerStream(
                parsing.tool_format,
                parsing.names,
                parsing.reasoning,
                parsing.opened,
                special_tokens,
                constrained=parsing.form.constrained is not None,
            )

    def push(self, text: str) -> AnswerDelta:
        """See `AnswerStream`."""
        return delta_of([ContentPart(text)]) if self._stream is None else self._kept(self._stream.push(text))

    def finish(self, cut: str | None) -> AnswerDelta:
        """See `AnswerStream`; `cut` is what follows, None if nothing does."""
        if self._stream is None:
            return AnswerDelta()
        return self._kept(self._stream.finish() if cut is None else self._stream.cut(cut))

    @property
    def calls(self) -> CallsState:
        """See `AnswerStream`."""
        return "none" if self._stream is None else self._stream.calls

    def _kept(self, delta: AnswerDelta) -> AnswerDelta:
        if self._include_reasoning:
            return delta
        return delta_of(part for part in delta.parts if not isinstance(part, ReasoningPart))
