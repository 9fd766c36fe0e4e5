"""Whose earlier answers may be proposed to a request: a client is known by its API key, which goes no further."""

from __future__ import annotations

import hashlib
import hmac

_SCHEME = "bearer"


def owner_of(authorization: str | None, salt: bytes) -> str | None:
    """A digest of the key in an `Authorization: Bearer <key>` header, the same for equal keys; None without a key.

    The key cannot be found from the digest by trying likely ones without the secret `salt`.
    """
    scheme, _, key = (authorization or "").strip().partition(" ")
    if scheme.lower() != _SCHEME or not key.strip():
        return None
    return hmac.new(salt, key.strip().encode(), hashlib.sha256).hexdigest()
