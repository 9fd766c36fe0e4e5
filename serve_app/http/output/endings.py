"""How the text of an answer ends: with its last token, before the token or the string that ended it, or behind it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import tokenizers

from core.generation import Run
from core.text.detokenizer import TextStream
from core.tools.call_spans import AnswerForm


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

    def kept(self, run: Run) -> Run:
        """What the client gets of a run."""
        if not self.reads_only:
            return run
        return msgspec.structs.replace(run, tokens=(), logprobs=(), finish_reason="length")

    def text(self, tokenizer: tokenizers.Tokenizer, form: AnswerForm) -> TextStream:
        return TextStream(tokenizer, self.stop, self.skip_special_tokens, self.include_stop, form)

    def shown(self, run: Run) -> tuple[int, ...]:
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
