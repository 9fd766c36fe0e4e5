"""Errors in Anthropic's form: {"type": "error", "error": {type, message}} with their HTTP status."""

from __future__ import annotations

from serve_app.http.errors import Failure
from serve_app.protocols.anthropic.bodies import ErrorObject, ErrorResponse

TOO_LONG = "prompt is too long"  # Anthropic's words, by which agents know that they have to compact a conversation
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def error_body(failure: Failure) -> ErrorResponse:
    """The body, whose message names the field at fault: Anthropic's form has no other place for it."""
    field, message = failure.detail.param, failure.detail.message
    if field is not None and f"'{field}'" not in message:
        message = f"{field}: {message}"
    if failure.detail.code == "context_length_exceeded":
        message = f"{TOO_LONG}: {message}"
    kind = _TYPES.get(failure.status, "invalid_request_error" if failure.status < 500 else "api_error")
    return ErrorResponse(error=ErrorObject(type=kind, message=message))
