"""A JSON schema in the form that the engine holds exactly; what it cannot hold is refused, or ignored if that is asked.

The engine, llguidance, reads most of JSON Schema, but not all it reads is what it then enforces: see the modules that
this one uses. The rewritten schema has only keywords that are enforced, those that belong together beside each other,
all that references lead to in `$defs`, and no part that has no value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from graphlib import CycleError, TopologicalSorter
from typing import Any

from core.grammar import number_bounds
from core.grammar.arrangements import MAX_ARRANGEMENTS, arrangements, listed_values
from core.grammar.disjointness import TYPES, Disjointness, Rewritten
from core.grammar.faults import Path, SchemaFault
from core.grammar.finiteness import Finiteness
from core.grammar.keywords import (
    APPLICATORS,
    COMPANIONS,
    FORMATS,
    IDLE,
    KEYWORDS,
    KINDS,
    OF_FORMATS,
    OLD_DRAFTS,
    UNENFORCEABLE,
)
from core.grammar.patterns import engine_pattern
from core.grammar.references import Place, References, entered, subschemas

MAX_DEPTH = 48  # schemas within each other; the engine reads JSON that is 128 deep
MAX_REACH = 400  # schemas within each other, also by references
MAX_COUNT = 100_000  # characters, items or properties that can be required
_UNBOUNDED = 1_000_000_000  # no answer has more characters, items or properties

TOO_DEEP = f"schemas may be nested {MAX_DEPTH} deep; put inner ones into '$defs', and refer to them"
_NO_UNION = (
    "'oneOf' can only be held where no two of its schemas have a value in common; write 'anyOf', or give each a "
    "required property with a 'const' of its own"
)
_NO_ARRANGEMENT = (
    f"'uniqueItems' can only be held for items of few values, in {MAX_ARRANGEMENTS} orders at most; list the values in "
    "'enum' and lower 'maxItems', or leave it out"
)
_ENDLESS = (
    "a value of this schema would never end, since it needs another one within; leave a property out of 'required', "
    "allow an empty list, or add another case to 'anyOf'"
)
_NO_NUMBER = (
    "a number has a value that no grammar can hold; it must be a float exactly, and below 2^63; write it as a text"
)
_CIRCLE = (
    "this schema refers to itself, with no property or item in between, so it says nothing; write what is valid, or "
    "refer to another schema"
)
_TOO_FAR = (
    f"more than {MAX_REACH} schemas lie within each other here, by references; leave some out, or write inner ones "
    "without references"
)
_BOTH_COUNTS = "'minProperties' and 'maxProperties' cannot be enforced here; write 'required', or cases in 'anyOf'"

Schema = dict[str, Any]


class RewrittenSchema:
    """The schema that a client sent, for the engine. Raises `SchemaFault` for one that cannot be used.

    Unless `strict`, keywords that cannot be enforced are ignored.
    """

    def __init__(self, whole: Mapping[str, Any], strict: bool) -> None:
        self._strict = strict
        self._references = References(whole)
        self._old = any(draft in str(whole.get("$schema", "")) for draft in OLD_DRAFTS)
        self._definitions: dict[str, Rewritten] = {}
        self._names: dict[Path, str] = {}
        self._pending: list[tuple[str, Place]] = []
        self._places: dict[int, tuple[Path, Schema]] = {}  # of the rewritten schemas, by identity, and themselves
        self._reasons: dict[int, str] = {}  # why some have no value
        self._unions: list[tuple[list[Rewritten], Path]] = []
        self._lists: list[tuple[Schema, Path]] = []
        self._multiples: set[Fraction] = set()
        self._controls: Path | None = None  # where a text has characters that can only be written as numbers
        self._open = False  # whether some object has named properties and others
        root = self._rewritten(self._references.root, 0)
        while self._pending:
            name, place = self._pending.pop()
            self._definitions[name] = self._rewritten(place, 0)
        self._settle()
        self.root, self.definitions = self._without_endless(root)

    @property
    def spelled_characters(self) -> bool:
        r"""Whether control characters may be written, such as \\u001b.

        If so, the engine takes `\\u0061` for another name than `a`, so it must not where names are taken.
        """
        return not self._open

    def whole(self) -> Schema:
        """The schema with all that its references lead to."""
        return self.with_definitions(self.root)

    def with_definitions(self, part: Rewritten) -> Schema:
        """A part of it that can stand alone."""
        alone = dict(part) if isinstance(part, Mapping) else {} if part else {"enum": []}
        return {**alone, "$defs": self.definitions} if self.definitions else alone

    def path(self, part: Rewritten) -> Path:
        """Where in the client's schema a part of this one comes from."""
        return self._places[id(part)][0] if id(part) in self._places else ()

    # ---- a schema

    def _rewritten(self, place: Place, depth: int) -> Rewritten:
        given, path = place.schema, place.path
        if isinstance(given, bool):
            return given or self._impossible("nothing is valid for 'false'", path)
        if not isinstance(given, dict):
            raise SchemaFault(path, "a schema must be an object, true or false")
        if depth > MAX_DEPTH:
            raise SchemaFault((), TOO_DEEP)
        place = entered(place)
        types = _types(given, path)
        rewritten: Schema = {} if "type" not in given else {"type": types}
        given = self._enforceable(given, types, path)
        where = _place_of_keywords(given)
        for key in given:
            if key == where:
                self._add_own_keywords(rewritten, given, types, place, depth)
            elif key in APPLICATORS:
                self._apply(key, given[key], rewritten, place, depth)
        return self._noted(self._simple(rewritten), path)

    def _noted(self, rewritten: Schema, path: Path) -> Schema:
        self._places[id(rewritten)] = (path, rewritten)
        return rewritten

    def _impossible(self, reason: str, path: Path) -> Schema:
        nothing: Schema = {"enum": []}
        self._reasons[id(nothing)] = reason
        return self._noted(nothing, path)

    def _simple(self, rewritten: Schema) -> Schema:
        """Restrictions that were added to it stand in `allOf`, unless one of them says that it has no value."""
        nothing = [part for part in rewritten.get("allOf", ()) if id(part) in self._reasons]
        return nothing[0] if nothing else rewritten

    def _enforceable(self, given: Mapping[str, Any], types: Sequence[str], path: Path) -> Mapping[str, Any]:
        """The keywords that are known, without those that say nothing here or cannot be enforced."""
        for keyword, instead in UNENFORCEABLE.items():
            if keyword in given and self._matters(keyword, given, types):
                self._refuse_if_strict(path, f"'{keyword}' cannot be enforced; {instead}, or leave it out")
        return {key: value for key, value in given.items() if key not in UNENFORCEABLE}

    def _matters(self, keyword: str, given: Mapping[str, Any], types: Sequence[str]) -> bool:
        if given[keyword] in IDLE.get(keyword, ()) or KINDS.get(keyword, types[0]) not in types:
            return False
        return keyword not in COMPANIONS or any(other in given for other in COMPANIONS[keyword].split("|"))

    def _refuse_if_strict(self, path: Path, complaint: str) -> None:
        if self._strict:
            raise SchemaFault(path, complaint)

    def _inner(self, place: Place, depth: int, *steps: str | int) -> Rewritten:
        inner = place.schema
        for step in steps:
            inner = inner[step]
        return self._rewritten(Place(inner, place.path + steps, place.base), depth + 1)

    # ---- keywords that apply other schemas, or list values

    def _apply(self, key: str, value: Any, rewritten: Schema, place: Place, depth: int) -> None:
        path = place.path
        if key == "$ref":
            self._add(rewritten, self._reference(value, place), key)
        elif key in ("const", "enum"):
            values = [value] if key == "const" else value
            if not isinstance(values, list) or not values:
                raise SchemaFault(path, "'enum' must be a list of values")
            for one in values:
                self._check_value(one, path, 0)
            self._add(rewritten, {key: value}, key)
        else:
            self._check_list(key, value, path)
            parts = [self._inner(place, depth, key, number) for number in range(len(value))]
            if key == "oneOf":
                self._unions.append((parts, path))
                key = "anyOf"
            self._add(rewritten, {key: parts}, key)

    @staticmethod
    def _add(rewritten: Schema, part: Schema, key: str) -> None:
        """Restrict it by one more schema of a keyword."""
        if key == "allOf" and not part[key]:
            return
        if key == "allOf":
            rewritten.setdefault("allOf", []).extend(part["allOf"])
        elif key in rewritten:
            rewritten.setdefault("allOf", []).append(part)
        else:
            rewritten |= part

    def _reference(self, value: Any, place: Place) -> Schema:
        if not isinstance(value, str):
            raise SchemaFault(place.path, "'$ref' must be a text such as '#/$defs/name'")
        target = self._references.target(value, place.base, place.path)
        if target.path not in self._names:
            self._names[target.path] = name = str(len(self._names))
            self._definitions[name] = True  # until it is rewritten
            self._pending.append((name, target))
        return {"$ref": f"#/$defs/{self._names[target.path]}"}

    @staticmethod
    def _check_list(key: str, value: Any, path: Path) -> None:
        if not isinstance(value, list) or not value:
            raise SchemaFault(path, f"'{key}' must be a list of schemas, with one at least")

    def _check_value(self, value: Any, path: Path, depth: int) -> None:
        """Refuse a constant that the engine would change."""
        if depth > MAX_DEPTH:
            raise SchemaFault(path, f"a value that no grammar can hold: values may be nested {MAX_DEPTH} deep")
        match value:
            case bool() | None:
                return
            case int() | float():
                if not number_bounds.is_exact(value):
                    raise SchemaFault(path, _NO_NUMBER)
            case str():
                self._check_text(value, path)
            case list():
                for inner in value:
                    self._check_value(inner, path, depth + 1)
            case dict():
                for name, inner in value.items():
                    self._check_text(name, path)
                    self._check_value(inner, path, depth + 1)

    def _check_text(self, text: str, path: Path) -> str:
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise SchemaFault(path, "a text with half a surrogate pair is a value that no grammar can hold")
        if self._controls is None and any(_is_control(character) for character in text):
            self._controls = path
        return text

    # ---- the keywords of numbers, strings, arrays and objects

    def _add_own_keywords(
        self, rewritten: Schema, given: Mapping[str, Any], types: Sequence[str], place: Place, depth: int
    ) -> None:
        makers: dict[str, Callable[[], Iterator[Rewritten]]] = {
            "number": lambda: self._number(given, types, place.path, rewritten),
            "string": lambda: self._string(given, place.path, rewritten),
            "array": lambda: self._array(given, place, depth, rewritten),
            "object": lambda: self._object(given, place, depth, rewritten),
        }
        for kind, make in makers.items():
            if any(keyword in given for keyword in KEYWORDS[kind]) and _has(types, kind):
                restrictions = self._of_kind(make, kind, types, place.path)
                self._add(rewritten, {"allOf": restrictions}, "allOf")

    def _of_kind(
        self, make: Callable[[], Iterator[Rewritten]], kind: str, types: Sequence[str], path: Path
    ) -> list[Rewritten]:
        """Restrictions of values of one type, which say nothing about those of others."""
        others = [name for name in types if name != kind and not (kind == "number" and name == "integer")]
        if not others:
            return list(make())
        other: Schema = {"type": others}
        return [self._noted({"anyOf": [other, restriction]}, path) for restriction in make()]

    def _number(
        self, given: Mapping[str, Any], types: Sequence[str], path: Path, rewritten: Schema
    ) -> Iterator[Rewritten]:
        integer = "number" not in types
        try:
            bounds = number_bounds.bounds_of(given, integer)
            multiple = number_bounds.multiple_of(given["multipleOf"], integer) if "multipleOf" in given else None
        except ValueError as error:
            raise SchemaFault(path, str(error)) from error
        listed = None if multiple is None else number_bounds.listed_multiples(multiple, bounds)
        if multiple is not None and listed is None:
            bounds = self._with_multiple(multiple, bounds, path, rewritten)
        if bounds.empty:
            noun = "whole number" if integer else "number"
            yield self._impossible(f"no {noun} lies within the bounds, from 'minimum' to 'maximum'", path)
        elif listed == []:
            yield self._impossible("no multiple of 'multipleOf' lies between 'minimum' and 'maximum'", path)
        elif listed is not None:
            for one in listed:
                self._check_value(one, path, 0)
            yield self._noted({"enum": listed}, path)
        elif not integer and (shorter := number_bounds.shorter_decimals(bounds)):
            yield self._noted({"anyOf": [{"type": ["number"], **bounds.keywords}, {"enum": shorter}]}, path)
        else:
            rewritten |= bounds.keywords

    def _with_multiple(
        self, multiple: Fraction, bounds: number_bounds.Bounds, path: Path, rewritten: Schema
    ) -> number_bounds.Bounds:
        """Write what the numbers are multiples of, if the engine can hold it; the bounds within which it can."""
        try:
            written = number_bounds.written_multiple(multiple)
            bounds = number_bounds.within_digits(multiple, bounds)
        except ValueError as error:
            self._refuse_if_strict(path, str(error))
            return bounds
        self._multiples.add(multiple)
        if not number_bounds.common_multiple_fits(self._multiples):
            message = "the values of 'multipleOf' have too large a common multiple; leave this one out"
            self._refuse_if_strict(path, message)
            return bounds
        rewritten["multipleOf"] = written
        return bounds

    def _string(self, given: Mapping[str, Any], path: Path, rewritten: Schema) -> Iterator[Rewritten]:
        least, most = _counts(given, "minLength", "maxLength", path, rewritten)
        if least > most:
            yield self._impossible(f"no text has {least} characters at least and {most} at most", path)
        if "pattern" in given:
            rewritten["pattern"] = self._pattern(given["pattern"], "'pattern'", path)
        if "format" not in given:
            return
        form = given["format"]
        if not isinstance(form, str):
            raise SchemaFault(path, "'format' must be a text")
        if form in FORMATS:
            rewritten["format"] = form
            if form in OF_FORMATS:
                yield self._noted({"type": ["string"], **OF_FORMATS[form]}, path)
        else:
            known = ", ".join(sorted(FORMATS))
            self._refuse_if_strict(
                path, f"the format '{form:.40}' cannot be enforced; write one of {known}, or a 'pattern'"
            )

    def _pattern(self, pattern: Any, noun: str, path: Path) -> str:
        if not isinstance(pattern, str):
            raise SchemaFault(path, f"{noun} must be a text")
        try:
            return engine_pattern(self._check_text(pattern, path))
        except ValueError as error:
            raise SchemaFault(path, f"{noun} '{pattern:.60}': {error}") from error

    def _array(self, given: Mapping[str, Any], place: Place, depth: int, rewritten: Schema) -> Iterator[Rewritten]:
        path = place.path
        least, most = _counts(given, "minItems", "maxItems", path, rewritten)
        if least > most:
            yield self._impossible(f"no list has {least} items at least and {most} at most", path)
        in_turn = "items" if isinstance(given.get("items"), list) else "" if self._old else "prefixItems"
        rest = "additionalItems" if in_turn == "items" else "items"
        if in_turn in given:
            self._check_list(in_turn, given[in_turn], path)
            numbers = range(len(given[in_turn]))
            rewritten["prefixItems"] = [self._inner(place, depth, in_turn, number) for number in numbers]
        if rest in given:
            rewritten["items"] = self._inner(place, depth, rest)
        if not isinstance(unique := given.get("uniqueItems", False), bool):
            raise SchemaFault(path, "'uniqueItems' must be true or false")
        if unique and most > 1:
            items = True if "prefixItems" in rewritten else rewritten.get("items", True)
            arranged: Schema = {"items": items, "minItems": least, "maxItems": most}
            self._lists.append((arranged, path))
            yield self._noted(arranged, path)

    def _object(self, given: Mapping[str, Any], place: Place, depth: int, rewritten: Schema) -> Iterator[Rewritten]:
        path = place.path
        for key in ("properties", "patternProperties"):
            if key not in given:
                continue
            if not isinstance(given[key], dict):
                raise SchemaFault(path, f"'{key}' must be an object of schemas")
            named = {name: self._inner(place, depth, key, name) for name in given[key]}
            noun = "a name in 'patternProperties'"
            rewritten[key] = {
                self._check_text(name, path) if key == "properties" else self._pattern(name, noun, path): inner
                for name, inner in named.items()
            }
        if "additionalProperties" in given:
            rewritten["additionalProperties"] = self._additional(given, place, depth)
        if required := self._required(given, path):
            rewritten["required"] = required
        self._open |= _has_names(rewritten) and rewritten.get("additionalProperties") is not False
        yield from self._count_properties(given, path, rewritten)

    def _additional(self, given: Mapping[str, Any], place: Place, depth: int) -> Rewritten:
        return given["additionalProperties"] is not False and self._inner(place, depth, "additionalProperties")

    def _required(self, given: Mapping[str, Any], path: Path) -> list[str]:
        names = given.get("required", [])
        if isinstance(names, bool):  # of draft 3, where it stands in the property
            return []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise SchemaFault(path, "'required' must be a list of names")
        return list(dict.fromkeys(self._check_text(name, path) for name in names))

    def _count_properties(self, given: Mapping[str, Any], path: Path, rewritten: Schema) -> Iterator[Rewritten]:
        """The bounds of their number, as far as the engine can keep them.

        A name may be written twice where it is not in `properties`, so two of these cannot be asked for.
        """
        counts: Schema = {}
        least, most = _counts(given, "minProperties", "maxProperties", path, counts)
        required = rewritten.get("required", ())
        optional = len(rewritten.get("properties", {}).keys() - set(required))
        closed = rewritten.get("additionalProperties") is False and "patternProperties" not in rewritten
        if max(least, len(required)) > most:
            yield self._impossible(
                f"no object has {max(least, len(required))} properties at least and {most} at most", path
            )
            return
        more, room = least - len(required), most - len(required)
        if more <= 0:
            counts.pop("minProperties", None)
        if closed and room >= optional:
            counts.pop("maxProperties", None)
        if closed and more > optional:
            yield self._impossible(f"'minProperties' asks for {least} properties, and there are fewer", path)
            return
        if counts and not _kept_by_engine(counts, more, room, optional, closed):
            self._refuse_if_strict(path, _BOTH_COUNTS)
            counts = {} if optional else counts | {"minProperties": len(required) + 1}
        rewritten |= counts

    # ---- when everything is rewritten

    def _settle(self) -> None:
        """Look at unions and lists of different items, which takes all schemas that are referred to."""
        for arranged, path in self._lists:
            self._arrange(arranged, path)
        for options, path in self._unions:
            if self._strict and not Disjointness(self._definitions).of_all(options):
                raise SchemaFault(path, _NO_UNION)

    def _arrange(self, arranged: Schema, path: Path) -> None:
        items, least, most = (arranged.pop(key) for key in ("items", "minItems", "maxItems"))
        values = listed_values(items, self._definitions)
        lists = None if values is None else arrangements(values, least, most)
        if lists is None:
            self._refuse_if_strict(path, _NO_ARRANGEMENT)
        elif lists:
            arranged["anyOf"] = lists
        else:
            arranged["enum"] = []
            self._reasons[id(arranged)] = f"there are no {least} different items"

    def _without_endless(self, root: Rewritten) -> tuple[Rewritten, dict[str, Rewritten]]:
        self._check_controls()
        self._check_circles()
        self._check_reach(root, 0, set())
        finiteness = Finiteness(self._definitions)
        if not finiteness.ends(root):
            raise self._endless(finiteness.cause(root))
        return finiteness.prune(root), {name: finiteness.prune(part) for name, part in self._definitions.items()}

    def _check_circles(self) -> None:
        """Refuse definitions that say nothing but each other; a validator would never come to an end with them."""
        try:
            TopologicalSorter({name: _names_in_place(part) for name, part in self._definitions.items()}).prepare()
        except CycleError as error:
            raise SchemaFault(self.path(self._definitions[error.args[1][0]]), _CIRCLE) from None

    def _check_reach(self, schema: Rewritten, depth: int, reached: set[str]) -> None:
        """Refuse schemas that the engine, which reads them in this order, goes too deep into: it would crash."""
        if isinstance(schema, bool):
            return
        if depth > MAX_REACH:
            raise SchemaFault(self.path(schema), _TOO_FAR)
        if "$ref" in schema and (name := schema["$ref"].removeprefix("#/$defs/")) not in reached:
            reached.add(name)
            self._check_reach(self._definitions[name], depth + 1, reached)
        for _, inner in subschemas(schema):
            self._check_reach(inner, depth + 1, reached)

    def _check_controls(self) -> None:
        if self._open and self._controls is not None:
            message = (
                "a text with control characters is a value that no grammar can hold beside objects with further "
                "properties; write 'additionalProperties': false in those"
            )
            raise SchemaFault(self._controls, message)

    def _endless(self, way: Sequence[Rewritten]) -> SchemaFault:
        last = way[-1]
        path = next((self.path(part) for part in reversed(way) if id(part) in self._places), ())
        if id(last) in self._reasons:
            return SchemaFault(path, f"nothing is valid here: {self._reasons[id(last)]}")
        if isinstance(last, Mapping) and "required" in last and last.get("additionalProperties") is False:
            names = [name for name in last["required"] if name not in last.get("properties", {})]
            if names:
                return SchemaFault(
                    path, f"nothing is valid here: 'required' names '{names[0]:.40}', which is no property"
                )
        return SchemaFault(path, _ENDLESS)


