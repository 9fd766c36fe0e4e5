"""The id of a request: the client's `x-request-id` if that is 1 to 128 visible ASCII characters, else a new one."""

from __future__ import annotations

import uuid

from starlette.types import Scope

HEADER = b"x-request-id"
LONGEST = 128  # characters


def number(scope: Scope) -> str:
    """The id of the request, which `scope` then has as its only one."""
    headers = scope["headers"]
    values = [value for name, value in headers if name == HEADER]
    if len(values) == 1 and _is_good(values[0]):
        return str(values[0].decode())
    request_id = str(uuid.uuid4())
    scope["headers"] = [*((name, value) for name, value in headers if name != HEADER), (HEADER, request_id.encode())]
    return request_id


def _is_good(value: bytes) -> bool:
    return 0 < len(value) <= LONGEST and all(0x20 < byte < 0x7F for byte in value)  # a space would part it in the log
