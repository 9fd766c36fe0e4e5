"""Fields that hold an answer to a grammar: OpenAI's `response_format`, and vLLM's for the same and more."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import pydantic_core
from pydantic import Discriminator, Field, Tag, model_validator
from starlette.concurrency import run_in_threadpool

from core.errors import InvalidRequest
from core.grammar.building import of_choice, of_json_object, of_json_schema, of_lark, of_regex
from serve_app.http.schema.fields import Fields, Unsupported, field_error
from serve_app.http.schema.values import FAIL_FAST, TEXT, at_most

INLINE_CHARACTERS = 2048  # of a grammar; longer ones are compiled in a thread

MAX_CHOICES = 1024

_OBJECT = "<object>"


def _kind(value: Any) -> str | None:
    return TEXT if isinstance(value, str) else _OBJECT if isinstance(value, dict) else None


SchemaOrText = Annotated[
    Annotated[dict[str, Any], Tag(_OBJECT)] | Annotated[str, Tag(TEXT)],
    Discriminator(
        _kind, custom_error_type="kind", custom_error_message="must be a JSON schema, as an object or as text"
    ),
]
Choices = Annotated[list[str], FAIL_FAST, at_most(MAX_CHOICES)]


class JsonSchemaFormat(Fields):
    ignored = frozenset({"description"})

    name: str = Field("answer", description="Any; no part of the answer depends on it.")
    schema_: dict[str, Any] = Field({"type": "object"}, alias="schema", description="A JSON schema.")
    strict: bool = Field(
        False, description="True: a keyword that cannot be enforced is an error; otherwise it is ignored."
    )


class ResponseFormat(Fields):
    type: Literal["text", "json_object", "json_schema"] = Field(description="What the answer is.")
    json_schema: JsonSchemaFormat | None = Field(None, description="Only with the type `json_schema`.")

    @model_validator(mode="after")
    def _schema_if_asked(self) -> ResponseFormat:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise field_error("json_schema", "json_schema goes with the type json_schema, and with no other")
        return self


class StructuredOutputs(Fields):
    """vLLM's `structured_outputs`."""

    ignored = frozenset({"disable_fallback", "disable_any_whitespace"})
    unsupported: ClassVar[Unsupported] = {"disable_additional_properties": (False,), "structural_tag": ()}

    json_: SchemaOrText | None = Field(None, alias="json", description="A JSON schema, also as text.")
    json_object: bool = Field(False, description="True: the answer is any JSON object.")
    regex: str | None = Field(None, description="The whole answer matches it; the syntax is that of Rust's regex.")
    choice: Choices | None = Field(None, description="The answer is one of these.")
    grammar: str | None = Field(None, description="A grammar in Lark or GBNF.")
    whitespace_pattern: str | None = Field(
        None, description="What may stand between tokens of JSON, as a regular expression."
    )


class GrammarField(NamedTuple):
    """A field that asks for a grammar; `build` makes it, and blames the field of this name."""

    name: str
    build: Callable[[], str]


class StructuredFields(Fields):
    """At most one of these asks for a grammar."""

    response_format: ResponseFormat | None = Field(None, description="JSON as an answer, of a schema if one is given.")
    structured_outputs: StructuredOutputs | None = Field(None, description="The same, and more, as in vLLM.")
    guided_json: SchemaOrText | None = Field(None, description="As `structured_outputs.json`.")
    guided_regex: str | None = Field(None, description="As `structured_outputs.regex`.")
    guided_choice: Choices | None = Field(None, description="As `structured_outputs.choice`.")
    guided_grammar: str | None = Field(None, description="As `structured_outputs.grammar`.")
    guided_whitespace_pattern: str | None = Field(None, description="As `structured_outputs.whitespace_pattern`.")

    async def grammar(self) -> str:
        """The grammar of the answer; empty for free text. Raises `InvalidRequest`, naming the path at fault."""
        size = sum(len(str(getattr(self, name))) for name in StructuredFields.model_fields)
        return self._grammar() if size < INLINE_CHARACTERS else await run_in_threadpool(self._grammar)

    def _grammar(self) -> str:
        return next((field.build() for field in self._grammar_fields()), "")

    @property
    def grammar_field(self) -> str:
        """The field that holds the answer to a grammar, also if that is one of calls."""
        return next((field.name for field in self._grammar_fields()), "tools")

    def _grammar_fields(self) -> list[GrammarField]:
        guided = StructuredOutputs(
            json=self.guided_json,
            regex=self.guided_regex,
            choice=self.guided_choice,
            grammar=self.guided_grammar,
            whitespace_pattern=self.guided_whitespace_pattern,
        )
        fields = _of_outputs(guided, "guided_")
        if self.structured_outputs is not None:
            fields += _of_outputs(self.structured_outputs, "structured_outputs.")
        if self.response_format is not None:
            fields += _of_format(self.response_format)
        return fields

    @model_validator(mode="after")
    def _one_grammar(self) -> StructuredFields:
        names = [field.name for field in self._grammar_fields()]
        if len(names) > 1:
            raise field_error(names[1].partition(".")[0], f"'{names[0]}' and '{names[1]}' cannot be had together")
        return self


def _parsed(schema: dict[str, Any] | str, field: str) -> dict[str, Any]:
    """The schema, read if it came as text."""
    if isinstance(schema, dict):
        return schema
    try:
        value = pydantic_core.from_json(schema)
    except ValueError as error:
        raise InvalidRequest(field, f"'{field}' is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRequest(field, f"'{field}' must be a JSON schema: an object")
    return value


def _of_format(form: ResponseFormat) -> list[GrammarField]:
    if (schema := form.json_schema) is not None:
        name = "response_format.json_schema.schema"
        return [GrammarField(name, lambda: of_json_schema(schema.schema_, name, strict=schema.strict))]
    name = "response_format"
    return [GrammarField(name, lambda: of_json_object(name))] if form.type == "json_object" else []


def _of_outputs(outputs: StructuredOutputs, prefix: str) -> list[GrammarField]:
    def whitespace() -> str | None:
        if (pattern := outputs.whitespace_pattern) is not None:
            of_regex(pattern, f"{prefix}whitespace_pattern")
        return pattern

    def of_schema(schema: dict[str, Any] | str, name: str) -> str:
        return of_json_schema(_parsed(schema, name), name, whitespace=whitespace())

    builds: dict[str, tuple[Any, Callable[[Any, str], str]]] = {
        "json": (outputs.json_, of_schema),
        "json_object": (outputs.json_object or None, lambda _, name: of_json_object(name, whitespace())),
        "regex": (outputs.regex, of_regex),
        "choice": (outputs.choice, of_choice),
        "grammar": (outputs.grammar, of_lark),
    }
    return [
        GrammarField(prefix + name, partial(build, value, prefix + name))
        for name, (value, build) in builds.items()
        if value is not None
    ]
