"""Bodies of other protocols as chat requests; what is wrong with those is said in the client's own field names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BeforeValidator, Discriminator, ValidationError
from pydantic_core import PydanticCustomError

from core.errors import InvalidRequest
from serve_app.http.batch import Batch, chat_batch
from serve_app.http.errors import first_fault
from serve_app.http.owners import owner_of
from serve_app.http.prompts import encoded
from serve_app.http.schema.fields import shortened
from serve_app.http.schema.requests import ChatRequest
from serve_app.http.service import Service

Body = TypeVar("Body")
Message = dict[str, Any]  # of a chat request

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
        message = _IDENTIFIER.sub(lambda word: self._names.get(word[0], word[0]), message)
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


async def translated_batch(
    translate: Callable[[Body], tuple[ChatRequest, Names]],
    body: Body,
    request: Request,
    service: Service,
    *,
    lowers_max_tokens: bool = False,
) -> tuple[ChatRequest, Batch]:
    """The chat request of `body`, and what is generated for it. Raises `InvalidRequest` in the client's names."""
    chat, names = await encoded(translate, body, len(await request.body()))
    with names.clients():
        owner = owner_of(request.headers, service.owner_salt)
        batch = await chat_batch(chat, service, owner, lowers_max_tokens=lowers_max_tokens)
    return chat, replace(batch, grammar_field=names.of(batch.grammar_field))


class ChatConversation:
    """The chat messages of a body, and the client's names of what is in them."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.names: dict[str, str] = {}

    @property
    def last_path(self) -> str:
        """That of the last message."""
        return f"messages[{len(self.messages) - 1}]"

    def add(self, role: str, content: str, name: str, name_of_content: str) -> Message:
        self.messages.append({"role": role, "content": content})
        self.names |= {self.last_path: name, f"{self.last_path}.content": name_of_content}
        return self.messages[-1]

    def add_result(self, content: str, name: str, name_of_content: str, call_id: str, id_field: str) -> None:
        """What a tool returned."""
        self.add("tool", content, name, name_of_content)["tool_call_id"] = call_id
        self.names[f"{self.last_path}.tool_call_id"] = f"{name}.{id_field}"

    def add_call(self, name: str, call_id: str, function: dict[str, str], fields: Mapping[str, str]) -> None:
        """A call of the last message; `fields` are the client's names of fields of the call, by path."""
        calls = self.messages[-1].setdefault("tool_calls", [])
        path = f"{self.last_path}.tool_calls[{len(calls)}]"
        self.names |= {path: name, f"{path}.function": name}
        self.names |= {f"{path}.{chat}": f"{name}.{field}" for chat, field in fields.items()}
        calls.append({"id": call_id, "type": "function", "function": function})


def present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that the client has sent; a null counts as absent."""
    return {name: value for name, value in fields.items() if value is not None}


def response_format(form: dict[str, Any] | None) -> dict[str, Any] | None:
    """That of a chat request, which has an object for the schema; here its fields lie beside the type."""
    if form is None or form.get("type") != "json_schema":
        return form
    return {"type": "json_schema", "json_schema": {name: value for name, value in form.items() if name != "type"}}


def by_type(default: str | None = None) -> Discriminator:
    """Tells the members of a union apart by their `type`; their tags are types in angle brackets."""
    return Discriminator(lambda value: f"<{_type_of(value, default)}>")


def known_types(noun: str, *types: str, default: str | None = None) -> BeforeValidator:
    """Refuse, by its name, a `type` that is none of `types`; `noun` is the plural of what has it."""

    def check(value: Any) -> Any:
        if not isinstance(value, dict):
            raise PydanticCustomError("kind", "must be an object")
        type_ = _type_of(value, default)
        if type_ not in types:
            shown = shortened(type_) if isinstance(type_, str) else "..."
            message = f"{noun} of type '{shown}' are not supported; this service takes {', '.join(types)}"
            raise PydanticCustomError("kind", "{message}", {"message": message})
        return value

    return BeforeValidator(check)


def _type_of(value: Any, default: str | None) -> Any:
    type_ = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return default if type_ is None else type_
