"""What is wrong with an answer, as `jsonschema` sees it, which knows nothing of grammars."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, time
from fractions import Fraction
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for

from core.tools.answer_stream import AnswerStream
from core.tools.format import ToolFormat
from tests.core.grammar.offered_tools import OfferedTool
from tests.core.tools.parsed import whole_answer

_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOSTNAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_DURATION = re.compile(r"P(?=.)(\d+W|(\d+Y)?(\d+M)?(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+S)?)?)")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]*")
_CHECKS: dict[str, Callable[[str], object]] = {
    "date-time": lambda value: datetime.fromisoformat(value.upper()).tzinfo,
    "time": lambda value: time.fromisoformat(value.upper()).tzinfo,
    "hostname": _HOSTNAME.fullmatch,
    "duration": _DURATION.fullmatch,
    "uri": _URI.fullmatch,
}


def json_fault(schema: Mapping[str, Any], text: str) -> str:
    """What `jsonschema` has against it, formats included."""
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"no JSON: {error}"
    return "; ".join(f"{error.json_path}: {error.message}" for error in _validator(schema).iter_errors(value))


def calls_fault(offered: Sequence[OfferedTool], tool_format: ToolFormat, parallel: bool, text: str) -> str:
    """Whether there is anything but calls of offered tools with valid arguments."""
    parameters = {tool.name: tool.parameters for tool in offered}
    stream = AnswerStream(tool_format, parameters)
    parsed = whole_answer([stream.push(text), stream.finish()])
    if parsed.content or not parsed.calls:
        return f"beside {len(parsed.calls)} calls it says {parsed.content!r}"
    if len(parsed.calls) > 1 and not parallel:
        return f"{len(parsed.calls)} calls"
    return "; ".join(filter(None, (json_fault(parameters[call.name], call.arguments) for call in parsed.calls)))


def _validator(schema: Mapping[str, Any]) -> Validator:
    of_draft = validator_for(schema, default=Draft202012Validator)
    return extend(of_draft, {"multipleOf": _multiple_of})(schema, format_checker=_formats())


def _multiple_of(_validator: Validator, divisor: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    """As the decimals say; divided as floats, 0.3 would be no multiple of 0.1."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and (not math.isfinite(value) or Fraction(repr(value)) % Fraction(repr(divisor))):
        yield ValidationError(f"{value} is no multiple of {divisor}")


def _formats() -> FormatChecker:
    """jsonschema's, and those for which it needs libraries that are not here."""
    checker = FormatChecker()
    for name, check in _CHECKS.items():
        checker.checks(name, ValueError)(lambda value, check=check: not isinstance(value, str) or bool(check(value)))
    return checker
