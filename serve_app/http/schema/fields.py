"""The base of every request model: unknown and unsupported fields are refused by name before types are checked.

A null counts as absent, as in OpenAI's API.
"""

from __future__ import annotations

import difflib
import json
from functools import cache
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

Unsupported = dict[str, tuple[object, ...]]  # fields, each with the values that ask for nothing

FIELD_ERROR = "field"  # type of the errors whose context names the field at fault
NAME_SHOWN = 64  # characters of a client's string that a message repeats
NEAR = 0.8  # difflib's ratio from which a name may be a slip of the pen; `max_length` for `max_tokens` has .6


def _document_ignored(schema: dict[str, Any], model: type[BaseModel]) -> None:
    assert issubclass(model, Fields)
    for name in sorted(model.ignored):
        schema["properties"][name] = {"description": "Accepted and ignored."}


class Fields(BaseModel):
    """A JSON object with a closed set of fields.

    `ignored` fields are accepted with any value. `unsupported` are OpenAI's fields that this service does not have,
    each with the values that request nothing and are therefore accepted.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, json_schema_extra=_document_ignored)
    ignored: ClassVar[frozenset[str]] = frozenset()
    unsupported: ClassVar[Unsupported] = {}

    @classmethod
    @cache  # it is asked for every field of a body, and a body may have a hundred thousand
    def names(cls) -> dict[str, None]:
        """The fields as clients write them, in their order."""
        return dict.fromkeys(field.alias or name for name, field in cls.model_fields.items())

    @model_validator(mode="before")
    @classmethod
    def _screen(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data  # pydantic reports the type
        names = cls.names()
        for name, value in data.items():
            cls._check_name(name, value)
        return {name: whole(value) for name, value in data.items() if name in names and value is not None}

    @classmethod
    def _check_name(cls, name: str, value: object) -> None:
        names = cls.names()
        if name in names or name in cls.ignored or value is None:
            return
        if name not in cls.unsupported:
            hint = nearest(name, [*names, *cls.ignored]) or "/docs lists those of this endpoint"
            raise field_error(name, f"unknown field '{shortened(name)}'; {hint}")
        if value not in cls.unsupported[name]:
            inert = "".join(f" or send {json.dumps(inert)}" for inert in cls.unsupported[name])
            raise field_error(name, f"'{name}' is not supported; leave it out{inert}")


def whole(value: object) -> object:
    """6 for 6.0, alone or in a list: JSON has one kind of number, and some languages write all of them so."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list) and value and isinstance(value[0], float):
        return [int(entry) if isinstance(entry, float) and entry.is_integer() else entry for entry in value]
    return value


def field_error(field: str, message: str) -> PydanticCustomError:
    """A validation error about `field` of the object being checked."""
    return PydanticCustomError(FIELD_ERROR, "{message}", {"field": field, "message": message})


def nearest(word: str, words: list[str]) -> str:
    """A hint at the one of `words` that `word` may be meant for; empty if none is near."""
    near = difflib.get_close_matches(word[:NAME_SHOWN], words, n=1, cutoff=NEAR)
    return f"the nearest known one is '{near[0]}'" if near else ""


def shortened(word: str) -> str:
    """`word` cut to a length that fits a message."""
    return word if len(word) <= NAME_SHOWN else word[:NAME_SHOWN] + "..."
