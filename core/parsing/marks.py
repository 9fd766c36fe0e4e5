"""The markers around reasoning and calls. Models write some of them as text, some as special tokens.

Where a marker is a special token it stands in the text to be parsed as its mark: a surrogate, which no decoded text can
hold. So nothing that a model spells out is taken for the token, stop strings do not match in it, and it can be left out
of the content like any other special token.
"""

from __future__ import annotations

from collections.abc import Mapping

TOOL_CALL, END_TOOL_CALL = "<tool_call>", "</tool_call>"
TOOL_CALLS, CALL_ID, ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
PYTHON_TAG = "<|python_tag|>"
THINK, END_THINK = "<think>", "</think>"
BRACKET_THINK, END_BRACKET_THINK = "[THINK]", "[/THINK]"

_MARKERS = (
    *(TOOL_CALL, END_TOOL_CALL, TOOL_CALLS, CALL_ID, ARGS, PYTHON_TAG),
    *(THINK, END_THINK, BRACKET_THINK, END_BRACKET_THINK),
)
MARKS = {marker: chr(0xD800 + number) for number, marker in enumerate(_MARKERS)}
_LEFT_OUT = {ord(mark): "" for mark in MARKS.values()}
_WRITTEN_OUT = {ord(mark): marker for marker, mark in MARKS.items()}


def markers_of(special_tokens: Mapping[int, str]) -> dict[int, str]:
    """Those of the special tokens that are markers."""
    return {token: text for token, text in special_tokens.items() if text in MARKS}


def marks_of(markers: Mapping[int, str]) -> dict[int, str]:
    """The mark of each marker."""
    return {token: MARKS[marker] for token, marker in markers.items()}


def without_marks(text: str, *, written_out: bool) -> str:
    """`text` for a reader: its marks are the markers again if `written_out`, or else nothing."""
    return text.translate(_WRITTEN_OUT if written_out else _LEFT_OUT)
