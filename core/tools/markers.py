"""The markers around reasoning and calls. Models write some of them as text, some as special tokens.

Where a marker is a special token, the text to be parsed has a mark in its place: a surrogate, which no decoded text can
hold. So nothing that a model spells out is taken for the token, stop strings do not match in it, and it can be left out
of the content like any other special token. Marks never leave the process.
"""

from __future__ import annotations

from collections.abc import Mapping

MARKS: dict[str, str] = {}
"""The mark of each marker that is declared."""

_LEFT_OUT: dict[int, str] = {}
_WRITTEN_OUT: dict[int, str] = {}


def declared(marker: str) -> str:
    """`marker` itself, which has a mark from now on."""
    mark = MARKS.setdefault(marker, chr(0xD800 + len(MARKS)))
    _LEFT_OUT[ord(mark)], _WRITTEN_OUT[ord(mark)] = "", marker
    return marker


def markers_of(special_tokens: Mapping[int, str]) -> dict[int, str]:
    """Those of the special tokens that are markers."""
    return {token: text for token, text in special_tokens.items() if text in MARKS}


def marks_of(markers: Mapping[int, str]) -> dict[int, str]:
    """The mark of each marker."""
    return {token: MARKS[marker] for token, marker in markers.items()}


def without_marks(text: str, *, written_out: bool) -> str:
    """`text` for a reader: its marks are the markers again if `written_out`, or else nothing."""
    return text.translate(_WRITTEN_OUT if written_out else _LEFT_OUT)
