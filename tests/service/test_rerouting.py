"""An answer that the router gave to the wrong task's draft goes on with another one, token for token the same."""

from __future__ import annotations

import pytest

from tests.service.conftest import Body, Service, chat, token_ids
from tests.service.misled_router import ASTRAY

pytestmark = pytest.mark.cluster

MANY = 200  # proposed tokens, of which some are accepted
LONG = {"max_tokens": 300, "logit_bias": {"2": -100}}  # bars the end-of-sequence token
SUM = f"Tom has 12 apples and buys 30 more for 2 dollars each. How many apples does he have? {ASTRAY}"


def asked(seed: int, **speculation: object) -> Body:
    return chat(SUM, seed=seed, temperature=0.7, speculation=speculation, **LONG)


def test_a_wrong_route_is_corrected_within_the_answer(service: Service) -> None:
    before, seeds, moved = service.ingress(), iter(range(100)), list[bool]()

    def corrected() -> bool:
        """Whether an answer, the same in any case, has moved: one that drafts hardly pay for may have no proposals."""
        seed = next(seeds)
        answer, plain = service.answers([asked(seed), asked(seed, enabled=False)])
        assert token_ids(answer) == token_ids(plain)
        used = answer["usage"]["speculation"]
        assert len(used["rerouted_from"]) == used["rerouted"]
        moved.append(service.tasks[1] in used["rerouted_from"] and used["task"] != service.tasks[1])
        return any(moved) and (service.ingress() - before)["proposed_after_moves"] >= MANY

    service.eventually(corrected, 120.0)
    counts = service.ingress() - before
    assert counts["rerouted"] > 0
    assert counts["proposed_before_moves"] > counts["accepted_before_moves"]
    rates = [counts[f"accepted_{when}_moves"] / counts[f"proposed_{when}_moves"] for when in ("before", "after")]
    assert rates[0] < rates[1]


def test_choices_that_may_each_move_leave_nothing_behind(service: Service) -> None:
    answer = service.answer(asked(1, enabled=True) | {"n": 3})
    plain = service.answer(asked(1, enabled=False) | {"n": 3})
    assert token_ids(answer) == token_ids(plain)
    service.eventually(lambda: not service.held())


def test_a_request_that_fixes_the_draft_or_its_length_is_not_rerouted(service: Service) -> None:
    for speculation in ({"num_speculative_tokens": 4}, {"task": service.tasks[1]}):
        used = service.answer(asked(2, **speculation))["usage"]["speculation"]
        assert (used["rerouted"], used["rerouted_from"]) == (0, [])
