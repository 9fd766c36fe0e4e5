"""However many ask for the health of a service, a verifier is asked once."""

from __future__ import annotations

import asyncio

import pytest

from serve_app.deployments.health import FRESH, SharedLook
from tests.serve_app.access.test_keys import Clock


class Verifier:
    """Answers when it may."""

    def __init__(self) -> None:
        self.asked = 0
        self.may = asyncio.Event()
        self.well = True

    async def healthy(self) -> bool:
        self.asked += 1
        await self.may.wait()
        return self.well


async def test_all_who_wait_share_one_look_and_those_of_the_next_second_its_result() -> None:
    verifier, clock = Verifier(), Clock()
    look = SharedLook(verifier.healthy, clock)
    waiting = [asyncio.create_task(look()) for _ in range(50)]
    await asyncio.sleep(0)
    clock.now += 4 * FRESH  # however long it takes
    waiting += [asyncio.create_task(look()) for _ in range(50)]
    verifier.may.set()
    assert await asyncio.gather(*waiting) == [True] * 100
    verifier.well = False
    clock.now += FRESH - 0.01
    assert await look()
    assert verifier.asked == 1
    clock.now += 0.01
    assert [await look() for _ in range(3)] == [False] * 3
    assert verifier.asked == 2


async def test_one_who_leaves_takes_nothing_from_the_others() -> None:
    verifier = Verifier()
    look = SharedLook(verifier.healthy, Clock())
    first, second = (asyncio.create_task(look()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    verifier.may.set()
    assert await second
    assert first.cancelled()
    assert verifier.asked == 1


async def test_a_look_that_fails_is_not_remembered() -> None:
    verdicts = [RuntimeError("the cluster is gone")]

    async def fails_once() -> bool:
        if verdicts:
            raise verdicts.pop()
        return True

    look = SharedLook(fails_once, Clock())
    with pytest.raises(RuntimeError, match="is gone"):
        await look()
    assert await look()
