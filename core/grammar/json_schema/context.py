"""What the rewriting of one schema shares: how deep it is, what is noted on the way, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from core.grammar.json_schema.number_bounds import is_exact
from core.grammar.json_schema.references import Place
from core.grammar.json_schema.schema import MAX_DEPTH, Path, Rewritten, Schema, SchemaFault, reference_to

MAX_COUNT = 100_000  # characters, items or properties that can be required
_UNBOUNDED = 1_000_000_000  # no answer has more characters, items or properties
_NO_NUMBER = (
    "a number has a value that no grammar can hold; it must be a float exactly, and below 2^63; write it as a text"
)


@dataclass(frozen=True)
class Part:
    """A schema that is being rewritten: its keywords that can be enforced, and what has been `rewritten` of them."""

    keywords: Mapping[str, Any]
    types: Sequence[str]
    place: Place
    depth: int
    rewritten: Schema

    @property
    def path(self) -> Path:
        return self.place.path

    def _count(self, keyword: str, default: int) -> int:
        """The whole number of a keyword."""
        value = self.keywords.get(keyword, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise SchemaFault(self.path, f"'{keyword}' must be a whole number, 0 at least")
        return value

    def counts(self, lower: str, upper: str) -> tuple[int, int, Schema]:
        """The bounds of a count by their keywords, and the keywords without those that bound nothing."""
        low, high = self._count(lower, 0), min(self._count(upper, _UNBOUNDED), _UNBOUNDED)
        if low > MAX_COUNT:
            raise SchemaFault(self.path, f"'{lower}' may be {MAX_COUNT} at most; no answer is that long")
        return low, high, ({lower: low} if low else {}) | ({upper: high} if high < _UNBOUNDED else {})


class Context:
    """One for each schema that a client sends. Unless `strict`, keywords that cannot be enforced are ignored.

    `rewrite` rewrites a schema so deep within others. An `old_draft` names lists of items otherwise.
    """

    def __init__(self, strict: bool, old_draft: bool, rewrite: Callable[[Place, int], Rewritten]) -> None:
        self.strict = strict
        self.old_draft = old_draft
        self._rewrite = rewrite
        self.definitions: dict[str, Rewritten] = {}
        self.pending: list[tuple[str, Place]] = []  # definitions that are not rewritten yet
        self._names: dict[Path, str] = {}
        self._places: dict[int, tuple[Path, Schema]] = {}  # of the rewritten schemas, by identity, and themselves
        self._reasons: dict[int, str] = {}  # why some have no value
        # What is looked at once all is rewritten:
        self.unions: list[tuple[list[Rewritten], Path]] = []  # of which one must hold
        self.unique_lists: list[tuple[Schema, Path]] = []
        self.multiples: set[Fraction] = set()
        self.controls: Path | None = None  # where a text has characters that can only be written as numbers
        self.has_open_objects = False  # some object has named properties and others

    def inner(self, part: Part, *steps: str | int) -> Rewritten:
        """The schema that these steps lead to, rewritten."""
        schema = part.place.schema
        for step in steps:
            schema = schema[step]
        return self._rewrite(Place(schema, part.path + steps, part.place.base), part.depth + 1)

    def inner_list(self, part: Part, keyword: str) -> list[Rewritten]:
        """The schemas that a keyword lists, rewritten."""
        schemas = part.keywords[keyword]
        if not isinstance(schemas, list) or not schemas:
            raise SchemaFault(part.path, f"'{keyword}' must be a list of schemas, with one at least")
        return [self.inner(part, keyword, number) for number in range(len(schemas))]

    def reference(self, target: Place) -> str:
        """The `$ref` of the schema at a place, which becomes a definition."""
        if target.path not in self._names:
            self._names[target.path] = name = str(len(self._names))
            self.definitions[name] = True  # until it is rewritten
            self.pending.append((name, target))
        return reference_to(self._names[target.path])

    def refuse_if_strict(self, path: Path, complaint: str) -> None:
        if self.strict:
            raise SchemaFault(path, complaint)

    def noted(self, rewritten: Schema, path: Path) -> Schema:
        """`rewritten` itself, which comes from `path`."""
        self._places[id(rewritten)] = (path, rewritten)
        return rewritten

    def impossible(self, reason: str, path: Path) -> Schema:
        """A schema without a value."""
        return self.noted(self.explained({"enum": []}, reason), path)

    def explained(self, nothing: Schema, reason: str) -> Schema:
        self._reasons[id(nothing)] = reason
        return nothing

    def reason(self, rewritten: Rewritten) -> str | None:
        """Why a schema has no value, if that is known."""
        return self._reasons.get(id(rewritten))

    def path(self, rewritten: Rewritten) -> Path | None:
        """Where in the client's schema a rewritten one comes from."""
        return self._places[id(rewritten)][0] if id(rewritten) in self._places else None

    def check_value(self, value: Any, path: Path, depth: int = 0) -> None:
        """Refuse a constant that the engine would change."""
        if depth > MAX_DEPTH:
            raise SchemaFault(path, f"a value that no grammar can hold: values may be nested {MAX_DEPTH} deep")
        match value:
            case bool() | None:
                return
            case int() | float():
                if not is_exact(value):
                    raise SchemaFault(path, _NO_NUMBER)
            case str():
                self.checked_text(value, path)
            case list():
                for inner in value:
                    self.check_value(inner, path, depth + 1)
            case dict():
                for name, inner in value.items():
                    self.checked_text(name, path)
                    self.check_value(inner, path, depth + 1)

    def checked_text(self, text: str, path: Path) -> str:
        """`text` itself, a name or a value or a pattern."""
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise SchemaFault(path, "a text with half a surrogate pair is a value that no grammar can hold")
        if self.controls is None and any(_is_control(character) for character in text):
            self.controls = path
        return text


def _is_control(character: str) -> bool:
    return (character < " " and character not in "\b\t\n\f\r") or character == "\x7f"
