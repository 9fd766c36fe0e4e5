"""How sure a draft is of a guess, and where that ends its chain."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.draft.session import DraftSession
from core.draft.token_confidence import EDGES, Confidence
from core.model.draft_tokens import DraftToken
from core.wire.messages import Commit
from tests.core.pair import opened
from tests.core.simulation import VERIFIER
from tests.core.toy import PROMPT, request


def test_confidence_learns_what_became_of_guesses_with_such_a_lead() -> None:
    confidence = Confidence()
    before = confidence.of(5.0)
    for number in range(400):
        confidence.observe(0.6, right=number % 4 == 0)
    assert confidence.of(0.7) == pytest.approx(0.25, abs=0.02)
    assert confidence.of(5.0) == before


@given(st.lists(st.tuples(st.floats(0.0, math.inf), st.booleans()), max_size=100), st.floats(0.0, math.inf))
def test_confidence_is_a_probability(guesses: list[tuple[float, bool]], lead: float) -> None:
    confidence = Confidence()
    for guess, right in guesses:
        confidence.observe(guess, right=right)
    assert 0.0 < confidence.of(lead) < 1.0


def test_before_anything_was_learned_a_larger_lead_is_surer() -> None:
    sure = [Confidence().of(lead) for lead in (0.0, *EDGES)]
    assert sure == sorted(set(sure))


def test_a_chain_ends_with_the_first_token_that_is_not_worth_another() -> None:
    session = DraftSession(opened(request(400), ahead=16), VERIFIER, 0.0, Confidence())
    for token in range(16):
        session.chain.append(DraftToken(token, 3.5))
    worths, lengths = (0.0, 0.1, 0.5, 0.99, 1.5), []
    for worth in worths:
        session.take(Commit(1, len(PROMPT), (), min_survival=worth), 0.0)
        lengths.append(len(session.proposal(0.0).tokens))
        assert session.complete
    sure = [Confidence().of(3.5) ** count for count in range(1, 17)]
    assert lengths == [next((n + 1 for n in range(16) if sure[n] < worth), 16) for worth in worths]
    assert lengths[0] == 16 > lengths[1] > lengths[2] > lengths[3] == 1
