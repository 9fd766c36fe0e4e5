"""Who owns which page of the KV cache: page tables per session, reference counts per page, no tensor in sight.

Sessions forked from one another share pages; a shared page is copied when one of its sessions is about to write
into it, which happens only to the last page a session uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from core.errors import OutOfPages

PAGE_SIZE = 64  # tokens


class PageCopy(NamedTuple):
    """The content of page `source` must be copied to page `target` before the session writes."""

    source: int
    target: int


class _Session:
    __slots__ = ("length", "pages")

    def __init__(self, pages: list[int], length: int) -> None:
        self.pages = pages
        self.length = length


class PagePool:
    """`num_pages` pages of `PAGE_SIZE` tokens, dealt to sessions. A page is free iff nobody refers to it."""

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._free = list(reversed(range(num_pages)))
        self._references = [0] * num_pages
        self._sessions: dict[int, _Session] = {}

    @property
    def num_free(self) -> int:
        return len(self._free)

    def open(self, session: int) -> None:
        """Start an empty session. Raises ValueError where the id is taken."""
        self._add(session, _Session([], 0))

    def fork(self, source: int, session: int) -> None:
        """Start a session with the pages of `source`, shared until one of them writes."""
        origin = self._sessions[source]
        self._add(session, _Session(list(origin.pages), origin.length))
        for page in origin.pages:
            self._references[page] += 1

    def length(self, session: int) -> int:
        return self._sessions[session].length

    def pages(self, session: int) -> list[int]:
        return self._sessions[session].pages

    def extend(self, growth: Sequence[tuple[int, int]]) -> list[PageCopy]:
        """Make room for `(session, tokens)`, each session named once, and count the tokens as held.

        All or nothing: raises `OutOfPages` before anything changes.
        """
        if self._pages_needed(growth) > self.num_free:
            raise OutOfPages(f"{self.num_free} of {self.num_pages} pages are free, the pass needs more")
        copies = []
        for session, tokens in growth:
            held = self._sessions[session]
            if held.length % PAGE_SIZE and self._references[held.pages[-1]] > 1:
                copies.append(self._own_last_page(held))
            held.length += tokens
            while len(held.pages) * PAGE_SIZE < held.length:
                held.pages.append(self._take())
        return copies

    def rollback(self, session: int, length: int) -> None:
        """Keep the first `length` tokens; pages without any are given back."""
        held = self._sessions[session]
        if not 0 <= length <= held.length:
            raise ValueError(f"session {session} holds {held.length} tokens, cannot keep {length}")
        held.length = length
        while len(held.pages) > pages_for(length):
            self._release(held.pages.pop())

    def close(self, session: int) -> None:
        """Give all pages back; unknown sessions are ignored."""
        held = self._sessions.pop(session, None)
        for page in reversed(held.pages if held else []):
            self._release(page)

    def _add(self, session: int, held: _Session) -> None:
        if session in self._sessions:
            raise ValueError(f"session {session} is open already")
        self._sessions[session] = held

    def _pages_needed(self, growth: Sequence[tuple[int, int]]) -> int:
        needed = 0
        writers: Counter[int] = Counter()
        for session, tokens in growth:
            held = self._sessions[session]
            needed += pages_for(held.length + tokens) - len(held.pages)
            if held.length % PAGE_SIZE:
                writers[held.pages[-1]] += 1
        # Of all who share a page the last one may keep it.
        return needed + sum(min(count, self._references[page] - 1) for page, count in writers.items())

    def _own_last_page(self, held: _Session) -> PageCopy:
        shared = held.pages[-1]
        held.pages[-1] = self._take()
        self._release(shared)
        return PageCopy(shared, held.pages[-1])

    def _take(self) -> int:
        page = self._free.pop()
        self._references[page] = 1
        return page

    def _release(self, page: int) -> None:
        self._references[page] -= 1
        if not self._references[page]:
            self._free.append(page)


def pages_for(tokens: int) -> int:
    """How many pages hold that many tokens."""
    return -(-tokens // PAGE_SIZE)
