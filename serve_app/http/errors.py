"""Errors in OpenAI's form, {"error": {message, type, param, code}} with their HTTP status, and in the log."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from core.errors import InvalidRequest
from serve_app.http.schema.fields import FIELD_ERROR
from serve_app.http.service import Overloaded

Place = tuple[str | int, ...]  # the fields and indices that lead to a value of a body

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_OWN = frozenset({"core", "serve_app"})  # packages


def describe(error: Exception) -> tuple[int, dict[str, str], dict[str, object]]:
    """The HTTP status, extra headers and body for `error`."""
    match error:
        case RequestValidationError():
            return describe(first_fault(error.errors()))
        case InvalidRequest():
            return error.status, {}, _body(str(error), error.status, error.field, error.code)
        case Overloaded():
            headers = {"Retry-After": str(error.retry_after_s)}
            return error.status, headers, _body(str(error), error.status, None, "overloaded")
        case HTTPException(__cause__=InvalidRequest() as fault):  # FastAPI's of what reading the body raised
            return describe(fault)
        case HTTPException():
            return error.status_code, dict(error.headers or {}), _body(error.detail, error.status_code, None, None)
    return 500, {}, _body("the service failed while answering", 500, None, None)


def _body(message: str, status: int, param: str | None, code: str | None) -> dict[str, object]:
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def place_of(error: BaseException) -> str:
    """What the log tells of a failure: its type, and where in this code. Its message may be text of a client."""
    names = [(frame.f_globals.get("__name__", ""), line) for frame, line in traceback.walk_tb(error.__traceback__)]
    places = [f" at {name}:{line}" for name, line in names if name.partition(".")[0] in _OWN]
    return type(error).__name__ + (places[-1] if places else "")


def first_fault(faults: Sequence[Any]) -> InvalidRequest:
    """The first of pydantic's errors, whose locations begin with "body"."""
    fault = faults[0]
    context = fault.get("ctx", {})
    if fault["type"] == FIELD_ERROR:
        return InvalidRequest(path_of((*fault["loc"][1:], context["field"])), context["message"])
    path = path_of(fault["loc"][1:])
    if fault["type"] == "missing" and path is not None:
        return InvalidRequest(path, f"'{path}' is required")
    return InvalidRequest(path, f"'{path}': {fault['msg']}" if path else "the body must be a JSON object")


def path_of(place: Place) -> str | None:
    """("messages", 0, "<parts>", "text") -> "messages[0].text"; None for the body itself."""
    path = ""
    for step in place:
        if isinstance(step, int):
            path += f"[{step}]"
        elif not step.startswith("<"):
            path += f".{step}"
    return path.removeprefix(".") or None
