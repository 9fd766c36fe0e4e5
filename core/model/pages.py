"""The pages of the KV cache: a page table per session and a reference count per page, without any tensor.

Forked sessions share pages. Sessions that begin with the same committed tokens share pages too, and these pages are
remembered after the sessions that computed them have closed. A shared or remembered page is copied before a session
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

    first_row: int
    start: int
    length: int
    pages: Sequence[int]


class PageCopy(NamedTuple):
    """An order to copy page `source` to page `target` before the session writes."""

    source: int
    target: int


class _Session:
    """The first `num_known` of its pages are remembered."""

    __slots__ = ("length", "num_known", "pages")

    def __init__(self, pages: list[int], length: int, num_known: int) -> None:
        self.pages = pages
        self.length = length
        self.num_known = num_known


class PagePool:
    """`num_pages` pages of `PAGE_SIZE` tokens, given to sessions. A page is free iff no session refers to it."""

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._blank = set(range(num_pages))  # free, and not remembered
        self._references = [0] * num_pages
        self._prefixes = Prefixes()
        self._sessions: dict[int, _Session] = {}

    @property
    def num_free(self) -> int:
        return len(self._blank) + self._prefixes.num_idle

    @property
    def num_remembered(self) -> int:
        """The free pages that a session may find again; they are given out last."""
        return self._prefixes.num_idle

    def open(self, session: int) -> None:
        """Start an empty session. Raises ValueError if the id is taken."""
        self._add(session, _Session([], 0, 0))

    def fork(self, source: int, session: int) -> None:
        """Start a session with the pages of `source`, which they share until one of them writes."""
        origin = self._sessions[source]
        self._add(session, _Session(list(origin.pages), origin.length, origin.num_known))
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
            held = self._sessions[session]
            if held.length % PAGE_SIZE and self._shared(held.pages[-1]):
                copies.append(self._own_last_page(held))
            held.length += tokens
            while len(held.pages) * PAGE_SIZE < held.length:
                held.pages.append(self._take(held.pages[-1] + 1 if held.pages else None))
        return copies

    def rollback(self, session: int, length: int) -> None:
        """Keep the first `length` tokens and give back the pages behind them."""
        held = self._sessions[session]
        if not 0 <= length <= held.length:
            raise ValueError(f"session {session} holds {held.length} tokens, cannot keep {length}")
        held.length = length
        held.num_known = min(held.num_known, length // PAGE_SIZE)
        while len(held.pages) > pages_for(length):
            self._release(held.pages.pop())

    def close(self, session: int) -> None:
        """Give all pages back; unknown sessions are ignored."""
        held = self._sessions.pop(session, None)
        for page in reversed(held.pages if held else []):
            self._release(page)

    def remember(self, session: int, tokens: Sequence[int]) -> None:
        """Make the session's full pages of `tokens` available to other sessions; it may hold further tokens.

        If another session has already computed the same page, this one uses that page and gives back its own.
        """
        held = self._sessions[session]
        for index in range(held.num_known, min(held.length, len(tokens)) // PAGE_SIZE):
            known = digest(self._previous(held), _page_of(tokens, index))
            page = self._prefixes.find(known)
            if page is None:
                self._prefixes.add(known, held.pages[index])
            elif page != held.pages[index]:
                self._refer(page)
                self._release(held.pages[index])
                held.pages[index] = page
            held.num_known += 1

    def recall(self, session: int, tokens: Sequence[int]) -> int:
        """Extend a session, which holds a beginning of `tokens`, by remembered pages; returns the tokens gained.

        The last token is never recalled: it must be computed for its logits.
        """
        held = self._sessions[session]
        found: list[int] = []
        previous = self._previous(held)
        for index in range(held.num_known, (len(tokens) - 1) // PAGE_SIZE):
            previous = digest(previous, _page_of(tokens, index))
            page = self._prefixes.find(previous)
            if page is None:
                break
            found.append(page)
        num_known = held.num_known + len(found)
        gained = num_known * PAGE_SIZE - held.length
        if gained <= 0:
            return 0
        for page in found:
            self._refer(page)
        self.rollback(session, held.num_known * PAGE_SIZE)
        held.pages += found
        held.length, held.num_known = num_known * PAGE_SIZE, num_known
        return gained

    def _add(self, session: int, held: _Session) -> None:
        if session in self._sessions:
            raise ValueError(f"session {session} is open already")
        self._sessions[session] = held

    def _pages_needed(self, growth: Sequence[tuple[int, int]]) -> int:
        needed, shared = 0, []
        for session, tokens in growth:
            held = self._sessions[session]
            needed += pages_for(held.length + tokens) - len(held.pages)
            if held.length % PAGE_SIZE and self._shared(held.pages[-1]):
                shared.append(held.pages[-1])
        # The last of the sessions that share a page may keep it, unless it is remembered.
        return needed + sum(
            min(shared.count(page), self._references[page] - (page not in self._prefixes)) for page in set(shared)
        )

    def _shared(self, page: int) -> bool:
        return self._references[page] > 1 or page in self._prefixes

    def _previous(self, held: _Session) -> bytes:
        """The digest of the pages before the session's next page to remember."""
        return self._prefixes.digest_of(held.pages[held.num_known - 1]) if held.num_known else ROOT

    def _own_last_page(self, held: _Session) -> PageCopy:
        shared = held.pages[-1]
        held.pages[-1] = self._take()
        self._release(shared)
        return PageCopy(shared, held.pages[-1])

    def _take(self, wanted: int | None = None) -> int:
        """A free page: the `wanted` one if it is blank, because consecutive pages are read in place.

        If the wanted page is remembered, it is taken only if no two blank pages are consecutive. Otherwise a page of
        such a stretch is better: the session can grow into the next one.
        """
        if wanted in self._blank:
            page = wanted
        else:
            stretch = _longest_stretch(self._blank)
            if wanted is not None and len(stretch) < 2 and self._prefixes.is_idle(wanted):
                page = self._prefixes.evict(wanted)
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
