"""An index of n-grams: where the end of a text occurred before, and what followed there.

The rule is SuffixDecoding's (arXiv 2411.04975, `arctic-inference`): the longest end of the text that occurred before is
continued with the token that followed most often, then with the one that followed both most often, and so on. Here the
places of n-grams of a few lengths lie in a dict, which does the same for the latest places of each at a bounded cost:
to index a token takes 3 µs and 600 bytes, to look up an end 10 to 60 µs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from core.policy.acceptance import MOST_SUPPORT, Kind
from core.verify.sources.source import GuessedToken

LENGTHS = (8, 4, 2)  # tokens of the n-grams whose places are known
MOST_PLACES = 16  # known of an n-gram: the latest
LONGEST_MATCH = 32  # tokens; that more of them agree says nothing new
LEAST_SHARE = 0.1  # a continuation ends where the product of its tokens' shares falls below
CONTINUED = 2  # tokens that a continuation may have for each that the match has
_CAUGHT_UP = 256  # tokens of a long text that are indexed at a time

Place = tuple[Sequence[int], int]  # a text, and the index in it of a token that followed the n-gram


class Match(NamedTuple):
    """The longest end of a text that occurs in an index: its tokens and its places, the latest place first."""

    length: int
    places: Sequence[Place]


class Next(NamedTuple):
    """A token of a continuation: it followed at `agreeing` of the `among` places where all before it did."""

    token: int
    agreeing: int
    among: int


NO_MATCH = Match(0, ())


class SuffixIndex:
    """The places of the n-grams of some texts. A text may grow, but not change; the one forgotten is the oldest."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, ...], list[Place]] = {}

    def __bool__(self) -> bool:
        return bool(self._places)

    def add(self, text: Sequence[int], begin: int = 0, end: int | None = None) -> None:
        """Index the tokens `begin` .. `end` - 1 of a text whose earlier tokens are indexed."""
        for at in range(begin, len(text) if end is None else end):
            for key in _keys(text, at):
                places = self._places.setdefault(key, [])
                places.append((text, at))
                if len(places) > MOST_PLACES:
                    del places[0]

    def forget(self, text: Sequence[int]) -> None:
        """Take the oldest text out again."""
        for at in range(len(text)):
            for key in _keys(text, at):
                places = self._places.get(key, [])
                while places and places[0][0] is text:
                    del places[0]
                if not places:
                    self._places.pop(key, None)

    def match(self, text: Sequence[int]) -> Match:
        """The longest end of `text`, of at least the shortest n-gram, that was followed by a token."""
        for length in LENGTHS:
            places = self._places.get(tuple(text[-length:])) if length <= len(text) else None
            if places:
                lengths = [_agreement(text, length, place) for place in reversed(places)]
                longest = max(lengths)
                agreeing = zip(lengths, reversed(places), strict=True)
                return Match(longest, [place for agreed, place in agreeing if agreed == longest])
        return NO_MATCH


class TextIndex:
    """The index of one text that may grow. A long text is indexed a part at a time, at every look."""

    def __init__(self, text: Sequence[int]) -> None:
        self._text = text
        self._index = SuffixIndex()
        self._indexed = 0

    def match(self, text: Sequence[int]) -> Match:
        """See `SuffixIndex.match`."""
        begin, self._indexed = self._indexed, min(len(self._text), self._indexed + _CAUGHT_UP)
        self._index.add(self._text, begin, self._indexed)
        return self._index.match(text)


def continuation(match: Match, limit: int) -> Iterator[Next]:
    """What followed most often, token by token, the latest of equals; at most `limit` tokens."""
    places, share = match.places, 1.0
    for ahead in range(min(limit, CONTINUED * match.length)):
        followed: dict[int, list[Place]] = {}
        for place in places:
            text, at = place
            if at + ahead < len(text):
                followed.setdefault(text[at + ahead], []).append(place)
        if not followed:
            return
        token = max(followed, key=lambda token: len(followed[token]))
        share *= len(followed[token]) / len(places)
        if share < LEAST_SHARE:
            return
        yield Next(token, len(followed[token]), len(places))
        places = followed[token]


def guesses(match_length: int, following: Iterable[Next]) -> Iterator[GuessedToken]:
    """A continuation as guesses: the longer the match and the more places agree, the likelier they are right."""
    for ahead, (token, agreeing, among) in enumerate(following):
        context = min(match_length + ahead, LONGEST_MATCH).bit_length()
        yield GuessedToken(token, Kind(context, MOST_SUPPORT * agreeing // (among + 1)))


def _keys(text: Sequence[int], at: int) -> Iterator[tuple[int, ...]]:
    """The n-grams before the token `at`."""
    return (tuple(text[at - length : at]) for length in LENGTHS if length <= at)


def _agreement(text: Sequence[int], agreeing: int, place: Place) -> int:
    """The number of tokens before a place that equal the last of `text`, `agreeing` of which do."""
    other, at = place
    longest = min(len(text), at, LONGEST_MATCH)
    while agreeing < longest and text[-1 - agreeing] == other[at - 1 - agreeing]:
        agreeing += 1
    return agreeing
