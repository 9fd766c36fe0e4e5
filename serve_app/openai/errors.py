"""Errors in OpenAI's form: {"error": {message, type, param, code}} with their HTTP status."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from core.errors import InvalidRequest
from serve_app.openai.fields import FIELD_ERROR, shortened
from serve_app.openai.service import Overloaded

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def install(app: FastAPI, endpoints: str) -> None:
    """Let `app` answer every error in OpenAI's form; `endpoints` is the list that a client is told with a 404."""
    for kind in (InvalidRequest, Overloaded, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _respond)
    app.add_exception_handler(404, partial(_no_such_path, endpoints))
    app.add_exception_handler(405, _no_such_method)
    app.add_exception_handler(ClientDisconnect, _no_response)


async def _respond(_request: Request, error: Exception) -> JSONResponse:
    status, headers, body = describe(error)
    return JSONResponse(body, status, headers)


async def _no_such_path(endpoints: str, request: Request, _error: Exception) -> JSONResponse:
    message = f"there is no {shortened(request.url.path)} here; this service has {endpoints}"
    return JSONResponse(_body(message, 404, None, None), 404)


async def _no_such_method(request: Request, error: Exception) -> JSONResponse:
    headers = dict(getattr(error, "headers", None) or {})
    message = f"{shortened(request.url.path)} does not take {request.method}, but {headers.get('allow', 'POST')}"
    return JSONResponse(_body(message, 405, None, None), 405, headers)


class NoResponse(Response):
    """Sends nothing to a client that has disconnected; servers may raise if something is sent."""

    async def __call__(self, _scope: Scope, _receive: Receive, _send: Send) -> None:
        pass


async def _no_response(_request: Request, _error: Exception) -> NoResponse:
    return NoResponse()


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
        case HTTPException():
            return error.status_code, dict(error.headers or {}), _body(error.detail, error.status_code, None, None)
    return 500, {}, _body("the service failed while answering", 500, None, None)


def _body(message: str, status: int, param: str | None, code: str | None) -> dict[str, object]:
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def first_fault(faults: Sequence[Any]) -> InvalidRequest:
    """The first of pydantic's errors, whose locations begin with "body"."""
    fault = faults[0]
    context = fault.get("ctx", {})
    if fault["type"] == FIELD_ERROR:
        return InvalidRequest(_path((*fault["loc"], context["field"])), context["message"])
    path = _path(fault["loc"])
    if fault["type"] == "missing" and path is not None:
        return InvalidRequest(path, f"'{path}' is required")
    return InvalidRequest(path, f"'{path}': {fault['msg']}" if path else "the body must be a JSON object")


def _path(location: tuple[str | int, ...]) -> str | None:
    """("body", "messages", 0, "<parts>", "text") -> "messages[0].text"."""
    path = ""
    for step in location[1:]:
        if isinstance(step, int):
            path += f"[{step}]"
        elif not step.startswith("<"):
            path += f".{step}"
    return path.removeprefix(".") or None
