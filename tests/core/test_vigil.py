"""Staying awake where nobody else wants the core, and sleeping where somebody does."""

from __future__ import annotations

from itertools import pairwise

from core.vigil import FIRST_PAUSE, FORGET, LONGEST_PAUSE, Vigil
from tests.core.toy import Clock


class Core:
    """A core that somebody else wants for a share of the time; it looks at clocks every 0.1 ms."""

    def __init__(self, others: float = 0.0) -> None:
        self.clock = Clock()
        self.others = others
        self.looks = 0
        self._ran = 0.0
        self.vigil = Vigil(self.clock, lambda: self._ran)

    def keep(self, seconds: float, arrives: float = 1e9) -> bool:
        """Whether what arrives after so many seconds is found."""
        began = self.clock.now

        def arrived() -> bool:
            self.looks += 1
            self.clock.now += 0.0001
            self._ran += 0.0001 * (1 - self.others)
            return self.clock.now >= began + arrives

        return self.vigil.keep(arrived, seconds)


def test_what_arrives_is_found_at_once() -> None:
    core = Core()
    assert core.keep(0.010, arrives=0.007)
    assert 0.007 <= core.clock.now < 0.0072


def test_nothing_is_waited_for_longer_than_it_should_take() -> None:
    core = Core()
    assert not core.keep(0.010)
    assert 0.010 <= core.clock.now < 0.0102


def test_alone_on_its_core_it_goes_on() -> None:
    core = Core(others=0.01)
    assert all(core.keep(0.010, arrives=0.007) for _ in range(10_000))


def test_where_others_want_the_core_it_sleeps_after_a_moment() -> None:
    core = Core(others=0.5)
    assert not core.keep(0.010, arrives=0.007)
    assert core.clock.now < 0.005
    looks = core.looks
    assert not core.keep(0.010, arrives=0.0)
    assert core.looks == looks


def test_trials_become_ever_rarer_and_begin_anew_after_one_that_went_well() -> None:
    core, trials = Core(others=0.5), []
    while core.clock.now < 4 * LONGEST_PAUSE:
        looks = core.looks
        core.keep(0.010)
        if core.looks > looks:
            trials.append(core.clock.now)
        core.clock.now += FIRST_PAUSE / 4
    pauses = [later - earlier for earlier, later in pairwise(trials)]
    assert FIRST_PAUSE <= pauses[0] < 1.5 * FIRST_PAUSE
    assert LONGEST_PAUSE <= pauses[-1] < 1.1 * LONGEST_PAUSE
    core.others = 0.0
    core.clock.now += LONGEST_PAUSE
    while core.clock.now < 6 * LONGEST_PAUSE + 2 * FORGET:
        core.keep(0.010)
    core.others = 0.5
    core.keep(0.010)
    core.others = 0.0
    core.clock.now += 1.5 * FIRST_PAUSE
    assert core.keep(0.010, arrives=0.005)
