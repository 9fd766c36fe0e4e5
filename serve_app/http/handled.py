"""A request that was answered, as metrics tell it from others."""

from __future__ import annotations

from typing import NamedTuple

API = "/v1/"  # paths of the protocols begin so
METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS"})
OTHER = "other"  # method: a client may send any text as one
GONE = 499  # status: the client has left before there was an answer
NO_KEY = "-"  # no key has this name


class Handled(NamedTuple):
    """`shed` tells that it was refused because every verifier was busy and their queue full."""

    key_name: str
    method: str
    status: int
    shed: bool
