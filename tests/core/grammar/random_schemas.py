"""Random JSON schemas of the kinds that a grammar engine gets wrong; the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.core.grammar.corpus import Schema

DRAFT_4, DRAFT_7 = "http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#"
NUMBERS = (0, 1, -1, 0.5, -0.5, 2, 1.5, -1.5, 3, 9, 10, 99, 100, 0.1, 0.3, 0.25, 12.75, -7, 1e-7, 1e6, 2**53, -(2**53))
FLOATS = (0.30000000000000004, 0.9999999999999999, 1.0000000000000002, 123456.78901234567, 1e17, 5e-11)
MULTIPLES = (1, 2, 3, 7, 0.5, 0.25, 0.1, 0.07, 1.5, 12, 3600)
NAMES = ("a", "b", "kind", "x y", 'say "hi"', "a/b", "tab\t", "größe", "🙂", "a1", "a2", "")
TEXTS = ("a", "b", "cat", "dog", "", "é🙂", "<|im_end|>", 'q"', "\\", "a1")
PATTERNS = (
    *(
        r"^\d{2,3}$",
        r"^[a-z]+$",
        "b",
        "^a",
        "c$",
        r"^\S+$",
        r"^[^\s,]{1,4}$",
        r"^\W$",
        r"^.{2}$",
        "^(ab|cd)?$",
        r"^\D\w$",
    ),
    *(
        r"^[A-Z]{3}-\d{4}$",
        r"^(\w+)@(\w+)\.(com|org)$",
        "^a|b$",
        r"^[\w.-]+$",
        r"^\/[a&&b]$",
        r"^[[\]]$",
        "^x{2}{$",
        "^[ -~]*$",
    ),
)
FORMATS = ("date", "time", "date-time", "uuid", "ipv4", "ipv6", "email", "hostname", "uri", "duration")


class RandomSchemas:
    """Draws schemas from `random`; most can be enforced, some contradict themselves."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._defined: list[str] = []
        self._old = False

    def draw(self) -> Schema:
        """A whole schema, with definitions that may need each other."""
        self._old = self._chance(0.2)
        self._defined = [f"d{number}" for number in range(self._random.choice((0, 0, 1, 2)))]
        defined = {name: self._schema(2) for name in self._defined}
        root = self._schema(3)
        where = {"$schema": self._random.choice((DRAFT_4, DRAFT_7))} if self._old else {}
        if where:
            written = _of_draft_4 if where["$schema"] == DRAFT_4 else _of_draft_7
            root, defined = (written(one) for one in (root, defined))
        return {**where, **root, **({"$defs": defined} if defined else {})}

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _some(self, choices: tuple[Any, ...], most: int) -> list[Any]:
        return self._random.sample(choices, self._random.randint(1, min(most, len(choices))))

    def _schema(self, depth: int) -> Schema:
        simple: list[Callable[[int], Schema]] = [self._number, self._number, self._text, self._values]
        deep = [self._object, self._object, self._list, self._union, self._tagged, self._merged, self._reference]
        return self._random.choice([*simple, *(deep if depth else [])])(depth - 1)

    def _number(self, _: int) -> Schema:
        schema: Schema = {"type": self._random.choice(("integer", "number", "number"))}
        for least, most in (("minimum", "maximum"), ("exclusiveMinimum", "exclusiveMaximum")):
            low, high = sorted(self._random.choices(NUMBERS + FLOATS, k=2))
            schema |= {least: low} if self._chance(0.4) else {}
            schema |= {most: high} if self._chance(0.4) else {}
        for least, most in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            if self._old and most in schema:
                schema[most] = self._chance(0.7)
                schema.setdefault(least, self._random.choice(NUMBERS))
        if self._chance(0.2):
            schema["multipleOf"] = self._random.choice(MULTIPLES)
        return self._shuffled(schema)

    def _text(self, _: int) -> Schema:
        schema: Schema = {"type": "string"}
        if self._chance(0.4):
            schema["minLength"] = self._random.randint(0, 4)
        if self._chance(0.4):
            schema["maxLength"] = self._random.randint(0, 8)
        if self._chance(0.4):
            schema["pattern"] = self._random.choice(PATTERNS)
        elif self._chance(0.3):
            schema = {"type": "string", "format": self._random.choice(FORMATS)}
        return self._shuffled(schema)

    def _values(self, _: int) -> Schema:
        values = self._some((*NUMBERS, *FLOATS, *TEXTS, None, True, False, [1, "a"], {"a": 0.5}), 4)
        schema: Schema = {"const": values[0]} if self._chance(0.3) else {"enum": values}
        if self._chance(0.3):
            schema["type"] = self._random.choice(
                ("string", "integer", ["number", "null"], ["string", "boolean", "number"])
            )
        if self._chance(0.2):
            schema |= self._random.choice(({"minimum": 1}, {"maxLength": 1}, {"multipleOf": 0.5}, {"pattern": "a"}))
        return self._shuffled(schema)

    def _object(self, depth: int) -> Schema:
        names = self._some(NAMES, 4)
        schema: Schema = {"type": "object", "properties": {name: self._schema(depth) for name in names}}
        schema["required"] = [name for name in names if self._chance(0.5)]
        if self._chance(0.1):
            schema["required"].append("extra")
        if self._chance(0.3):
            schema["patternProperties"] = {self._random.choice(("^a", "^x_[a-z]{1,3}$", r"\d$")): self._schema(depth)}
        if self._chance(0.6):
            schema["additionalProperties"] = self._schema(depth) if self._chance(0.4) else self._chance(0.3)
        for keyword in ("minProperties", "maxProperties"):
            if self._chance(0.15):
                schema[keyword] = self._random.randint(0, 3)
        return self._shuffled(schema)

    def _list(self, depth: int) -> Schema:
        schema: Schema = {"type": "array"}
        if self._chance(0.7):
            schema["items"] = self._schema(depth)
        if self._chance(0.3):
            items = [self._schema(depth) for _ in range(self._random.randint(1, 3))]
            if self._old:
                schema |= {"items": items, "additionalItems": self._random.choice((False, self._schema(depth)))}
            else:
                schema |= {"prefixItems": items, "items": self._random.choice((False, True, self._schema(depth)))}
        if self._chance(0.6):
            schema["maxItems"] = self._random.randint(0, 3)
        if self._chance(0.4):
            schema["minItems"] = self._random.randint(0, 2)
        if self._chance(0.2):
            schema |= {"uniqueItems": True, "items": {"enum": self._some((*TEXTS, 1, 1.0, True, None), 4)}}
            schema.pop("prefixItems", None)
        return self._shuffled(schema)

    def _union(self, depth: int) -> Schema:
        key = self._random.choice(("anyOf", "anyOf", "oneOf"))
        schema: Schema = {key: [self._schema(depth) for _ in range(self._random.randint(1, 3))]}
        if self._chance(0.3):
            schema |= self._random.choice(
                ({"type": ["number", "string"]}, {"minimum": 0}, {"maxLength": 3}, {"title": "T"})
            )
        return self._shuffled(schema)

    def _tagged(self, depth: int) -> Schema:
        """A union as pydantic writes it, or of objects with a property each of their own."""
        if self._chance(0.3):
            one = {"properties": {"a": self._schema(depth)}, "required": ["a"], "additionalProperties": False}
            other = {"properties": {"b": self._schema(depth)}, "required": ["b"], "additionalProperties": False}
            return {"oneOf": [{"type": "object", **one}, {"type": "object", **other}]}
        options = []
        for name in ("cat", "dog", "owl")[: self._random.randint(2, 3)]:
            rest = {"value": self._schema(depth)}
            tag = self._random.choice(
                ({"const": name}, {"enum": [name], "type": "string"}, {"enum": [name, name + "s"]})
            )
            options.append({"type": "object", "properties": {"kind": tag, **rest}, "required": ["kind"]})
        return {"oneOf": options, "discriminator": {"propertyName": "kind"}}

    def _merged(self, depth: int) -> Schema:
        make = self._random.choice((self._number, self._text, self._object, self._list))
        whole, part = make(depth), make(depth)
        if self._chance(0.5):
            part.pop("type", None)
        return self._shuffled({**whole, "allOf": [part] if self._chance(0.6) else [part, make(depth)]})

    def _reference(self, depth: int) -> Schema:
        if not self._defined:
            return self._schema(depth)
        reference: Schema = {"$ref": f"#/$defs/{self._random.choice(self._defined)}"}
        return reference if self._old or self._chance(0.8) else {**reference, "description": "D", "maximum": 5}

    def _shuffled(self, schema: Schema) -> Schema:
        """The keywords in any order, which means nothing."""
        return dict(self._random.sample(list(schema.items()), len(schema)))


def _of_draft_4(value: Any) -> Any:
    """The same with `enum` where later drafts may have `const`."""
    if isinstance(value, list):
        return [_of_draft_4(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return {
        "enum" if key == "const" else key: [inner] if key == "const" else _of_draft_4(inner)
        for key, inner in value.items()
    }


def _of_draft_7(value: Any) -> Any:
    """The same with bounds that are numbers where draft 4 has booleans."""
    if isinstance(value, list):
        return [_of_draft_7(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    later = {key: _of_draft_7(inner) for key, inner in value.items()}
    for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(later.get(exclusive), bool) and later.pop(exclusive):
            later[exclusive] = later.pop(inclusive)
    return later
