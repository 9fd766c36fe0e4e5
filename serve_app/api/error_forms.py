"""Errors as HTTP responses, each in the form of the protocol whose path was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from core.errors import InvalidRequest
from serve_app.http.errors import failure_of
from serve_app.http.schema.fields import shortened
from serve_app.http.service import Overloaded
from serve_app.protocols.registry import error_body


def error_response(error: Exception, path: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The answer to a request of `path` that ended with `error`."""
    failure = failure_of(error)
    return JSONResponse(error_body(failure, path).model_dump(), failure.status, failure.headers | dict(headers or {}))


def install(app: FastAPI, endpoints: str) -> None:
    """Let `app` answer every error so; `endpoints` is the list that a client is told with a 404."""
    for kind in (InvalidRequest, Overloaded, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _respond)
    app.add_exception_handler(404, partial(_no_such_path, endpoints))
    app.add_exception_handler(405, _no_such_method)
    app.add_exception_handler(ClientDisconnect, _no_response)


async def _respond(request: Request, error: Exception) -> JSONResponse:
    return error_response(error, request.url.path)


async def _no_such_path(endpoints: str, request: Request, _error: Exception) -> JSONResponse:
    path = request.url.path
    return error_response(HTTPException(404, f"there is no {shortened(path)} here; this service has {endpoints}"), path)


async def _no_such_method(request: Request, error: Exception) -> JSONResponse:
    path, headers = request.url.path, dict(getattr(error, "headers", None) or {})
    message = f"{shortened(path)} does not take {request.method}, but {headers.get('allow', 'POST')}"
    return error_response(HTTPException(405, message, headers), path)


class NoResponse(Response):
    """Sends nothing to a client that has disconnected; servers may raise if something is sent."""

    async def __call__(self, _scope: Scope, _receive: Receive, _send: Send) -> None:
        pass


async def _no_response(_request: Request, _error: Exception) -> NoResponse:
    return NoResponse()
