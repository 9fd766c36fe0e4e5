"""What becomes of the runs of one choice: text, what the text says, its end, and the logprobs that belong to it.

`Ending` says what ends an answer and how much of the end is shown, `Parsing` what may be in it beside content.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import tokenizers

from core.generation import FinishReason, Run, Source, TokenLogprob
from core.text.detokenizer import TextStream
from core.text.tokenizer import Tokenizer
from core.tools.answer import AnswerDelta, CallsState, ContentPart, ReasoningPart, delta_of, joined
from core.tools.answer_stream import AnswerStream
from core.tools.call_spans import PLAIN, AnswerForm
from core.tools.format import ToolFormat
from core.tools.markers import without_marks
from core.tools.reasoning import Reasoning

NOTHING_SAID = AnswerDelta()


@dataclass(frozen=True)
class Ending:
    """What ends an answer, and what of the end is shown.

    `ids` end an answer; with one of `eos_ids`, which are among them, the target ends it itself. With `include_stop` the
    text has the stop string, or the token, that ended it. If the request `reads_only` its prompt, the token that comes
    of it is dropped.
    """

    stop: tuple[str, ...] = ()
    ids: frozenset[int] = frozenset()
    eos_ids: frozenset[int] = frozenset()
    skip_special_tokens: bool = True
    include_stop: bool = False
    reads_only: bool = False

    def shown_run(self, run: Run) -> Run:
        """What the client gets of a run."""
        if not self.reads_only:
            return run
        return msgspec.structs.replace(run, tokens=(), logprobs=(), finish_reason="length")

    def text(self, tokenizer: tokenizers.Tokenizer, form: AnswerForm) -> TextStream:
        return TextStream(tokenizer, self.stop, self.skip_special_tokens, self.include_stop, form)

    def shown_tokens(self, run: Run) -> tuple[int, ...]:
        """The tokens of a run whose text is shown: without the last, if the answer ended because of that very token."""
        if run.finish_reason != "stop" or self.include_stop or self.ids.isdisjoint(run.tokens[-1:]):
            return run.tokens
        return run.tokens[:-1]

    def cut(self, run: Run, text: TextStream) -> str | None:
        """What is known to follow the end of the `text` of an answer whose last run this is.

        None if nothing follows, because the target itself has ended the answer.
        """
        if text.stop_string is not None:
            return "" if self.include_stop else text.stop_string
        return None if run.finish_reason == "stop" and not self.eos_ids.isdisjoint(run.tokens[-1:]) else ""


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
        return delta_of([ContentPart(text)]) if self._stream is None else self._shown(self._stream.push(text))

    def finish(self, cut: str | None) -> AnswerDelta:
        """See `AnswerStream`; `cut` is what follows, None if nothing does."""
        if self._stream is None:
            return AnswerDelta()
        return self._shown(self._stream.finish() if cut is None else self._stream.cut(cut))

    @property
    def calls(self) -> CallsState:
        """See `AnswerStream`."""
        return "none" if self._stream is None else self._stream.calls

    def _shown(self, delta: AnswerDelta) -> AnswerDelta:
        if self._include_reasoning:
            return delta
        return delta_of(part for part in delta.parts if not isinstance(part, ReasoningPart))


@dataclass(frozen=True)
class Piece:
    """A part of one choice: one run in a stream, all runs joined in a complete answer.

    `logprobs`, and `offsets`, the characters of the choice before each token's text, are empty unless logprobs are
    requested. The text may lag behind the tokens. `delta` is what the text says: reasoning, content and calls. Of one
    run, `accepted_characters` is how much of the delta's reasoning and content, from its beginning, the accepted tokens
    made certain; it is None for joined runs. `calls` says whether the calls up to the end of the piece are whole, and
    `stop_string` which one has ended the choice. `begins` marks the first of a choice, with the `prompt_logprobs` if
    they are requested. Of one run, `source` is who proposed for it, None if nobody did, `task` that of the draft which
    serves the choice, and `number` that of the pass, 0 for the one over the prompt; all are None for joined runs.
    """

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    offsets: tuple[int, ...]
    proposed: int
    accepted: int
    finish_reason: FinishReason | None
    accepted_characters: int | None = None
    delta: AnswerDelta = NOTHING_SAID
    calls: CallsState = "none"
    stop_string: str | None = None
    begins: bool = False
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    source: Source | None = None
    task: str | None = None
    number: int | None = None


NOTHING = Piece("", (), (), (), proposed=0, accepted=0, finish_reason=None, accepted_characters=0)


class Choice:
    """Detokenises the runs of one choice in order."""

    def __init__(
        self, tokenizer: tokenizers.Tokenizer, ending: Ending, logprobs: bool, parsing: Parsing = NO_PARSING
    ) -> None:
        self._ending = ending
        self._text = ending.text(tokenizer, parsing.form)
        self._parser = Parser(parsing, special_tokens=not ending.skip_special_tokens)
        self._offsets = Offsets(tokenizer, ending.skip_special_tokens) if logprobs else None
        self._has_begun = False
        self.finished = False

    def push(self, run: Run) -> Piece:
        texts = [self._text.push(token) for token in self._ending.shown_tokens(run)]
        certain, rest = "".join(texts[: run.accepted]), "".join(texts[run.accepted :])
        accepted = self._parser.push(certain)
        if run.finish_reason is not None:
            self.finished = True
            rest += self._text.flush()
        deltas = [accepted, self._parser.push(rest)]
        if self.finished:
            deltas.append(self._parser.finish(self._ending.cut(run, self._text)))
        begins, self._has_begun = not self._has_begun, True
        return Piece(
            text=without_marks(certain + rest, written_out=not self._ending.skip_special_tokens),
            tokens=run.tokens,
            logprobs=run.logprobs,
            offsets=tuple(self._offsets.push(token) for token in run.tokens) if self._offsets else (),
            proposed=run.proposed,
            accepted=run.accepted,
            finish_reason=run.finish_reason,
            accepted_characters=len(accepted.reasoning) + len(accepted.content),
            delta=joined(deltas),
            calls=self._parser.calls,
            stop_string=self._text.stop_string,
            begins=begins,
            prompt_logprobs=run.prompt_logprobs,
            source=run.source if run.proposed else None,
        )


class Offsets:
    """The offset of each token's text in the choice; nothing is held back for stop strings."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, skip_special_tokens: bool) -> None:
        self._text = TextStream(tokenizer, (), skip_special_tokens)
        self._length = 0

    def push(self, token: int) -> int:
        begin = self._length
        self._length += len(self._text.push(token))
        return begin


def join(pieces: Sequence[Piece]) -> Piece:
    """The pieces of one choice, in order, as a single one."""
    return Piece(
        text="".join(piece.text for piece in pieces),
        tokens=tuple(token for piece in pieces for token in piece.tokens),
        logprobs=tuple(logprob for piece in pieces for logprob in piece.logprobs),
        offsets=tuple(offset for piece in pieces for offset in piece.offsets),
        proposed=sum(piece.proposed for piece in pieces),
        accepted=sum(piece.accepted for piece in pieces),
        finish_reason=pieces[-1].finish_reason,
        calls=pieces[-1].calls,
        stop_string=pieces[-1].stop_string,
        begins=pieces[0].begins,
        prompt_logprobs=pieces[0].prompt_logprobs,
        delta=joined(piece.delta for piece in pieces),
    )
