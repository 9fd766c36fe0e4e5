"""Who owns which page of the KV cache: page tables per session, reference counts per page, no tensor in sight.

Sessions forked from one another share pages, and so do sessions that begin with the same committed tokens, which are
remembered beyond the sessions that computed them. A page that is shared or remembered is copied when a session is about
to write into it, which happens only to the last page a session uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from core.errors import OutOfPages
from core.model.prefixes import ROOT, Prefixes, digest

PAGE_SIZE = 64  # tokens


class PageCopy(NamedTuple):
    """The content of page `source` must be copied to page `target` before the session writes."""

    source: int
    target: int


class _Session:
    """`num_known` of its pages, the first ones, are remembered."""

    __slots__ = ("length", "num_known", "pages")

    def __init__(self, pages: list[int], length: int, num_known: int) -> None:
        self.pages = pages
        self.length = length
        self.num_known = num_known


class PagePool:
    """`num_pages` pages of `PAGE_SIZE` tokens, dealt to sessions. A page is free iff no session refers to it."""

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
        """Free pages that a session may find again; they are dealt when there is no other."""
        return self._prefixes.num_idle

    def open(self, session: int) -> None:
        """Start an empty session. Raises ValueError where the id is taken."""
        self._add(session, _Session([], 0, 0))

    def fork(self, source: int, session: int) -> None:
        """Start a session with the pages of `source`, shared until one of them writes."""
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

        All or nothing: raises `OutOfPages` before anything changes.
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
        """Keep the first `length` tokens; pages without any are given back."""
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
        """The session holds `tokens` and perhaps more: its full pages of them may be found by others.

        Where another session has computed the same page before, this one takes that page and gives back its own.
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
        """Extend what a session holds of `tokens` by remembered pages; returns the tokens gained.

        The last token is never among them: it must be computed for its logits.
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
        # Of all who share a page the last one may keep it, unless it is remembered.
        return needed + sum(
            min(shared.count(page), self._references[page] - (page not in self._prefixes)) for page in set(shared)
        )

    def _shared(self, page: int) -> bool:
        return self._references[page] > 1 or page in self._prefixes

    def _previous(self, held: _Session) -> bytes:
        """The digest that the session's next page to be remembered follows."""
        return self._prefixes.digest_of(held.pages[held.num_known - 1]) if held.num_known else ROOT

    def _own_last_page(self, held: _Session) -> PageCopy:
        shared = held.pages[-1]
        held.pages[-1] = self._take()
        self._release(shared)
        return PageCopy(shared, held.pages[-1])

    def _take(self, wanted: int | None = None) -> int:
        """A free page: the `wanted` one if it is blank, because pages that follow one another are read in place.

        If it is remembered, it is only taken where no two blank pages follow one another: whoever takes one of these
        can grow into the other.
        """
        if wanted in self._blank:
            page = wanted
        else:
            stretch = _longest_stretch(self._blank)
            if wanted is not None and len(stretch) < 2 and self._prefixes.is_idle(wanted):
                page = self._prefixes.evict(wanted)
            elif stretch:
                page = stretch[len(stretch) // 2]  # so that who holds the page before has room to grow, too
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
    """The longest run of numbers that follow one another."""
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
    """How many pages hold that many tokens."""
    return -(-tokens // PAGE_SIZE)
