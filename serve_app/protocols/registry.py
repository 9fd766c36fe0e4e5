"""The protocols of a service: their routes, and the forms of their errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fastapi import APIRouter
from pydantic import BaseModel

from serve_app.http.errors import ErrorBody, Failure
from serve_app.http.service import Service
from serve_app.protocols.anthropic import errors as anthropic_errors
from serve_app.protocols.anthropic import routes as anthropic
from serve_app.protocols.openai import routes as openai
from serve_app.protocols.responses import routes as responses


def openai_error(failure: Failure) -> BaseModel:
    return ErrorBody(error=failure.detail)


class ProtocolEntry(NamedTuple):
    """A protocol; with `error_path`, requests of that path and below get their errors as `error_body` writes them."""

    routes: Callable[[Service], APIRouter]
    error_path: str | None = None
    error_body: Callable[[Failure], BaseModel] = openai_error


PROTOCOLS = (
    ProtocolEntry(openai.routes),
    ProtocolEntry(responses.routes),
    ProtocolEntry(anthropic.routes, "/v1/messages", anthropic_errors.error_body),
)


def error_body(failure: Failure, path: str) -> BaseModel:
    """The body for a request of `path` that failed; OpenAI's form where no protocol has its own."""
    for entry in PROTOCOLS:
        if entry.error_path is not None and f"{path}/".startswith(f"{entry.error_path}/"):
            return entry.error_body(failure)
    return openai_error(failure)
