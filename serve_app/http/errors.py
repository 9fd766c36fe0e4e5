"""Errors: their HTTP status, OpenAI's form of a body, which protocols without one of their own share, and the log."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from core.errors import InvalidRequest
from serve_app.http.schema.fields import FIELD_ERROR
from serve_app.http.service import Overloaded

Place = tuple[str | int, ...]  # the fields and indices that lead to a value of a body

QUEUE, FULL = "X-Queue", "full"  # a header of refusals, and its value, by which proxies know those that they may repeat
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_OWN = frozenset({"core", "serve_app"})  # packages


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    error: ErrorDetail


class Failure(NamedTuple):
    """What a client gets for an error."""

    status: int
    headers: dict[str, str]
    detail: ErrorDetail


def failure_of(error: Exception) -> Failure:
    match error:
        case RequestValidationError():
            return failure_of(first_fault(error.errors()))
        case InvalidRequest():
            return _failure(error.status, str(error), error.field, error.code)
        case Overloaded():
            failure = _failure(error.status, str(error), None, error.code)
            full = {QUEUE: FULL} if error.queue_full else {}
            return failure._replace(headers={"Retry-After": str(error.retry_after_s), **full})
        case HTTPException(__cause__=InvalidRequest() as fault):  # FastAPI's of what reading the body raised
            return failure_of(fault)
        case HTTPException():
            return _failure(error.status_code, error.detail)._replace(headers=dict(error.headers or {}))
    return _failure(500, "the service failed while answering")


def _failure(status: int, message: str, param: str | None = None, code: str | None = None) -> Failure:
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return Failure(status, {}, ErrorDetail(message=message, type=kind, param=param, code=code))


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
