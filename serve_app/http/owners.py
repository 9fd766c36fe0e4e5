"""Whose a request is: a client is known by its API key, which goes no further.

Its earlier answers may be proposed to it, by a digest of the key. Logs, limits and the console go by its name.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import NamedTuple

from starlette.types import Scope

_SCHEME = "bearer"
HOLDER = "key_holder"  # of the request's key, in its scope


class KeyHolder(NamedTuple):
    """Whose a key is, and whether it is an admin's."""

    name: str
    admin: bool = False


def holder_of_request(scope: Scope) -> KeyHolder | None:
    """The holder of the key that a request was let in with; None without one."""
    holder: KeyHolder | None = scope.get(HOLDER)
    return holder


def client_name(scope: Scope) -> str | None:
    """The name of that holder."""
    holder = holder_of_request(scope)
    return None if holder is None else holder.name


def presented_key(headers: Mapping[str, str]) -> str | None:
    """The API key that a request brings: `Authorization: Bearer KEY`, or else `x-api-key: KEY`. None without one.

    The names of `headers` are looked up in lower case.
    """
    scheme, _, key = headers.get("authorization", "").strip().partition(" ")
    if scheme.lower() == _SCHEME and key.strip():
        return key.strip()
    return headers.get("x-api-key", "").strip() or None


def owner_of(headers: Mapping[str, str], salt: bytes) -> str | None:
    """A digest of the key that a request brings, the same for equal keys; None without a key.

    The key cannot be found from the digest by trying likely ones without the secret `salt`.
    """
    key = presented_key(headers)
    return None if key is None else hmac.new(salt, key.encode(), hashlib.sha256).hexdigest()
