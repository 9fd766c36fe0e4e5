"""The prefix cache: pages (KV blocks) that a session with the same beginning reuses, and which are evicted first.

A page is identified by a SHA-256 digest of all tokens up to its end. A collision would give a session the keys of
another prompt. None has ever been found for SHA-256, so the tokens are not kept for comparison.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256

ROOT = b""  # the digest before the first page of a sequence


def digest(previous: bytes, tokens: Sequence[int]) -> bytes:
    """The digest of a page of `tokens` that follows the page with digest `previous`."""
    return sha256(previous + array("q", tokens).tobytes()).digest()


class Prefixes:
    """The stored pages by digest; those that no session refers to are idle and may be evicted.

    A session that refers to a page refers to all pages before it, and releases the last one first. So a page falls idle
    before the pages it follows, and is evicted before them.
    """

    def __init__(self) -> None:
        self._pages: dict[bytes, int] = {}
        self._digests: dict[int, bytes] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()  # longest idle first

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
        """Record that no session refers to the page any longer."""
        self._idle[page] = None

    def wake(self, page: int) -> None:
        """Record that a session refers to an idle page again."""
        del self._idle[page]

    def is_idle(self, page: int) -> bool:
        return page in self._idle

    def evict(self, page: int | None = None) -> int:
        """Forget an idle page, by default the longest idle one, and return it.

        Pages that follow it stay: their digests cover all tokens before, so recomputing it finds them.
        """
        if page is None:
            page, _ = self._idle.popitem(last=False)
        else:
            del self._idle[page]
        del self._pages[self._digests.pop(page)]
        return page
