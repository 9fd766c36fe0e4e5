"""Token ids in, text out, one token at a time, up to the first stop string that is not in a call of a grammar.

A piece of text is released only when no later token can change or withdraw it. An unfinished UTF-8 sequence and a
possible beginning of a stop string are pending. The joined pieces are the whole text, however the tokens were cut
into runs.

The DecodeStream of tokenizers does not fit. It hides the text that is pending, so a stop string followed by half a
character would be seen a token late. On byte-fallback vocabularies it fails for good once invalid bytes follow a
finished character.
"""

from __future__ import annotations

from functools import partial

from tokenizers import Tokenizer

from core.tools.call_spans import PLAIN, AnswerForm, CallSpans, TextSpan
from core.tools.formats import FORMATS
from core.tools.markers import marks_of

UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # decoders write it for bytes that are not (yet) a character


class TextStream:
    """The text of one generation. `stopped` is set by the token that completes a stop string, `stop_string` is which.

    The text ends before the stop string, or behind it with `include_stop`. In the `form` of the answer, markers that
    are tokens stand in it as their marks, which no stop string goes across, and there is none in calls that a grammar
    holds. What may become the marker of such a call is looked at when it is certain that it does not.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: tuple[str, ...] = (),
        skip_special_tokens: bool = True,
        include_stop: bool = False,
        form: AnswerForm = PLAIN,
    ) -> None:
        self.stop_string: str | None = None
        self._include_stop = include_stop
        self._marks = marks_of(form.markers)
        self._calls: CallSpans | None = None
        if form.constrained is not None and stop:
            self._calls = CallSpans(FORMATS[form.constrained], form.reasoning, form.opened)
        self._new_decoder = partial(_Decoder, tokenizer, skip_special_tokens)
        self._decoder = self._new_decoder()
        self._stop = stop
        self._pending = ""

    @property
    def stopped(self) -> bool:
        return self.stop_string is not None

    def push(self, token: int) -> str:
        """The text that this token makes certain; empty once stopped."""
        if self.stopped:
            return ""
        text = self._text_of(token)
        return self._searched([TextSpan(text, False)] if self._calls is None else self._calls.push(text))

    def flush(self) -> str:
        """The text still pending at the end of the generation; unfinished bytes come out as U+FFFD."""
        if self.stopped:
            return ""
        text = self._searched([] if self._calls is None else self._calls.finish())
        if not self.stopped:
            self._pending += self._decoder.flush()
            text += self._release(len(self._pending))
        return text

    def _searched(self, spans: list[TextSpan]) -> str:
        """What these parts of the text make certain."""
        return "".join(self._released(span) for span in spans if not self.stopped)

    def _released(self, span: TextSpan) -> str:
        self._pending += span.text
        if span.in_call:
            return self._release(len(self._pending))
        matches = [(at, len(stop), stop) for stop in self._stop if (at := self._pending.find(stop)) >= 0]
        if not matches:
            return self._release(len(self._pending) - self._stop_begin())
        start, length, self.stop_string = min(matches)
        return self._release(start + length if self._include_stop else start)

    def _text_of(self, token: int) -> str:
        if token not in self._marks:
            return self._decoder.push(token)
        before, self._decoder = self._decoder.flush(), self._new_decoder()
        return before + self._marks[token]

    def _release(self, length: int) -> str:
        text, self._pending = self._pending[:length], self._pending[length:]
        return text

    def _stop_begin(self) -> int:
        """The length of the longest suffix of the pending text that begins a stop string."""
        longest = max((len(stop) - 1 for stop in self._stop), default=0)
        for length in range(min(longest, len(self._pending)), 0, -1):
            if any(stop.startswith(self._pending[-length:]) for stop in self._stop):
                return length
        return 0


class _Decoder:
    """Incremental detokenising over a window of ids: the last finished piece and everything after it.

    The finished ids stay as context because decoders treat the start of a text differently (leading spaces).
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._window: list[int] = []
        self._num_context = 0
        self._released_text = ""  # text of the window that has been released

    def push(self, token: int) -> str:
        self._window.append(token)
        text = self._decode()
        certain = text.rstrip(UNFINISHED)
        if not certain.startswith(self._released_text):
            return "" if certain != text else self._restart()
        new = certain[len(self._released_text) :]
        self._released_text = certain
        if new and certain == text:
            self._advance()
        return new

    def flush(self) -> str:
        text = self._decode()
        if not text.startswith(self._released_text):
            return self._restart()
        new = text[len(self._released_text) :]
        self._released_text = text
        return new

    def _restart(self) -> str:
        """Start again behind the released text: with byte fallback, invalid bytes can spoil a finished character."""
        del self._window[: self._num_context]
        text = self._decode()
        self._advance()
        return text

    def _advance(self) -> None:
        del self._window[: self._num_context]
        self._num_context = len(self._window)
        self._released_text = self._decode()

    def _decode(self) -> str:
        return self._tokenizer.decode(self._window, skip_special_tokens=self._skip_special_tokens)
