"""Pieces of Lark, the language of llguidance's grammars, for calls in any format."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

_BLANK = r"[ \t\r\n]*"


class Lark:
    """Writes markers as grammars have them. `tokens` are the ids of those that are tokens of the target's tokenizer."""

    def __init__(self, tokens: Mapping[str, int]) -> None:
        self.tokens = tokens

    def marker(self, marker: str) -> str:
        return f"<[{self.tokens[marker]}]>" if marker in self.tokens else json.dumps(marker)

    def up_to(self, rule: str, marker: str) -> str:
        """A rule for any text up to the first `marker`, and the marker."""
        lazy = "" if marker in self.tokens else "[lazy]"
        return f"{rule}{lazy}: TEXT {self.marker(marker)}"

    def text(self) -> str:
        """Any text but one that spells a marker out that is a token: a call would go unnoticed there."""
        spelled = "|".join(map(_pattern, self.tokens))
        return r"TEXT: /(.|\n)*/" + (rf" & ~/(.|\n)*({spelled})(.|\n)*/" if spelled else "")

    def text_without(self, rule: str, openings: str, marker: str) -> str:
        """A rule for text that does not begin with one of the `openings`, nor has the `marker`, if any, in it."""
        rule += rf": TEXT & ~/{_BLANK}[{re.escape(openings)}](.|\n)*/"
        if marker and marker not in self.tokens:  # a token stands in no text
            rule += rf" & ~/(.|\n)*{_pattern(marker)}(.|\n)*/"
        return rule


def _pattern(marker: str) -> str:
    return re.escape(marker).replace("/", r"\/")


def repeated(item: str, separator: str, parallel: bool) -> str:
    """An `item`, and if `parallel` any number of them with `separator` between."""
    return f"{item} ({json.dumps(separator)} {item})*" if parallel else item


def listed(item: str, parallel: bool) -> str:
    """A JSON list of one `item`, or of any number."""
    return f'"[" {repeated(item, ", ", parallel)} "]"'
