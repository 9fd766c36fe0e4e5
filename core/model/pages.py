"""The pages (KV blocks) of the KV cache: a page table per session, a reference count per page, no tensor.

A page has the keys and values of `PAGE_SIZE` tokens in all layers. Forked sessions share
pages. Sessions that begin with the same committed tokens share pages too, and the prefix cache has these pages after
the sessions that computed them have closed. A page that is shared or in the prefix cache is copied before a session
writes into it; a session writes only into its last page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from core.errors import OutOfPages
from core.model.prefix_cache import ROOT, Prefixes, digest

PAGE_SIZE = 64  # tokens


class Span(NamedTuple):
    """The part of one session in a pass: the rows from `first_row` on are positions `start .. start + length - 1`."""

    session: int
    first_row: int
    start: int
    length: int
    pages: Sequence[int]


class PageCopy(NamedTuple):
    """An order to copy page `source` to page `target` before the session writes."""

    source: int
    target: int


class _Session:
    """The first `num_stored` of its pages are in the prefix cache."""

    __slots__ = ("length", "num_stored", "pages")

    def __init__(self, pages: list[int], length: int, num_stored: int) -> None:
        self.pages = pages
        self.length = length
        self.num_stored = num_stored


class PagePool:
    """`num_pages` pages of `PAGE_SIZE` tokens, given to sessions. A page is free iff no session refers to it."""

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._blank = set(range(num_pages))  # free, and not in the prefix cache
        self._references = [0] * num_pages
        self._prefixes = Prefixes()
        self._sessions: dict[int, _Session] = {}

    @property
    def num_free(self) -> int:
        return len(self._blank) + self._prefixes.num_idle

    @property
    def num_prefix(self) -> int:
        """The free pages that a session may find again; they are given out last."""
        return self._prefixes.num_idle

    def open(self, session: int) -> None:
        """Start an empty session. Raises ValueError if the id is taken."""
        self._add(session, _Session([], 0, 0))

    def fork(self, source: int, session: int) -> None:
        """Start a session with the pages of `source`, which they share until one of them writes."""
        origin = self._sessions[source]
        self._add(session, _Session(list(origin.pages), origin.length, origin.num_stored))
        for page in origin.pages:
            self._refer(page)

    def length(self, session: int) -> int:
        return self._sessions[session].length

    def pages(self, session: int) -> list[int]:
        return self._sessions[session].pages

    def extend(self, growth: Sequence[tuple[int, int]]) -> list[PageCopy]:
        """Make room for `(session, tokens)`, each session named once, and count the tokens as held.

        Raises `OutOfPages` before anything changes.
        """
        if self._pages_needed(growth) > self.num_free:
            raise OutOfPages(f"{self.num_free} of {self.num_pages} pages are free, the pass needs more")
        copies = []
        for session, tokens in growth:
            state = self._sessions[session]
            if state.length % PAGE_SIZE and self._shared(state.pages[-1]):
                copies.append(self._own_last_page(state))
            state.length += tokens
            while len(state.pages) * PAGE_SIZE < state.length:
                state.pages.append(self._take(state.pages[-1] + 1 if state.pages else None))
        return copies

    def rollback(self, session: int, length: int) -> None:
        """Keep the first `length` tokens and give back the pages behind them."""
        state = self._sessions[session]
        if not 0 <= length <= state.length:
            raise ValueError(f"session {session} holds {state.length} tokens, cannot keep {length}")
        state.length = length
        state.num_stored = min(state.num_stored, length // PAGE_SIZE)
        while len(state.pages) > pages_for(length):
            self._release(state.pages.pop())

    def close(self, session: int) -> None:
        """Give all pages back; unknown sessions are ignored."""
        state = self._sessions.pop(session, None)
        for page in reversed(state.pages if state else []):
            self._release(page)

    def store_prefix(self, session: int, tokens: Sequence[int]) -> None:
        """Put the session's full pages of `tokens` into the prefix cache; it may hold further tokens.

        If another session has already computed the same page, this one uses that page and gives back its own.
        """
        state = self._sessions[session]
        for index in range(state.num_stored, min(state.length, len(tokens)) // PAGE_SIZE):
            key = digest(self._previous(state), _page_of(tokens, index))
            page = self._prefixes.find(key)
            if page is None:
                self._prefixes.add(key, state.pages[index])
            elif page != state.pages[index]:
                self._refer(page)
                self._release(state.pages[index])
                state.pages[index] = page
            state.num_stored += 1

    def lookup_prefix(self, session: int, tokens: Sequence[int]) -> int:
        """Extend a session, which holds a beginning of `tokens`, by pages of the prefix cache; returns the gain.

        The last token is never looked up: it must be computed for its logits.
        """
        state = self._sessions[session]
        hits: list[int] = []
        previous = self._previous(state)
        for index in range(state.num_stored, (len(tokens) - 1) // PAGE_SIZE):
            previous = digest(previous, _page_of(tokens, index))
            page = self._prefixes.find(previous)
            if page is None:
                break
            hits.append(page)
        num_stored = state.num_stored + len(hits)
        gained = num_stored * PAGE_SIZE - state.length
        if gained <= 0:
            return 0
        for page in hits:
            self._refer(page)
        self.rollback(session, state.num_stored * PAGE_SIZE)
        state.pages += hits
        state.length, state.num_stored = num_stored * PAGE_SIZE, num_stored
        return gained

    def _add(self, session: int, state: _Session) -> None:
        if session in self._sessions:
            raise ValueError(f"session {session} is open already")
        self._sessions[session] = state

    def _pages_needed(self, growth: Sequence[tuple[int, int]]) -> int:
        needed, shared = 0, []
        for session, tokens in growth:
            state = self._sessions[session]
            needed += pages_for(state.length + tokens) - len(state.pages)
            if state.length % PAGE_SIZE and self._shared(state.pages[-1]):
                shared.append(state.pages[-1])
        # The last of the sessions that share a page may keep it, unless it is in the prefix cache.
        return needed + sum(
            min(shared.count(page), self._references[page] - (page not in self._prefixes)) for page in set(shared)
        )

    def _shared(self, page: int) -> bool:
        return self._references[page] > 1 or page in self._prefixes

    def _previous(self, state: _Session) -> bytes:
        """The digest of the pages before the session's next page to store."""
        return self._prefixes.digest_of(state.pages[state.num_stored - 1]) if state.num_stored else ROOT

    def _own_last_page(self, state: _Session) -> PageCopy:
        shared = state.pages[-1]
        state.pages[-1] = self._take()
        self._release(shared)
        return PageCopy(shared, state.pages[-1])

    def _take(self, next_page: int | None = None) -> int:
        """A free page: `next_page` if it is blank, because consecutive pages lie in one stretch of memory.

        If that is in the prefix cache, it is taken only if no two blank pages are consecutive. Otherwise a page of such
        a stretch is better: the session can grow into the next one.
        """
        if next_page in self._blank:
            page = next_page
        else:
            stretch = _longest_stretch(self._blank)
            if next_page is not None and len(stretch) < 2 and self._prefixes.is_idle(next_page):
                page = self._prefixes.evict(next_page)
            elif stretch:
                page = stretch[len(stretch) // 2]  # leaves room to the session before the stretch
            else:
                page = self._prefixes.evict()
        self._blank.discard(page)
        self._references[page] = 1
        return page

    def _refer(self, page: int) -> None:
        if not self._references[page]:
            self._prefixes.wake(page)
        self._references[page] += 1

    def _release(self, page: int) -> None:
        self._references[page] -= 1
        if self._references[page]:
            return
        if page in self._prefixes:
            self._prefixes.fall_idle(page)
        else:
            self._blank.add(page)


def _longest_stretch(pages: Iterable[int]) -> range:
    """The longest run of consecutive numbers."""
    start, stop, longest, ends = 0, 0, 0, 0
    for page in sorted(pages):
        if page != stop:
            start = page
        stop = page + 1
        if stop - start > longest:
            longest, ends = stop - start, stop
    return range(ends - longest, ends)


def _page_of(tokens: Sequence[int], index: int) -> Sequence[int]:
    return tokens[index * PAGE_SIZE : (index + 1) * PAGE_SIZE]


def pages_for(tokens: int) -> int:
    """The number of pages that hold so many tokens."""
    return -(-tokens // PAGE_SIZE)
