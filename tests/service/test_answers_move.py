"""An answer that the router gave to the wrong task's draft goes on with another one, token for token the same.

The first tests of the service by their file's name, when it has learned from no other answer which drafts pay.
"""

from __future__ import annotations

import pytest

from tests.service.conftest import Body, Service, chat, token_ids
from tests.service.misled_router import ASTRAY, MISLED

pytestmark = pytest.mark.cluster

AT_ONCE = 2


def asked(number: int, **speculation: object) -> Body:
    return chat(MISLED[number], seed=number, temperature=0.0, max_tokens=300, speculation=speculation)


def test_a_wrong_route_is_corrected_within_the_answer(service: Service) -> None:
    """A few answers at a time: the service learns from the first ones not to begin there, and on a busy machine the
    draft that they begin with may not pay, and so not be asked.
    """
    before, moved = service.ingress(), False
    for first in range(0, len(MISLED) - AT_ONCE, AT_ONCE):
        some = range(first, first + AT_ONCE)
        answers = service.answers([asked(number) for number in some])
        plain = service.answers([asked(number, enabled=False) for number in some])
        assert [token_ids(answer) for answer in answers] == [token_ids(answer) for answer in plain]
        used = [answer["usage"]["speculation"] for answer in answers]
        assert all(len(one["rerouted_from"]) == one["rerouted"] for one in used)
        moved = moved or any(ASTRAY in one["rerouted_from"] and one["task"] != ASTRAY for one in used)
        if moved:
            break
    assert moved
    counts = service.ingress() - before
    assert counts["rerouted"] > 0
    assert counts["proposed_before_moves"] > counts["accepted_before_moves"]
    assert counts["proposed_after_moves"] > 0


def test_choices_that_may_each_move_leave_nothing_behind(service: Service) -> None:
    answer = service.answer(asked(1, enabled=True) | {"n": 3})
    plain = service.answer(asked(1, enabled=False) | {"n": 3})
    assert token_ids(answer) == token_ids(plain)
    service.frees_everything()


def test_a_request_that_fixes_the_draft_or_its_length_is_not_rerouted(service: Service) -> None:
    for speculation in ({"num_speculative_tokens": 4}, {"task": ASTRAY}):
        used = service.answer(asked(2, **speculation))["usage"]["speculation"]
        assert (used["rerouted"], used["rerouted_from"]) == (0, [])
