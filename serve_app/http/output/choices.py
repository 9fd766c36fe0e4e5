"""Detokenises the runs of a choice into pieces: text, tokens, logprobs and counts that belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tokenizers

from core.generation import FinishReason, Run, TokenLogprob
from core.text.detokenizer import TextStream
from core.tools.answer import AnswerDelta, CallsState, joined
from core.tools.markers import without_marks
from serve_app.http.output.endings import Ending
from serve_app.http.output.parsing import NO_PARSING, Parser, Parsing

NOTHING_SAID = AnswerDelta()


@dataclass(frozen=True)
class Piece:
    """A part of one choice: one run in a stream, all runs joined in a complete answer.

    `logprobs`, and `offsets`, the characters of the choice before each token's text, are empty unless logprobs are
    requested. The text may lag behind the tokens. `delta` is what the text says: reasoning, content and calls. Of one
    run, `accepted_characters` is how much of the delta's reasoning and content, from its beginning, the accepted tokens
    made certain; it is None for joined runs. `calls` says whether the calls up to the end of the piece are whole, and
    `stop_string` which one has ended the choice. `begins` marks the first of a choice, with the `prompt_logprobs` if
    they are requested.
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
        self._begun = False
        self.finished = False

    def push(self, run: Run) -> Piece:
        texts = [self._text.push(token) for token in self._ending.shown(run)]
        certain, rest = "".join(texts[: run.accepted]), "".join(texts[run.accepted :])
        accepted = self._parser.push(certain)
        if run.finish_reason is not None:
            self.finished = True
            rest += self._text.flush()
        deltas = [accepted, self._parser.push(rest)]
        if self.finished:
            deltas.append(self._parser.finish(self._ending.cut(run, self._text)))
        begins, self._begun = not self._begun, True
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
        begins=True,
        prompt_logprobs=pieces[0].prompt_logprobs,
        delta=joined(piece.delta for piece in pieces),
    )
