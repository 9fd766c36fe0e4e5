"""Detokenises the runs of a choice into pieces: text, tokens, logprobs and counts that belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tokenizers

from core.generation import FinishReason, Run, TokenLogprob
from core.text.detokenizer import TextStream
from serve_app.openai.endings import Ending


@dataclass(frozen=True)
class Piece:
    """A part of one choice: one run in a stream, all runs joined in a complete answer.

    `logprobs`, and `offsets`, the characters of the choice before each token's text, are empty unless logprobs are
    requested. The text may lag behind the tokens. Of one run, `accepted_characters` is how much of the text, from its
    beginning, the accepted tokens made certain; it is None for joined runs.
    """

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    offsets: tuple[int, ...]
    proposed: int
    accepted: int
    finish_reason: FinishReason | None
    accepted_characters: int | None = None


NOTHING = Piece("", (), (), (), proposed=0, accepted=0, finish_reason=None, accepted_characters=0)


class Choice:
    """Detokenises the runs of one choice in order."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, ending: Ending, logprobs: bool) -> None:
        self._ending = ending
        self._text = ending.text(tokenizer)
        self._offsets = Offsets(tokenizer, ending.skip_special_tokens) if logprobs else None
        self.finished = False

    def push(self, run: Run) -> Piece:
        texts = [self._text.push(token) for token in self._ending.shown(run)]
        accepted_characters = sum(map(len, texts[: run.accepted]))
        if run.finish_reason is not None:
            self.finished = True
            texts.append(self._text.flush())
        offsets = tuple(self._offsets.push(token) for token in run.tokens) if self._offsets else ()
        return Piece(
            text="".join(texts),
            tokens=run.tokens,
            logprobs=run.logprobs,
            offsets=offsets,
            proposed=run.proposed,
            accepted=run.accepted,
            finish_reason=run.finish_reason,
            accepted_characters=accepted_characters,
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
    )
