"""What is recorded of an answer, in the forms in which plain decoding is held to it.

One that was cut has no end: it is to be a beginning of what plain decoding gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import tokenizers

from core.generation import FinishReason
from core.text.detokenizer import UNFINISHED


class ExpectedAnswer(Protocol):
    """A recorded answer."""

    def following(self, tokens: Sequence[int], ranked: Sequence[int]) -> int | None:
        """The token that the answer has behind these, of which something is left.

        `ranked` are candidates, the best first. Of an answer without token ids only the first that fits is known, None
        if none does.
        """

    def over(self, tokens: Sequence[int]) -> bool:
        """Whether nothing of the answer is left behind these tokens, whatever plain decoding has still to say."""

    def complaint(self, tokens: Sequence[int], finish_reason: FinishReason | None) -> str:
        """Why the answer may not end as it does; empty if it may.

        Plain decoding has come to these tokens, and has ended for this reason, or goes on.
        """


@dataclass(frozen=True)
class RecordedIds:
    """An answer as its token ids, those that ended it included. Of some it is not known why they ended."""

    ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
    cut: bool = False

    def following(self, tokens: Sequence[int], ranked: Sequence[int]) -> int | None:  # noqa: ARG002 - ids are exact
        return self.ids[len(tokens)]

    def over(self, tokens: Sequence[int]) -> bool:
        return len(tokens) >= len(self.ids)

    def complaint(self, tokens: Sequence[int], finish_reason: FinishReason | None) -> str:
        if more := len(self.ids) - len(tokens):
            return f"plain decoding ends here, and the answer has {more} tokens more"
        if self.cut:
            return ""
        if finish_reason is None:
            return "the answer ends here, and plain decoding goes on"
        return _of_reasons(self.finish_reason, finish_reason)


@dataclass(frozen=True)
class RecordedText:
    """An answer of which only the text is known; `shown` is the text of tokens as its client gets it.

    Behind it a string of `stop` may have been dropped, or one of the `end_ids`.
    """

    text: str
    tokenizer: tokenizers.Tokenizer
    shown: Callable[[Sequence[int], FinishReason], str]
    finish_reason: FinishReason | None = None
    cut: bool = False
    stop: tuple[str, ...] = ()
    end_ids: frozenset[int] = frozenset()
    skip_special_tokens: bool = True

    def following(self, tokens: Sequence[int], ranked: Sequence[int]) -> int | None:
        return next((token for token in ranked if self._fits(tokens, token)), None)

    def over(self, tokens: Sequence[int]) -> bool:
        return self.cut and len(self._raw(tokens)) >= len(self.text)

    def complaint(self, tokens: Sequence[int], finish_reason: FinishReason | None) -> str:
        if self.cut:
            return "" if self.over(tokens) else "plain decoding ends here, and the answer has more text"
        if finish_reason is None or self.shown(tokens, finish_reason) != self.text:
            return "the answer's text ends otherwise than that of plain decoding"
        return _of_reasons(self.finish_reason, finish_reason)

    def _fits(self, tokens: Sequence[int], token: int) -> bool:
        """Whether the text may be that of an answer with this token behind these."""
        if token in self.end_ids:
            return len(self._raw(tokens)) >= len(self.text.rstrip(UNFINISHED))
        raw = self._raw([*tokens, token])
        text, more = self.text, raw[len(self.text) :]
        if not more:
            return text.startswith(raw)
        stops = any(stop.startswith(more) or more.startswith(stop) for stop in self.stop)
        return raw.startswith(text) and (self.cut or stops)

    def _raw(self, tokens: Sequence[int]) -> str:
        """The text of the tokens; a character that is not whole yet is left out."""
        return self.tokenizer.decode(list(tokens), skip_special_tokens=self.skip_special_tokens).rstrip(UNFINISHED)


@dataclass(frozen=True)
class RecordedMessage:
    """A whole answer of which only what was read out of its text is known, such as calls of tools.

    So it is compared when plain decoding has ended, and the token at which it differs cannot be told.
    """

    message: object
    shown: Callable[[Sequence[int], FinishReason], object]
    finish_reason: FinishReason | None = None

    def following(self, tokens: Sequence[int], ranked: Sequence[int]) -> int | None:  # noqa: ARG002 - any may be
        return ranked[0]

    def over(self, tokens: Sequence[int]) -> bool:  # noqa: ARG002 - its end is that of plain decoding
        return False

    def complaint(self, tokens: Sequence[int], finish_reason: FinishReason | None) -> str:
        if finish_reason is None or self.shown(tokens, finish_reason) != self.message:
            return "reasoning, content or calls are not those of plain decoding"
        return _of_reasons(self.finish_reason, finish_reason)


def _of_reasons(recorded: FinishReason | None, plain: FinishReason) -> str:
    if recorded in (None, plain):
        return ""
    return f"the answer ended by {recorded!r}, and plain decoding by {plain!r}"
