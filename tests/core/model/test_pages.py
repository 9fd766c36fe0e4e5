"""The pool of pages, without a model: who owns a page, which pages are remembered, and which are dealt next."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from random import Random

import pytest

from core.errors import OutOfPages
from core.model.pages import PAGE_SIZE, PageCopy, PagePool, pages_for
from tests.core.model.walks import NUM_PAGES, TEXTS

ACTIONS = ["open", "fork", "extend", "extend", "extend", "remember", "recall", "rollback", "close"]


@pytest.mark.parametrize("seed", range(10))
def test_every_session_reads_its_own_tokens(seed: int) -> None:
    """A number per place of a page stands in for the cache, another one for every token and all tokens before it."""
    random = Random(seed)
    pool, store, held = PagePool(NUM_PAGES), [[0] * PAGE_SIZE for _ in range(NUM_PAGES)], {}
    recalled = 0
    for _ in range(6000):
        action, session, other = random.choice(ACTIONS), *random.sample(range(6), 2)
        text = [int(random.random() < 0.2)] * random.choice([1, 2, 62, 64, 65, 150])
        if action == "open" and session not in held:
            pool.open(session)
            held[session] = []
        elif session not in held:
            continue
        elif action == "fork" and other not in held:
            pool.fork(session, other)
            held[other] = list(held[session])
        elif action == "extend":
            write(pool, store, held, dict.fromkeys({session, other} & set(held), text))
        elif action == "rollback":
            kept = max(0, len(held[session]) - random.choice([1, 2, 30, 64, 500]))
            del held[session][kept:]
            pool.rollback(session, kept)
        elif action == "remember":
            pool.store_prefix(session, held[session][: random.choice([PAGE_SIZE, len(held[session])])])
        elif action == "recall":
            wanted = held[session] + text
            gained = pool.lookup_prefix(session, wanted)
            held[session] = wanted[: len(held[session]) + gained]
            assert len(held[session]) < len(wanted)
            recalled += gained > 0
        elif action == "close":
            pool.close(session)
            del held[session]
        check(pool, store, held)
    assert recalled > 20
    for session in held:
        pool.close(session)
    pool.open(9)
    pool.extend([(9, NUM_PAGES * PAGE_SIZE)])
    assert sorted(pool.pages(9)) == list(range(NUM_PAGES))


@lru_cache(1000)
def keys(tokens: tuple[int, ...]) -> list[int]:
    """For each token a number that follows from it and all before it, as a cached key does."""
    return list(accumulate(tokens, lambda key, token: hash((key, token)), initial=0))[1:]


def write(pool: PagePool, store: list[list[int]], held: dict[int, list[int]], new: dict[int, list[int]]) -> None:
    free = pool.num_free
    try:
        copies = pool.extend([(session, len(tokens)) for session, tokens in new.items()])
    except OutOfPages:
        assert pool.num_free == free
        return
    for copy in copies:
        store[copy.target] = list(store[copy.source])
    for session, tokens in new.items():
        first = len(held[session])
        held[session] += tokens
        for position, key in enumerate(keys(tuple(held[session]))[first:], first):
            store[pool.pages(session)[position // PAGE_SIZE]][position % PAGE_SIZE] = key


def check(pool: PagePool, store: list[list[int]], held: dict[int, list[int]]) -> None:
    for session, tokens in held.items():
        assert len(pool.pages(session)) == pages_for(pool.length(session))
        assert pool.length(session) == len(tokens)
        assert [key for page in pool.pages(session) for key in store[page]][: len(tokens)] == keys(tuple(tokens))
    owned = {page for session in held for page in pool.pages(session)}
    assert len(owned) + pool.num_free == NUM_PAGES
    assert pool.num_prefix <= pool.num_free


def test_of_those_who_share_a_page_the_last_keeps_it() -> None:
    pool = PagePool(3)
    pool.open(0)
    pool.extend([(0, 10)])
    pool.fork(0, 1)
    pool.fork(0, 2)
    assert pool.num_free == 2
    copies = pool.extend([(0, 1), (1, 1), (2, 1)])
    assert [copy.source for copy in copies] == [pool.pages(2)[0]] * 2
    assert pool.num_free == 0


def test_a_pass_that_does_not_fit_changes_nothing() -> None:
    pool = PagePool(3)
    for session in (0, 1):
        pool.open(session)
    pool.extend([(0, 60), (1, 64)])
    with pytest.raises(OutOfPages):
        pool.extend([(0, 5), (1, 1)])
    assert (pool.num_free, pool.length(0), pool.length(1)) == (1, 60, 64)
    assert pool.extend([(0, 5)]) == []
    assert pool.num_free == 0


def test_a_fork_copies_only_the_page_it_writes_into() -> None:
    pool = PagePool(4)
    pool.open(0)
    pool.extend([(0, 70)])
    pool.fork(0, 1)
    shared = list(pool.pages(0))
    assert pool.extend([(1, 1)]) == [PageCopy(shared[1], pool.pages(1)[1])]
    assert pool.pages(1)[0] == shared[0]
    assert pool.extend([(0, 1)]) == []
    assert pool.pages(0) == shared


def test_misuse_is_refused() -> None:
    pool = PagePool(1)
    pool.open(0)
    with pytest.raises(ValueError, match="open already"):
        pool.open(0)
    with pytest.raises(ValueError, match="cannot keep 1"):
        pool.rollback(0, 1)
    pool.close(7)


# ---- remembered pages


def filled(pool: PagePool, session: int, tokens: Sequence[int]) -> list[int]:
    """Open a session, feed it what is not remembered of `tokens`, remember all of it; its pages."""
    pool.open(session)
    pool.extend([(session, len(tokens) - pool.lookup_prefix(session, tokens))])
    pool.store_prefix(session, tokens)
    return list(pool.pages(session))


def gained(pool: PagePool, tokens: Sequence[int]) -> int:
    """The tokens that a session beginning with `tokens` would recall."""
    pool.open(-1)
    found = pool.lookup_prefix(-1, tokens)
    pool.close(-1)
    return found


@pytest.mark.parametrize(("length", "found"), [(63, 0), (64, 0), (65, 64), (128, 64), (129, 128), (150, 128)])
def test_the_last_token_is_never_recalled(length: int, found: int) -> None:
    pool = PagePool(4)
    filled(pool, 0, TEXTS[0][:150])
    assert gained(pool, TEXTS[0][:length]) == found
    pool.close(0)
    assert (gained(pool, TEXTS[0][:length]), pool.num_prefix, pool.num_free) == (found, 2, 4)


def test_a_page_is_found_only_behind_the_pages_it_was_computed_behind() -> None:
    pool = PagePool(9)
    filled(pool, 0, [1] * 64 + [2] * 64 + [3] * 64)
    assert gained(pool, [1] * 64 + [3] * 64 + [0]) == 64
    assert gained(pool, [2] * 64 + [3] * 64 + [0]) == 0
    assert gained(pool, [1] * 63 + [2] * 65 + [3] * 64) == 0


def test_pages_longest_unused_are_dealt_first_and_the_end_of_a_text_before_its_beginning() -> None:
    pool = PagePool(6)
    one, other = [1] * 192, [2] * 192
    filled(pool, 0, one)
    filled(pool, 1, other)
    pool.close(0)
    pool.close(1)
    found = []
    for number in range(6):
        pool.open(10 + number)
        pool.extend([(10 + number, 1)])
        found.append((gained(pool, [*other, 0]) // PAGE_SIZE, gained(pool, [*one, 0]) // PAGE_SIZE))
    # looking for a text counts as a use of it: `one` is looked for last
    assert found == [(3, 2), (2, 2), (1, 2), (0, 2), (0, 1), (0, 0)]


def test_a_page_in_use_is_not_dealt_however_long_ago_it_was_computed() -> None:
    pool = PagePool(4)
    filled(pool, 0, [1] * 129)
    pool.open(1)
    with pytest.raises(OutOfPages):
        pool.extend([(1, 65)])
    pool.extend([(1, 64)])
    assert gained(pool, [1] * 129) == 128


def test_equal_pages_computed_beside_each_other_become_one() -> None:
    pool = PagePool(4)
    pool.open(0)
    pool.open(1)
    pool.extend([(0, 128), (1, 128)])
    assert pool.num_free == 0
    for session in (0, 1):
        pool.store_prefix(session, [1] * 128)
    assert pool.pages(0) == pool.pages(1)
    assert pool.num_free == 2


def test_what_others_computed_meanwhile_is_taken_over_in_the_middle_of_a_page() -> None:
    pool = PagePool(9)
    pool.open(0)
    pool.extend([(0, 100)])
    pool.store_prefix(0, [1] * 100)
    pages = filled(pool, 1, [1] * 200)
    assert pool.lookup_prefix(0, [1] * 150) == 28
    assert pool.pages(0) == pages[:2]
    assert pool.lookup_prefix(0, [1] * 150) == 0


def test_a_remembered_page_is_never_written_into() -> None:
    pool = PagePool(3)
    page, *_ = filled(pool, 0, [1] * 64)
    pool.rollback(0, 60)
    assert pool.extend([(0, 1)]) == [PageCopy(page, pool.pages(0)[0])]
    assert gained(pool, [1] * 65) == 64


def test_no_more_is_remembered_than_was_said_to_be_committed() -> None:
    pool = PagePool(4)
    pool.open(0)
    pool.extend([(0, 200)])
    pool.store_prefix(0, [1] * 127)
    assert gained(pool, [1] * 200) == 64


def test_sessions_beside_each_other_have_room_to_grow() -> None:
    pool = PagePool(128)
    for session in range(8):
        pool.open(session)
        pool.extend([(session, 20)])
    for _ in range(14):
        pool.extend([(session, 20) for session in range(8)])
    for session in range(8):
        first, *others = pool.pages(session)
        assert others == list(range(first + 1, first + 5))


def test_where_all_is_remembered_most_sessions_still_have_pages_that_follow_one_another() -> None:
    pool, dice = PagePool(256), random.Random(0)
    live: dict[int, list[int]] = {}
    seen = together = 0
    for session in range(400):
        live[session] = [dice.randrange(2000) for _ in range(dice.randrange(40, 130))]
        pool.open(session)
        pool.extend([(session, len(live[session]))])
        while len(live) == 8:
            for number, tokens in list(live.items()):
                tokens += [dice.randrange(2000) for _ in range(dice.randint(1, 4))]
                pool.extend([(number, len(tokens) - pool.length(number))])
                pool.store_prefix(number, tokens)
                first, *others = pool.pages(number)
                seen += 1
                together += others == list(range(first + 1, first + 1 + len(others)))
                if len(tokens) > 250 or dice.random() < 0.02:
                    pool.close(number)
                    del live[number]
    assert pool.num_prefix > 0.8 * 256
    assert together > 0.8 * seen


def test_a_lone_session_after_many_others_has_pages_that_follow_one_another() -> None:
    pool, dice, together = PagePool(64), random.Random(0), 0
    for session in range(300):
        tokens = [dice.randrange(2000) for _ in range(dice.randrange(30, 600))]
        pool.open(session)
        pool.lookup_prefix(session, tokens)
        while pool.length(session) < len(tokens):
            pool.extend([(session, min(23, len(tokens) - pool.length(session)))])
            pool.store_prefix(session, tokens[: pool.length(session)])
        pages = pool.pages(session)
        together += pages == list(range(pages[0], pages[0] + len(pages)))
        pool.close(session)
    assert together >= 270
