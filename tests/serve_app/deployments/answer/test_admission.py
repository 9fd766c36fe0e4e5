"""Admission lets in what a verifier can start and a queue can hold, and tells others when there will be room."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from serve_app.deployments.answer.admission import MAX_WAIT, Admission, Place
from serve_app.http.service import Overloaded
from tests.serve_app.access.test_keys import Clock

PLACES, QUEUE = 4, 8


class Crowd:
    """Prompts before an admission of `PLACES` and `QUEUE`."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.verifiers = 1
        self.admission = Admission(lambda: PLACES * self.verifiers, QUEUE, self.clock)
        self._prompts: list[ExitStack] = []

    def enter(self, number: int = 1) -> list[Place]:
        entered = []
        for _ in range(number):
            prompt = ExitStack()
            entered.append(prompt.enter_context(self.admission.place()))
            self._prompts.append(prompt)
        return entered

    def leave(self, number: int = 1) -> None:
        """Those who came first."""
        for _ in range(number):
            self._prompts.pop(0).close()

    def start(self, number: int = PLACES) -> None:
        for place in self.enter(number):
            place.start()

    def answer(self, seconds: float, number: int = 1) -> None:
        """So many are answered one after the other, alone."""
        for _ in range(number):
            self.start(1)
            self.clock.now += seconds
            self.leave()

    def refusal(self) -> Overloaded:
        with pytest.raises(Overloaded) as caught:
            self.enter()
        return caught.value


@pytest.mark.parametrize("verifiers", [1, 3])
def test_what_verifiers_can_start_and_the_queue_can_hold_comes_in_and_the_next_is_refused(verifiers: int) -> None:
    crowd = Crowd()
    crowd.verifiers = verifiers
    crowd.enter(PLACES * verifiers + QUEUE)  # at once, before any is started
    assert crowd.refusal().status == 503
    assert crowd.admission.waiting == PLACES * verifiers + QUEUE
    crowd.leave()
    crowd.enter()
    crowd.refusal()


def test_when_all_places_are_taken_the_queue_alone_counts() -> None:
    crowd = Crowd()
    crowd.start(PLACES)
    crowd.enter(QUEUE)
    crowd.refusal()
    assert (crowd.admission.running, crowd.admission.waiting) == (PLACES, QUEUE)


def test_the_time_to_come_back_is_made_from_the_length_of_the_queue_and_the_rate_of_answers() -> None:
    crowd = Crowd()
    crowd.answer(10.0, number=3)
    crowd.start()
    crowd.enter(QUEUE)
    refusal = crowd.refusal()
    assert refusal.retry_after_s == 20  # 8 wait, and 4 places are free every 10 seconds
    assert "try again in 20 s" in str(refusal)


def test_it_follows_answers_that_become_quicker() -> None:
    crowd = Crowd()
    crowd.answer(10.0)
    crowd.answer(0.5, number=60)
    crowd.start()
    crowd.enter(QUEUE)
    assert crowd.refusal().retry_after_s == 2  # 8 at 8 a second, and what is left of the first


@pytest.mark.parametrize("earlier", [0, 1])
def test_answers_that_take_longer_than_any_before_are_counted_as_they_run(earlier: int) -> None:
    crowd = Crowd()
    crowd.answer(0.1, number=earlier)
    crowd.start()
    crowd.enter(QUEUE)
    assert crowd.refusal().retry_after_s == 1
    crowd.clock.now += 7.0
    assert crowd.refusal().retry_after_s == 14


@pytest.mark.parametrize(("seconds", "told"), [(0.001, 1), (1000.0, MAX_WAIT)])
def test_it_has_bounds(seconds: float, told: int) -> None:
    crowd = Crowd()
    crowd.answer(seconds)
    crowd.start()
    crowd.enter(QUEUE)
    assert crowd.refusal().retry_after_s == told


def test_when_the_verifier_is_lost_its_prompts_wait_again_and_all_its_places_will_be_free() -> None:
    crowd = Crowd()
    crowd.answer(10.0)
    running = crowd.enter(PLACES)
    for place in running:
        place.start()
    crowd.enter(QUEUE)
    for place in running:
        place.lose()
    assert (crowd.admission.running, crowd.admission.waiting) == (0, PLACES + QUEUE)
    assert crowd.refusal().retry_after_s == 30  # 12 wait
