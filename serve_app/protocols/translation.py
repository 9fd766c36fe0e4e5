"""Bodies of other protocols as chat requests; what is wrong with those is told in the client's own field names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pydantic import BeforeValidator, Discriminator, ValidationError
from pydantic_core import PydanticCustomError

from core.errors import InvalidRequest
from serve_app.http.errors import first_fault
from serve_app.http.schema.fields import shortened
from serve_app.http.schema.requests import ChatRequest

_IDENTIFIER = re.compile(r"[a-z]+_[a-z_]+")


class Names:
    """The client's names of the fields of a chat request, by path: {"messages[2].content": "input[1].content"}.

    A path without a name of its own has that of the longest path that it begins with.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = dict(names)
        self._longest_first = sorted(names, key=len, reverse=True)

    def of(self, path: str) -> str:
        for chat in self._longest_first:
            if path == chat or path.startswith((chat + ".", chat + "[")):
                return self._names[chat] + path[len(chat) :]
        return path

    def renamed(self, error: InvalidRequest) -> InvalidRequest:
        """The same error, told of the client's field."""
        if error.field is None:
            return error
        field = self.of(error.field)
        message = str(error).replace(f"'{error.field}", f"'{field}")
        message = _IDENTIFIER.sub(lambda found: self._names.get(found[0], found[0]), message)
        return InvalidRequest(field, message, status=error.status, code=error.code)

    @contextmanager
    def clients(self) -> Iterator[None]:
        """Errors of a chat request that are raised within are raised in the client's names."""
        try:
            yield
        except InvalidRequest as error:
            raise self.renamed(error) from error


def chat_request(fields: dict[str, Any]) -> ChatRequest:
    """The chat request of these fields; raises `InvalidRequest` where that of HTTP is answered with a 400."""
    try:
        return ChatRequest.model_validate(fields)
    except ValidationError as error:
        raise first_fault([{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors()[:1]]) from error


def by_type(default: str | None = None) -> Discriminator:
    """Tells the members of a union apart by their `type`; their tags are types in angle brackets."""
    return Discriminator(lambda value: f"<{_type_of(value, default)}>")


def known_types(noun: str, *types: str, default: str | None = None) -> BeforeValidator:
    """Refuse, by its name, a `type` that is none of `types`; `noun` is the plural of what has it."""

    def check(value: Any) -> Any:
        if not isinstance(value, dict):
            raise PydanticCustomError("kind", "must be an object")
        given = _type_of(value, default)
        if given not in types:
            shown = shortened(given) if isinstance(given, str) else "..."
            message = f"{noun} of type '{shown}' are not supported; this service takes {', '.join(types)}"
            raise PydanticCustomError("kind", "{message}", {"message": message})
        return value

    return BeforeValidator(check)


def _type_of(value: Any, default: str | None) -> Any:
    given = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return default if given is None else given