def _types(given: Mapping[str, Any], path: Path) -> list[str]:
    names = given.get("type", list(TYPES))
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not names:
        raise SchemaFault(path, "type must be a name or a list of names")
    for name in names:
        if name not in (*TYPES, "integer"):
            raise SchemaFault(path, f"there is no type {name!s:.40}; write one of {', '.join(TYPES)} or integer")
    return [name for name in dict.fromkeys(names) if name != "integer" or "number" not in names]


def _has(types: Sequence[str], kind: str) -> bool:
    return kind in types or (kind == "number" and "integer" in types)


def _place_of_keywords(given: Mapping[str, Any]) -> str:
    """The keyword in whose place the keywords of numbers, strings, arrays and objects are written, all together."""
    own = [key for key in given if any(key in keywords for keywords in KEYWORDS.values())]
    return "properties" if "properties" in own else own[0] if own else ""


def _counts(given: Mapping[str, Any], least: str, most: str, path: Path, rewritten: Schema) -> tuple[int, int]:
    """The least and the most of something; those that bound anything are written."""
    low, high = _count(given, least, 0, path), min(_count(given, most, _UNBOUNDED, path), _UNBOUNDED)
    if low > MAX_COUNT:
        raise SchemaFault(path, f"'{least}' may be {MAX_COUNT} at most; no answer is that long")
    rewritten |= {least: low} if low else {}
    rewritten |= {most: high} if high < _UNBOUNDED else {}
    return low, high


def _names_in_place(schema: Rewritten) -> set[str]:
    """The definitions that a schema refers to for the value itself, not for a part of it."""
    if isinstance(schema, bool):
        return set()
    names = {schema["$ref"].removeprefix("#/$defs/")} if "$ref" in schema else set[str]()
    return names.union(*map(_names_in_place, [*schema.get("allOf", ()), *schema.get("anyOf", ())]))


def _count(given: Mapping[str, Any], keyword: str, otherwise: int, path: Path) -> int:
    value = given.get(keyword, otherwise)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise SchemaFault(path, f"'{keyword}' must be a whole number, 0 at least")
    return value


def _kept_by_engine(counts: Mapping[str, int], more: int, room: int, optional: int, closed: bool) -> bool:
    if not optional:
        return more <= 1
    return closed and more <= 1 and (room == 1 if "maxProperties" in counts else True)


def _has_names(rewritten: Mapping[str, Any]) -> bool:
    return any(rewritten.get(key) for key in ("properties", "patternProperties", "required"))


def _is_control(character: str) -> bool:
    return (character < " " and character not in "\b\t\n\f\r") or character == "\x7f"
