"""Random walks over sessions: no page lost, none owned twice, and every logit that of a session begun afresh."""

from __future__ import annotations

import tempfile
from functools import cache
from itertools import count

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from core.errors import OutOfPages
from core.model.base import Rows
from core.model.causal_lm import CausalLM, load_model
from core.model.pages import PAGE_SIZE, PageCopy, PagePool, pages_for
from tests.core.model.random_models import fresh, save_model

NUM_PAGES = 9


@cache
def walked_model() -> tuple[CausalLM, CausalLM]:
    """The same weights twice: one model to walk on, one to compare with."""
    with tempfile.TemporaryDirectory() as directory:
        save_model(directory, num_hidden_layers=1, hidden_size=16, intermediate_size=32, vocab_size=50)
        return tuple(load_model(directory, dtype=torch.float32, num_pages=pages) for pages in (NUM_PAGES, 8))


class Walk(RuleBasedStateMachine):
    """Sessions opened, forked, fed, rolled back and closed in any order, in a pool that runs short."""

    @initialize()
    def start(self) -> None:
        self.model, self.oracle = walked_model()
        for session in range(100):
            self.model.close(session)
        self.sessions: dict[int, list[int]] = {}
        self.opened = 0

    def _some_session(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.sessions)))

    @precondition(lambda self: len(self.sessions) < 5)
    @rule()
    def open(self) -> None:
        self.model.open(self.opened)
        self.sessions[self.opened] = []
        self.opened += 1

    @precondition(lambda self: 0 < len(self.sessions) < 5)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        source = self._some_session(data)
        used = self.model.num_used_pages
        self.model.fork(source, self.opened)
        assert self.model.num_used_pages == used
        self.sessions[self.opened] = list(self.sessions[source])
        self.opened += 1

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def feed(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.sessions)), min_size=1, unique=True))
        lengths = [data.draw(st.sampled_from([1, 2, 5, 63, 64, 70])) for _ in chosen]
        seed = data.draw(st.integers(0, 99))
        batch = [
            Rows(session, [(seed + 7 * i) % 50 for i in range(length)], length)
            for session, length in zip(chosen, lengths, strict=True)
        ]
        before = self.model.num_used_pages
        try:
            logits = self.model.forward(batch)
        except OutOfPages:
            assert self.model.num_used_pages == before
            assert before + sum(pages_for(length) + 1 for length in lengths) > NUM_PAGES
            return
        for rows, part in zip(batch, logits.split(lengths), strict=True):
            self.sessions[rows.session] += rows.tokens
            assert torch.equal(part, self._afresh(self.sessions[rows.session])[-len(part) :])

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def rollback(self, data: st.DataObject) -> None:
        session = self._some_session(data)
        length = data.draw(st.integers(0, len(self.sessions[session])))
        self.model.rollback(session, length)
        del self.sessions[session][length:]

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        session = self._some_session(data)
        self.model.close(session)
        del self.sessions[session]

    @invariant()
    def lengths_are_kept(self) -> None:
        for session, tokens in self.sessions.items():
            assert self.model.num_cached(session) == len(tokens)

    @invariant()
    def pages_suffice_and_none_is_lost(self) -> None:
        """Sessions with equal beginnings may share pages, so the count lies between two bounds."""
        needed = [pages_for(len(tokens)) for tokens in self.sessions.values()]
        assert max(needed, default=0) <= self.model.num_used_pages <= sum(needed)

    def teardown(self) -> None:
        for session in self.sessions:
            self.model.close(session)
        assert self.model.num_used_pages == 0

    def _afresh(self, tokens: list[int]) -> torch.Tensor:
        logits = fresh(self.oracle, 0, tokens)
        self.oracle.close(0)
        return logits


Walk.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
test_random_walks = Walk.TestCase

STEP = st.tuples(
    st.sampled_from(["open", "fork", "extend", "extend", "extend", "rollback", "close"]),
    st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True),
    st.sampled_from([1, 2, 5, 62, 64, 65, 150]),
    st.floats(0, 1),
)


@settings(max_examples=300)
@given(st.lists(STEP, max_size=40))
def test_every_session_reads_its_own_tokens(steps: list[tuple[str, list[int], int, float]]) -> None:
    """A store of one number per slot stands in for the cache; every token written anywhere is another number."""
    pool, store, held, serial = PagePool(NUM_PAGES), {}, {}, count()
    for action, sessions, tokens, part in steps:
        session, known = sessions[0], [session for session in sessions if session in held]
        if action == "open" and session not in held:
            pool.open(session)
            held[session] = []
        elif action == "fork" and len(known) == 1 and len(sessions) > 1:
            other = next(other for other in sessions if other not in held)
            pool.fork(known[0], other)
            held[other] = list(held[known[0]])
        elif action == "extend" and known:
            write(pool, store, held, {session: [next(serial) for _ in range(tokens)] for session in known})
        elif action == "rollback" and known:
            del held[known[0]][int(part * len(held[known[0]])) :]
            pool.rollback(known[0], len(held[known[0]]))
        elif action == "close":
            pool.close(session)
            held.pop(session, None)
        check(pool, store, held)


def write(pool: PagePool, store: dict[int, int], held: dict[int, list[int]], new: dict[int, list[int]]) -> None:
    free = pool.num_free
    try:
        copies = pool.extend([(session, len(tokens)) for session, tokens in new.items()])
    except OutOfPages:
        assert pool.num_free == free
        return
    for copy in copies:
        for place in range(PAGE_SIZE):
            store[copy.target * PAGE_SIZE + place] = store.get(copy.source * PAGE_SIZE + place, -1)
    for session, tokens in new.items():
        for position, token in enumerate(tokens, len(held[session])):
            store[slot(pool, session, position)] = token
        held[session] += tokens


def slot(pool: PagePool, session: int, position: int) -> int:
    return pool.pages(session)[position // PAGE_SIZE] * PAGE_SIZE + position % PAGE_SIZE


def check(pool: PagePool, store: dict[int, int], held: dict[int, list[int]]) -> None:
    for session, tokens in held.items():
        assert len(pool.pages(session)) == pages_for(pool.length(session))
        assert [store[slot(pool, session, position)] for position in range(pool.length(session))] == tokens
    owned = {page for session in held for page in pool.pages(session)}
    assert len(owned) + pool.num_free == NUM_PAGES


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


def test_a_pass_that_makes_no_sense_is_refused_before_anything_is_written() -> None:
    model, _ = walked_model()
    model.open(200)
    refused = [
        [Rows(200, [], 0)],
        [Rows(200, [1], 2)],
        [Rows(200, [1], 1), Rows(200, [2], 1)],
        [Rows(200, [1] * (model.context + 1), 1)],
    ]
    for batch in refused:
        with pytest.raises(ValueError, match="session"):
            model.forward(batch)
    assert model.num_cached(200) == 0
    assert model.forward([Rows(200, [1, 2], 0)]).shape == (0, model.vocab_size)
    model.close(200)
