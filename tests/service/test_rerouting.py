"""An answer that the router gave to the wrong task's draft goes on with another one, token for token the same."""

from __future__ import annotations

import itertools

import pytest

from tests.service.conftest import Body, Service, chat, token_ids
from tests.service.misled_router import ASTRAY

pytestmark = pytest.mark.cluster

AT_ONCE = 4
LONG = {"max_tokens": 300, "logit_bias": {"2": -100}}  # bars the end-of-sequence token
SUM = f"Tom has 12 apples and buys 30 more for 2 dollars each. How many apples does he have? ({ASTRAY})"


def asked(seed: int, **speculation: object) -> Body:
    return chat(SUM, seed=seed, temperature=0.7, speculation=speculation, **LONG)


def test_a_wrong_route_is_corrected_within_the_answer(service: Service) -> None:
    """Several answers at a time, since the service learns from the first ones not to begin there."""
    before, seeds = service.ingress(), itertools.count()

    def corrected() -> bool:
        """Whether an answer, all being the same in any case, has moved: on a busy machine its draft may not pay."""
        some = list(itertools.islice(seeds, AT_ONCE))
        answers = service.answers([asked(seed) for seed in some])
        plain = service.answers([asked(seed, enabled=False) for seed in some])
        assert [token_ids(answer) for answer in answers] == [token_ids(answer) for answer in plain]
        used = [answer["usage"]["speculation"] for answer in answers]
        assert all(len(one["rerouted_from"]) == one["rerouted"] for one in used)
        return any(ASTRAY in one["rerouted_from"] and one["task"] != ASTRAY for one in used)

    service.eventually(corrected, 90.0)
    counts = service.ingress() - before
    assert counts["rerouted"] > 0
    assert counts["proposed_before_moves"] > counts["accepted_before_moves"]
    assert counts["proposed_after_moves"] > 0


def test_choices_that_may_each_move_leave_nothing_behind(service: Service) -> None:
    answer = service.answer(asked(1, enabled=True) | {"n": 3})
    plain = service.answer(asked(1, enabled=False) | {"n": 3})
    assert token_ids(answer) == token_ids(plain)
    service.eventually(lambda: not service.held())


def test_a_request_that_fixes_the_draft_or_its_length_is_not_rerouted(service: Service) -> None:
    for speculation in ({"num_speculative_tokens": 4}, {"task": ASTRAY}):
        used = service.answer(asked(2, **speculation))["usage"]["speculation"]
        assert (used["rerouted"], used["rerouted_from"]) == (0, [])
