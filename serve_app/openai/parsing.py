"""How the answers to one request are taken apart into reasoning, content and calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.parsing.answer import AnswerDelta, ContentPart, ReasoningPart, delta_of
from core.parsing.answer_stream import AnswerStream
from core.parsing.formats import Reasoning, ToolFormat
from core.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Parsing:
    """What may be in an answer beside content: calls of the tools `names`, and reasoning.

    `opened` says whether the prompt has begun the reasoning; without `include_reasoning` it is dropped. `marks` stand
    in the text for special tokens that are markers.
    """

    tool_format: ToolFormat | None = None
    names: tuple[str, ...] = ()
    reasoning: Reasoning | None = None
    opened: bool = False
    include_reasoning: bool = True
    marks: Mapping[int, str] = field(default_factory=dict)


NO_PARSING = Parsing()


def parsing_of(names: tuple[str, ...], include_reasoning: bool, tokenizer: Tokenizer, opened: bool) -> Parsing:
    """For answers of this target that may call the tools `names`."""
    if not names and tokenizer.reasoning is None:
        return NO_PARSING
    return Parsing(
        tokenizer.tool_format if names else None,
        names,
        tokenizer.reasoning,
        opened,
        include_reasoning,
        tokenizer.marks,
    )


class Parser:
    """Takes one answer apart."""

    def __init__(self, parsing: Parsing, special_tokens: bool) -> None:
        self._include_reasoning = parsing.include_reasoning
        self._stream: AnswerStream | None = None
        if parsing is not NO_PARSING:
            self._stream = AnswerStream(
                parsing.tool_format, parsing.names, parsing.reasoning, parsing.opened, special_tokens
            )

    def push(self, text: str) -> AnswerDelta:
        """See `AnswerStream`."""
        return delta_of([ContentPart(text)]) if self._stream is None else self._kept(self._stream.push(text))

    def finish(self) -> AnswerDelta:
        """See `AnswerStream`."""
        return AnswerDelta() if self._stream is None else self._kept(self._stream.finish())

    def _kept(self, delta: AnswerDelta) -> AnswerDelta:
        if self._include_reasoning:
            return delta
        return delta_of(part for part in delta.parts if not isinstance(part, ReasoningPart))
