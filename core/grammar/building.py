"""Grammars from what clients send: a JSON schema, a regular expression, a list of choices, a Lark grammar.

JSON is written as `json.dumps` does, with one space behind a comma or a colon. So all between the values is certain,
and can be proposed. Whoever wants other spaces says so with a pattern.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llguidance import LLMatcher

from core.errors import InvalidRequest

MAX_GRAMMAR = 1 << 18  # characters; up to 0.3 s to compile, and 0.5 s more to read as GBNF

Path = tuple[str | int, ...]

_IN_OBJECTS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_IN_LISTS = ("prefixItems", "allOf", "anyOf", "oneOf")
_ALONE = ("items", "additionalProperties", "additionalItems", "not", "if", "then", "else", "contains", "propertyNames")
_SHARED = ("$defs", "definitions")
_YEAR = "(...[1-9]|..[1-9].|.[1-9]..|[1-9]...)"  # but for 0000
_LEAP_YEAR = "(..(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
_DAY = f"({_YEAR}-(0[13-9]-..|1.-..|02-[01].|02-2[0-8])|{_LEAP_YEAR}-02-29)"
_EXISTING = {"date": f"^{_DAY}$", "time": "^.{6}[0-5].*$", "date-time": f"^{_DAY}.{{7}}[0-5].*$"}  # patterns, by format
_SAID = 200  # characters of a complaint, which may quote the whole grammar
_SEARCHED = 1 << 19  # characters of grammars compiled to find the path at fault, in half a second
_EACH = 1 << 8  # characters that take as long as one more grammar does


def of_json_schema(schema: Mapping[str, Any], field: str, *, strict: bool = True, whitespace: str | None = None) -> str:
    """JSON that is valid against `schema`, a JSON schema of draft 2020-12 or before.

    `whitespace` is a regular expression of what may stand between tokens of JSON. Raises `InvalidRequest` for `field`,
    with the path in the schema at fault: in a large one perhaps of a schema around it. Unless `strict`, keywords that
    cannot be enforced are ignored.
    """
    try:
        grammar = _of_schema(schema, strict, whitespace)
    except (ValueError, RecursionError) as error:
        message = f"'{field}' has a value that no grammar can hold: {_first_line(str(error))}"
        raise InvalidRequest(field, message) from error
    _check_size(grammar, field)
    if LLMatcher.validate_grammar(grammar):
        path, complaint = _Search(schema, strict, whitespace).fault()
        raise InvalidRequest(f"{field}{_written(path)}", f"'{field}{_written(path)}': {complaint}")
    return grammar


def of_json_object(field: str, whitespace: str | None = None) -> str:
    """Any JSON object."""
    return of_json_schema({"type": "object"}, field, whitespace=whitespace)


def of_regex(regex: str, field: str) -> str:
    """Text that the whole of `regex` matches, in the syntax of Rust's crate regex; it has no look-around."""
    return checked(LLMatcher.grammar_from_regex(regex), field)


def of_choice(choices: Sequence[str], field: str) -> str:
    """One of these texts."""
    if not choices or "" in choices:
        raise InvalidRequest(field, f"'{field}' must be a list of texts, none of them empty")
    return checked("start: " + " | ".join(map(_quoted, choices)), field)


def of_lark(grammar: str, field: str) -> str:
    """A context-free grammar in the Lark dialect of llguidance, or in GBNF."""
    _check_size(grammar, field)
    if "::=" in grammar:
        from llguidance.gbnf_to_lark import any_to_lark

        try:
            grammar = any_to_lark(grammar)
        except Exception as error:  # the converter has no exception of its own
            raise InvalidRequest(field, f"'{field}': {error}") from error
    return checked(grammar, field)


def with_existing_dates(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The same schema, in which formats of dates and times allow only what exists and can be read.

    llguidance allows 29 February and second 60 in any year and minute.
    """
    copy: dict[str, Any] = json.loads(json.dumps(schema))
    schemas = [copy]
    while schemas:
        one = schemas.pop()
        schemas += [inner for _, inner in _subschemas(one)]
        if isinstance(form := one.get("format"), str) and form in _EXISTING:
            one.setdefault("pattern", _EXISTING[form])
    return copy


def checked(grammar: str, field: str) -> str:
    """`grammar` itself; raises `InvalidRequest` for `field` if it is none."""
    _check_size(grammar, field)
    if complaint := LLMatcher.validate_grammar(grammar):
        raise InvalidRequest(field, f"'{field}': {_first_line(complaint)}")
    return grammar


def _check_size(grammar: str, field: str) -> None:
    if len(grammar) > MAX_GRAMMAR:
        raise InvalidRequest(field, f"'{field}' has {len(grammar)} characters; a grammar has at most {MAX_GRAMMAR}")


def _quoted(text: str) -> str:
    """A string of Lark, which has DEL only in this form."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _of_schema(schema: Mapping[str, Any], strict: bool, whitespace: str | None) -> str:
    written: Any = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}
    if whitespace is not None:
        written = {"whitespace_pattern": whitespace}
    written["lenient"] = not strict
    return LLMatcher.grammar_from_json_schema(with_existing_dates(schema), overrides=written)


class _Search:
    """Looks for what is wrong in a schema that is refused; it ends once `_SEARCHED` characters have been compiled."""

    def __init__(self, schema: Mapping[str, Any], strict: bool, whitespace: str | None) -> None:
        self._schema = schema
        self._shared = {key: schema[key] for key in _SHARED if key in schema}
        self._strict = strict
        self._whitespace = whitespace
        self._left = _SEARCHED

    def fault(self) -> tuple[Path, str]:
        """The path of the innermost schema found that is refused by itself, and what is said of it."""
        path: Path = ()
        inner, complaint = self._schema, self._complaint(self._schema)
        while found := next(self._refused(inner), None):
            step, inner, complaint = found
            path += step
        return path, _first_line(complaint)

    def _refused(self, schema: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any], str]]:
        for step, inner in _subschemas(schema):
            if self._left <= 0:
                return
            own = inner if step[0] in _SHARED else {**self._shared, **inner}
            if complaint := self._complaint(own):
                yield step, inner, complaint

    def _complaint(self, schema: Mapping[str, Any]) -> str:
        grammar = _of_schema(schema, self._strict, self._whitespace)
        self._left -= len(grammar) + _EACH
        return LLMatcher.validate_grammar(grammar)


def _subschemas(schema: Mapping[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    for key, value in schema.items():
        within: Iterator[tuple[Path, Any]] = iter(())
        if key in _IN_OBJECTS and isinstance(value, dict):
            within = (((key, name), inner) for name, inner in value.items())
        elif key in _IN_LISTS and isinstance(value, list):
            within = (((key, index), inner) for index, inner in enumerate(value))
        elif key in _ALONE:
            within = iter([((key,), value)])
        yield from ((step, inner) for step, inner in within if isinstance(inner, dict))


def _written(path: Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def _first_line(complaint: str) -> str:
    """What is wrong, without the picture of where."""
    lines = [line.strip() for line in complaint.splitlines() if line.strip()]
    return next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), lines[0])[:_SAID]
