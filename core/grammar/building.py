"""Grammars from what clients send: a JSON schema, a regular expression, a list of choices, a Lark grammar.

JSON is written as `json.dumps` does, with one space behind a comma or a colon. So all between the values is certain,
and can be proposed. Whoever wants other spaces says so with a pattern.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llguidance import LLMatcher

from core.errors import InvalidRequest
from core.grammar.complaints import in_our_words, of_text
from core.grammar.json_schema.patterns import check_repetition
from core.grammar.json_schema.references import subschemas
from core.grammar.json_schema.rewriting import TOO_DEEP, RewrittenSchema
from core.grammar.json_schema.schema import Path, Rewritten, SchemaFault, referred, written
from core.grammar.trial import complaint

MAX_GRAMMAR = 1 << 18  # characters; up to 0.3 s to compile, and 0.5 s more to read as GBNF
ESCAPES = 'nrbtf\\"'  # letters behind a backslash, without the u of control characters

ONE_SPACE = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}
"""How JSON is written: between the values all is certain, and can be proposed."""

_NAMED_TOKENS = re.compile(r"<\[|<[^<>\s]+>")  # in Lark, a token by its id or its text, which cannot be tried
_SEARCHED = 1 << 19  # characters of grammars compiled to find the path at fault, in half a second
_EACH = 1 << 8  # characters that take as long as one more grammar does


def of_json_schema(schema: Mapping[str, Any], field: str, *, strict: bool = True, whitespace: str | None = None) -> str:
    """JSON that is valid against `schema`, a JSON schema of draft 2020-12 or before.

    `whitespace` is a regular expression of what may stand between tokens of JSON. Raises `InvalidRequest` for `field`,
    with the path in the schema at fault: in a large one perhaps of a schema around it. Unless `strict`, keywords that
    cannot be enforced are ignored.
    """
    return _usable(schema, field, strict, whitespace)[1]


def engine_schema(schema: Mapping[str, Any], field: str, *, strict: bool = True) -> dict[str, Any]:
    """The same schema as the engine holds it, to stand in another grammar; raises what `of_json_schema` does."""
    rewritten, _ = _usable(schema, field, strict, None)
    return {**rewritten.whole(), "x-guidance": _written_json(rewritten, None)}


def _usable(schema: Mapping[str, Any], field: str, strict: bool, whitespace: str | None) -> tuple[RewrittenSchema, str]:
    """The schema for the engine, and its grammar, which has been tried."""
    try:
        rewritten = _rewritten(schema, field, strict)
        grammar = _of_rewritten(rewritten, rewritten.root, whitespace)
        _check_size(grammar, field)
        if wrong := complaint(grammar):
            path, wrong = _Search(rewritten, whitespace).fault(wrong)
            raise SchemaFault(path, in_our_words(wrong))
    except SchemaFault as fault:
        at = f"{field}{written(fault.path)}"
        raise InvalidRequest(at, f"'{at}': {fault.complaint}") from fault
    return rewritten, grammar


def _rewritten(schema: Mapping[str, Any], field: str, strict: bool) -> RewrittenSchema:
    try:
        _check_size(json.dumps(schema), field)
        return RewrittenSchema(schema, strict)
    except RecursionError:
        raise SchemaFault((), TOO_DEEP) from None


def _of_rewritten(schema: RewrittenSchema, part: Rewritten, whitespace: str | None) -> str:
    """The grammar of a part of a schema."""
    alone = json.dumps(schema.with_definitions(part))
    overrides: Any = _written_json(schema, whitespace)
    return LLMatcher.grammar_from_json_schema(alone, overrides=overrides)


def _written_json(schema: RewrittenSchema, whitespace: str | None) -> dict[str, Any]:
    """How the engine writes JSON."""
    form: dict[str, Any] = ONE_SPACE if whitespace is None else {"whitespace_pattern": whitespace}
    return form if schema.spelled_characters else form | {"json_allowed_escapes": ESCAPES}


def of_json_object(field: str, whitespace: str | None = None) -> str:
    """Any JSON object."""
    return of_json_schema({"type": "object"}, field, whitespace=whitespace)


def of_regex(regex: str, field: str) -> str:
    """Text that the whole of `regex` matches, in the syntax of Rust's crate regex; it has no look-around."""
    try:
        check_repetition(regex)
    except ValueError as error:
        raise InvalidRequest(field, f"'{field}': {error}") from error
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


def checked(grammar: str, field: str) -> str:
    """`grammar` itself; raises `InvalidRequest` for `field` if it is none."""
    _check_size(grammar, field)
    wrong = LLMatcher.validate_grammar(grammar) if _NAMED_TOKENS.search(grammar) else complaint(grammar)
    if wrong:
        raise InvalidRequest(field, f"'{field}': {of_text(wrong)}")
    return grammar


def _check_size(grammar: str, field: str) -> None:
    if len(grammar) > MAX_GRAMMAR:
        raise InvalidRequest(field, f"'{field}' has {len(grammar)} characters; a grammar has at most {MAX_GRAMMAR}")


def _quoted(text: str) -> str:
    """A string of Lark, which has DEL only in this form."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


class _Search:
    """Looks for the part of a schema that the engine refuses; it ends once `_SEARCHED` characters are compiled."""

    def __init__(self, schema: RewrittenSchema, whitespace: str | None) -> None:
        self._schema = schema
        self._whitespace = whitespace
        self._budget = _SEARCHED

    def fault(self, wrong: str) -> tuple[Path, str]:
        """The path of the innermost part found that is refused by itself, and what is wrong with it."""
        path: Path = ()
        part, searched = self._schema.root, set[int]()
        while inner := next(self._refused(part, searched), None):
            part, wrong = inner
            path = self._schema.path(part) or path
        return path, wrong

    def _refused(self, part: Rewritten, searched: set[int]) -> Iterator[tuple[Rewritten, str]]:
        for inner in self._inner(part):
            if self._budget <= 0:
                return
            if id(inner) in searched:
                continue
            searched.add(id(inner))
            grammar = _of_rewritten(self._schema, inner, self._whitespace)
            self._budget -= len(grammar) + _EACH
            if wrong := complaint(grammar):
                yield inner, wrong

    def _inner(self, part: Rewritten) -> Iterator[Rewritten]:
        if isinstance(part, bool):
            return
        if (name := referred(part)) is not None:
            yield self._schema.definitions[name]
        yield from (inner for _, inner in subschemas(part))
