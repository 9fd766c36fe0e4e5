"""Prints an answer as it arrives, with the accepted tokens of the draft in colour or, without colours, in marks."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text
from tokenizers import Tokenizer

from core.text.detokenizer import TextStream

ACCEPTED = "bold green"
OPEN, CLOSE = "\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}", "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"


class Transcript:
    """One answer; `show` is an `OnChunk` of `openai.client`."""

    def __init__(self, console: Console, tokenizer: Tokenizer) -> None:
        self._console = console
        self._text = TextStream(tokenizer)

    def show(self, tokens: Sequence[int], accepted: int) -> None:
        """Print one run, whose first `accepted` tokens are the draft's."""
        accepted_text = "".join(self._text.push(token) for token in tokens[:accepted])
        own = "".join(self._text.push(token) for token in tokens[accepted:])
        self._print(mark(accepted_text, self._console), own)

    def end(self) -> None:
        self._print(self._text.flush(), "\n")

    def _print(self, *parts: str | Text) -> None:
        self._console.print(Text.assemble(*parts), end="", soft_wrap=True)


def mark(text: str, console: Console) -> Text:
    """`text` marked as accepted."""
    if not text:
        return Text()
    return Text(text, ACCEPTED) if console.color_system else Text(f"{OPEN}{text}{CLOSE}")
