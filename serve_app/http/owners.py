"""Whose earlier answers may be proposed to a request: a client is known by its API key, which goes no further."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

_SCHEME = "bearer"


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
