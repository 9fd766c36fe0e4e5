"""Prompts from a file; all of it is checked before the target answers any of them.

A file has a JSON object a line, or is a JSON list of such objects. `core.text.prompt_forms` says what they may be.
"""

from __future__ import annotations

import json
import logging
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import replace
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from core.text.prompt_forms import FORMS, NoPrompt, Unused, prompt_of
from core.text.prompts import Prompt

_MARK = BOM_UTF8.decode()
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")  # as some programs write it, though UTF-8 has none
_log = logging.getLogger(__name__)


def read_prompts(file: Path) -> list[Prompt]:
    """All prompts of a UTF-8 file, at least one. Lines end in LF, CRLF or CR; blank ones are skipped.

    What no prompt is made from is named once, in a warning. `ConfigError` names the first bad line and field, or a file
    without prompts.
    """
    prompts, unused = list[Prompt](), Unused()
    for origin, value in _objects(_text(file), file):
        try:
            prompts.append(replace(prompt_of(value, unused), origin=origin))
        except NoPrompt as error:
            raise ConfigError(f"{origin}: {error}") from error
    if not prompts:
        raise ConfigError(f"{file} has no prompts: write lines of {FORMS} in it")
    if not_used := str(unused):
        _log.warning("%s: not used: %s", file, not_used)
    return prompts


def _objects(text: str, file: Path) -> Iterator[tuple[str, Any]]:
    """What the file holds, each with its place in words."""
    if text.lstrip().startswith("["):
        for number, value in enumerate(_decoded(text, file, 1), 1):
            yield f"{file}, item {number}", value
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"{file}, line {number}", _decoded(line, file, number)


def _decoded(text: str, file: Path, line: int) -> Any:
    """The JSON in a text that begins in this line."""
    try:
        return json.loads(text)
    except JSONDecodeError as error:
        wrong = f"no JSON: {error.msg} (column {error.colno}); write an object a line, or a list of objects"
        if text.startswith(_MARK, error.pos):
            wrong = "a byte order mark within the file, as if two files were joined; leave it out"
        raise ConfigError(f"{file}, line {line + error.lineno - 1}: {wrong}") from error
    except RecursionError as error:
        raise ConfigError(f"{file}, line {line}: lists or objects too deep within each other") from error
    except ValueError as error:
        raise ConfigError(f"{file}, line {line}: a number of thousands of digits") from error


def _text(file: Path) -> str:
    """The text of a file, whose lines end in LF."""
    try:
        content = file.read_bytes().removeprefix(BOM_UTF8)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if (place := content.find(b"\0")) >= 0:  # which JSON never has
        raise ConfigError(f"{_line(file, content, place)}: zero bytes, as UTF-16 has them; save the file as UTF-8")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        wrong = f"no UTF-8 (byte 0x{content[error.start]:02x}); save the file as UTF-8"
        if _SURROGATE.match(content, error.start):
            wrong = "a lone surrogate, which is half a character; write both halves as one character, or neither"
        raise ConfigError(f"{_line(file, content, error.start)}: {wrong}") from error


def _line(file: Path, content: bytes, place: int) -> str:
    line = content.count(b"\n", 0, place) + 1
    return f"{file}, line {line}"
