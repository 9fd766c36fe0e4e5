"""Which pages hold the beginning of which token sequences, so that a session that begins alike need not compute them.

A page is known by a SHA-256 digest of all tokens up to its end. Two beginnings with one digest would hand a session the
keys of another's prompt; such a pair has never been found, even on purpose, so the tokens are not kept to compare.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256

ROOT = b""  # what the first page of a sequence follows


def digest(previous: bytes, tokens: Sequence[int]) -> bytes:
    """Of a page of `tokens` that follows the page with digest `previous`."""
    return sha256(previous + array("q", tokens).tobytes()).digest()


class Prefixes:
    """Remembered pages by digest; those that no session refers to are idle, and may be evicted.

    A session that refers to a page refers to all those before it, and lets go of the last one first: pages fall idle
    children before parents, and by their age are evicted so.
    """

    def __init__(self) -> None:
        self._pages: dict[bytes, int] = {}
        self._digests: dict[int, bytes] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()  # the longest idle first

    def __contains__(self, page: int) -> bool:
        return page in self._digests

    @property
    def num_idle(self) -> int:
        return len(self._idle)

    def find(self, digest: bytes) -> int | None:
        """The page with this digest."""
        return self._pages.get(digest)

    def digest_of(self, page: int) -> bytes:
        return self._digests[page]

    def add(self, digest: bytes, page: int) -> None:
        self._pages[digest] = page
        self._digests[page] = digest

    def fall_idle(self, page: int) -> None:
        """No session refers to the page any longer."""
        self._idle[page] = None

    def wake(self, page: int) -> None:
        """A session refers to an idle page again."""
        del self._idle[page]

    def is_idle(self, page: int) -> bool:
        return page in self._idle

    def evict(self, page: int | None = None) -> int:
        """Forget an idle page, the one that is longest idle unless told which, and return it.

        Pages that follow it stay: who computes it again finds them, for a digest is of all tokens before.
        """
        if page is None:
            page, _ = self._idle.popitem(last=False)
        else:
            del self._idle[page]
        del self._pages[self._digests.pop(page)]
        return page
