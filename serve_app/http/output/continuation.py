"""A cut answer, continued: what the client has of it is generated again, compared, and not sent.

The seed decides every token. So nobody has to remember an answer that was cut: any replica finds the place again. What
the client has is proposed to the target like a prediction, which makes that fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from core.errors import InvalidRequest
from core.generation import Run
from core.tools.answer import AnswerDelta, ContentPart, Part
from serve_app.http.output.choices import NOTHING, Choice, Piece

FIELD = "continue_from"
Received = str | list[int] | None
"""What a client has of an answer: its content or its token ids; None for one that begins here."""


def beginning(received: Received, choice: Choice) -> Choice | AfterTokens | AfterContent:
    """What makes the pieces of a choice from its runs, beginning with those that the client lacks."""
    if not received:
        return choice
    return AfterContent(received, choice) if isinstance(received, str) else AfterTokens(received, choice)


class AfterTokens:
    """The pieces of a choice after the tokens `received`.

    `push` returns None for a run that the client has, and raises `InvalidRequest` at the first token that differs.
    """

    def __init__(self, received: list[int], choice: Choice) -> None:
        self._received = tuple(received)
        self._place = 0  # how many of them were generated again
        self._choice = choice

    def push(self, run: Run) -> Piece | None:
        missing = len(self._received) - self._place
        if not missing:
            return self._choice.push(run)
        again, rest = _divided(run, missing)
        self._compare(again.tokens)
        piece = self._choice.push(again)
        if rest is not None:
            return replace(self._choice.push(rest), begins=False)
        return None if run.finish_reason is None else self._end(piece)

    def _compare(self, tokens: tuple[int, ...]) -> None:
        for token in tokens:
            if token != self._received[self._place]:
                raise _differs(f"token {self._place} is {token} in this answer and {self._received[self._place]} there")
            self._place += 1

    def _end(self, piece: Piece) -> Piece:
        if self._place < len(self._received):
            raise _differs(f"this answer ends after {self._place} tokens and has {len(self._received)} there")
        return replace(NOTHING, finish_reason=piece.finish_reason, calls=piece.calls, stop_string=piece.stop_string)


class AfterContent:
    """The same for a client that has the content alone. Of the run in which it ends, all tokens are sent.

    Reasoning before the end of that content is not sent again.
    """

    def __init__(self, received: str, choice: Choice) -> None:
        self._received = received
        self._place = 0  # in characters
        self._choice = choice

    def push(self, run: Run) -> Piece | None:
        piece = self._choice.push(run)
        missing = self._received[self._place :]
        if not missing:
            return piece
        content = piece.delta.content[: len(missing)]
        if not missing.startswith(content):
            raise _differs(f"its content is another from character {self._place} to {self._place + len(content)} on")
        self._place += len(content)
        if self._place < len(self._received):
            if piece.finish_reason is not None:
                raise _differs(f"this answer has {self._place} characters and that one {len(self._received)} or more")
            return None
        rest = AnswerDelta(tuple(_after(piece.delta.parts, len(content))))
        if not rest.parts and piece.finish_reason is None:
            return None
        accepted = max(0, (piece.accepted_characters or 0) - len(content))
        text = piece.text[len(content) :]
        return replace(piece, text=text, delta=rest, accepted_characters=accepted, begins=False)


def _divided(run: Run, length: int) -> tuple[Run, Run | None]:
    """The first `length` tokens of a run, and the rest if there are more."""
    if len(run.tokens) <= length:
        return run, None
    accepted, proposed = min(run.accepted, length), min(run.proposed, length)
    first = msgspec.structs.replace(
        run,
        tokens=run.tokens[:length],
        logprobs=run.logprobs[:length],
        accepted=accepted,
        proposed=proposed,
        finish_reason=None,
    )
    rest = msgspec.structs.replace(
        run,
        tokens=run.tokens[length:],
        logprobs=run.logprobs[length:],
        accepted=run.accepted - accepted,
        proposed=run.proposed - proposed,
        prompt_logprobs=(),
    )
    return first, rest


def _after(parts: tuple[Part, ...], characters: int) -> Iterator[Part]:
    """The parts behind so many characters of content."""
    for part in parts:
        if not characters:
            yield part
        elif isinstance(part, ContentPart):
            rest = part.text[characters:]
            characters -= len(part.text) - len(rest)
            if rest:
                yield ContentPart(rest)


def _differs(how: str) -> InvalidRequest:
    message = (
        f"'{FIELD}' is not the beginning of this answer: {how}; repeat the request with the same fields and the seed "
        "of the answer that was cut, on the same model"
    )
    return InvalidRequest(FIELD, message, status=409, code="continuation_differs")
