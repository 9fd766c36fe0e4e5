"""The index finds what a search of all texts finds, forgets what it is told to, and stays as small as it may be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import assume, given
from hypothesis import strategies as st

from core.verify.sources.suffix_index import (
    CONTINUED,
    LEAST_SHARE,
    LENGTHS,
    LONGEST_MATCH,
    MOST_PLACES,
    SuffixIndex,
    TextIndex,
    continuation,
)

TEXTS = st.lists(st.lists(st.integers(0, 2), max_size=14), max_size=4)


def occurrences(texts: Sequence[Sequence[int]], end: Sequence[int]) -> list[list[int]]:
    """What follows `end` wherever it is followed by something, latest first."""
    found = [
        list(text[at:])
        for text in texts
        for at in range(len(end), len(text))
        if list(text[at - len(end) : at]) == list(end)
    ]
    return found[::-1]


def expected_match(texts: Sequence[Sequence[int]], query: Sequence[int]) -> tuple[int, list[list[int]]]:
    """Length of the longest end of `query` that is followed somewhere, and what follows."""
    for length in range(min(len(query), LONGEST_MATCH), LENGTHS[-1] - 1, -1):
        if following := occurrences(texts, query[len(query) - length :]):
            return length, following
    return 0, []


def expected_continuation(length: int, following: list[list[int]], most: int) -> list[tuple[int, int, int]]:
    tokens: list[tuple[int, int, int]] = []
    share = 1.0
    while len(tokens) < min(most, CONTINUED * length):
        nexts = [rest[len(tokens)] for rest in following if len(rest) > len(tokens)]
        if not nexts:
            break
        token, agreeing = Counter(nexts).most_common(1)[0]  # of equals the first counted, which is the latest
        share *= agreeing / len(following)
        if share < LEAST_SHARE:
            break
        tokens.append((token, agreeing, len(following)))
        at = len(tokens) - 1
        following = [rest for rest in following if len(rest) > at and rest[at] == token]
    return tokens


def few_places(texts: Sequence[Sequence[int]]) -> bool:
    """Whether the index knows all places of every n-gram."""
    pairs = Counter(tuple(text[at - 2 : at]) for text in texts for at in range(2, len(text)))
    return max(pairs.values(), default=0) <= MOST_PLACES


@given(TEXTS, st.lists(st.integers(0, 2), max_size=12), st.integers(0, 16))
def test_it_finds_what_a_search_finds(texts: list[list[int]], query: list[int], most: int) -> None:
    assume(few_places(texts))
    index = SuffixIndex()
    for text in texts:
        index.add(text)
    match = index.match(query)
    length, following = expected_match(texts, query)
    assert (match.length, [list(text[at:]) for text, at in match.places]) == (length, following)
    assert list(continuation(match, most)) == expected_continuation(length, following, most)


@given(st.lists(st.integers(0, 2), max_size=40))
def test_a_text_that_grows_is_indexed_as_if_at_once(text: list[int]) -> None:
    growing: list[int] = []
    one, whole = TextIndex(growing), SuffixIndex()
    for token in text:
        growing.append(token)
        one.match(growing)
    whole.add(text)
    assert one.match(growing) == whole.match(text)


@given(TEXTS, st.lists(st.integers(0, 2), max_size=12))
def test_a_forgotten_text_leaves_what_the_others_alone_would_be(texts: list[list[int]], query: list[int]) -> None:
    assume(few_places(texts))
    index, others = SuffixIndex(), SuffixIndex()
    for text in texts:
        index.add(text)
    for text in texts[:1]:
        index.forget(text)
    for text in texts[1:]:
        others.add(text)
    assert index.match(query) == others.match(query)
    for text in texts[1:]:
        index.forget(text)
    assert not index


def test_of_an_n_gram_only_the_latest_places_are_known() -> None:
    text = [1, 2, 3] * 100
    index = SuffixIndex()
    index.add(text)
    assert [at for _, at in index.match([0, 1, 2]).places] == [299 - 3 * n for n in range(MOST_PLACES)]


def test_the_longest_match_is_found_however_often_its_end_occurs_elsewhere() -> None:
    rare = [7, 8, 9, 10, 11, 12, 1, 2]
    index = SuffixIndex()
    index.add([*rare, 5, *[1, 2, 6] * 50])
    match = index.match(rare)
    assert (match.length, [step.token for step in continuation(match, 1)]) == (8, [5])


def test_a_long_text_is_indexed_a_part_at_a_time() -> None:
    text = [*range(1000), 0, 1]
    one = TextIndex(text)
    looks = 0
    while one.match([500, 501]).length == 0:
        looks += 1
    assert looks == 1


def test_no_continuation_is_unlikely_as_a_whole() -> None:
    index = SuffixIndex()
    for following in range(11):
        index.add([1, 2, 10 + following])
    assert list(continuation(index.match([1, 2]), 4)) == []
