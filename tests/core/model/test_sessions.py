"""Sessions of a model in any order: every logit is that of a session begun afresh, and no page is lost."""

from __future__ import annotations

import tempfile
from functools import cache

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from core.errors import OutOfPages
from core.model.base import Rows
from core.model.causal_lm import CausalLM, load_model
from core.model.pages import PAGE_SIZE, pages_for
from tests.core.model.random_models import fresh, save_model
from tests.core.model.walks import NUM_PAGES, TEXTS


@cache
def walked_model() -> tuple[CausalLM, CausalLM]:
    """The same weights twice: one model to walk on, one to compare with."""
    with tempfile.TemporaryDirectory() as directory:
        sizes = {"num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 32, "vocab_size": 50}
        save_model(directory, **sizes, max_position_embeddings=len(TEXTS[0]))
        return tuple(load_model(directory, dtype=torch.float32, num_pages=NUM_PAGES) for _ in range(2))


class Walk(RuleBasedStateMachine):
    """Sessions opened, forked, fed, remembered, recalled, rolled back and closed in any order; pages run short.

    There are two texts, so they often begin alike.
    """

    models = staticmethod(walked_model)

    @initialize()
    def start(self) -> None:
        self.model, self.oracle = self.models()
        self.sessions: dict[int, list[int]] = {}
        self.opened = 0

    def _some_session(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.sessions)))

    @precondition(lambda self: len(self.sessions) < 5)
    @rule(text=st.sampled_from(TEXTS))
    def open(self, text: list[int]) -> None:
        self.model.open(self.opened)
        gained = self.model.lookup_prefix(self.opened, text)
        assert gained == self.model.num_cached(self.opened) < len(text)
        self.sessions[self.opened] = text[:gained]
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
        lengths = [data.draw(st.sampled_from([70, 64, 63, 5, 2, 1])) for _ in chosen]
        text = data.draw(st.sampled_from(TEXTS))
        batch = [
            Rows(session, text[len(self.sessions[session]) :][:length], length)
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
            self.model.store_prefix(
                rows.session, self.sessions[rows.session][: data.draw(st.sampled_from([1024, 0, 64]))]
            )

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
        assert self.model.num_used_pages + self.model.num_free_pages == NUM_PAGES
        assert self.model.num_prefix_pages <= self.model.num_free_pages

    def teardown(self) -> None:
        for session in self.sessions:
            self.model.close(session)
        assert self.model.num_used_pages == 0
        take_all_pages(self.model)

    def _afresh(self, tokens: list[int]) -> torch.Tensor:
        logits = fresh(self.oracle, 0, tokens)
        self.oracle.close(0)
        return logits


Walk.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
test_random_walks = Walk.TestCase


def take_all_pages(model: CausalLM) -> None:
    """No page is lost: two sessions find room for all that the pool can hold, whatever was remembered."""
    for session, pages in ((-1, NUM_PAGES // 2), (-2, NUM_PAGES - NUM_PAGES // 2)):
        model.open(session)
        model.forward([Rows(session, [1] * pages * PAGE_SIZE, 0)])
    assert (model.num_free_pages, model.num_prefix_pages) == (0, 0)
    model.close(-1)
    model.close(-2)
    assert (model.num_free_pages, model.num_prefix_pages) == (NUM_PAGES, 0)


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
