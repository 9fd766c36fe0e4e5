"""Whether a verifier runs is known without delay, and told once: when the last is lost, and when one is back."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError

from serve_app.deployments.actors.ingress import SpeculativeIngress
from serve_app.deployments.answer.verifier_watch import MISSES, VerifiersGone, VerifierWatch
from tests.serve_app.access.test_keys import Clock

SOON = 0.01  # seconds


class Replica:
    """Answers, is silent, or raises."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.silent = False
        self.asked = 0

    async def get_queue_len(self, *, deadline_s: float) -> int:
        del deadline_s
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        if self.silent:
            await asyncio.Event().wait()
        return 32  # full


class Cluster:
    """What Serve lists, and a watch over it."""

    def __init__(self, size: int = 1) -> None:
        self.clock = Clock()
        self.replicas = [Replica() for _ in range(size)]
        self.watch = VerifierWatch(lambda: self.replicas, self.clock, period=SOON)

    async def ask(self, times: int = 1) -> None:
        for _ in range(times):
            await self.watch.probe()


async def test_none_runs_before_one_has_answered() -> None:
    cluster = Cluster()
    assert not cluster.watch.running
    await cluster.ask()
    assert cluster.watch.running


@pytest.mark.parametrize("failure", [ActorDiedError(), ActorUnavailableError("its node is gone", b"1" * 16)])
async def test_the_last_that_dies_is_missed_at_once_and_another_suffices(failure: Exception) -> None:
    cluster = Cluster(size=2)
    await cluster.ask()
    cluster.replicas[0].failure = failure
    await cluster.ask()
    assert cluster.watch.running
    cluster.replicas[1].failure = failure
    await cluster.ask()
    assert not cluster.watch.running


async def test_none_listed_is_none_running() -> None:
    cluster = Cluster()
    await cluster.ask()
    cluster.replicas = []
    await cluster.ask()
    assert not cluster.watch.running


async def test_one_that_serve_lists_and_that_says_nothing_is_given_up() -> None:
    cluster = Cluster()
    await cluster.ask()
    cluster.replicas[0].silent = True
    await cluster.ask(MISSES - 1)
    assert cluster.watch.running
    await cluster.ask()
    assert not cluster.watch.running


async def test_one_too_busy_to_answer_is_known_by_its_runs() -> None:
    cluster = Cluster()
    await cluster.ask()
    cluster.replicas[0].silent = True
    for _ in range(3 * MISSES):
        await cluster.ask()
        cluster.watch.note_sign_of_life()
    assert cluster.watch.running


async def test_what_arrives_late_from_a_dead_one_does_not_make_it_run() -> None:
    cluster = Cluster()
    await cluster.ask()
    cluster.replicas = []
    await cluster.ask()
    cluster.watch.note_sign_of_life()
    assert not cluster.watch.running


async def test_an_outage_has_two_lines_in_the_log_however_long_it_is(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    with caplog.at_level(logging.INFO):
        await cluster.ask(3)
        assert not caplog.records, "at the start there is nothing to tell"
        cluster.replicas[0].failure = ActorDiedError()
        await cluster.ask(10)
        cluster.clock.now += 12.5
        cluster.replicas = [Replica()]
        await cluster.ask(10)
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "no verifier runs",
        "a verifier runs again after 12.5 s",
    ]


async def test_it_goes_on_asking_and_wakes_those_who_wait() -> None:
    cluster = Cluster()
    replica, cluster.replicas = cluster.replicas[0], []
    cluster.watch.begin()
    cluster.watch.begin()
    waiting = [asyncio.create_task(cluster.watch.until_running(patience=60)) for _ in range(5)]
    await asyncio.sleep(0)
    cluster.replicas = [replica]
    async with asyncio.timeout(60):
        await asyncio.gather(*waiting)
        asked = replica.asked
        while replica.asked == asked:  # noqa: ASYNC110 - it is the watch that asks
            await asyncio.sleep(SOON)


async def test_the_health_of_an_ingress_is_known_without_waiting_for_anybody() -> None:
    cluster = Cluster()
    for running in (False, True):
        asked = SpeculativeIngress.healthy(cast(Any, SimpleNamespace(_watch=cluster.watch)))
        with pytest.raises(StopIteration) as ended:
            asked.send(None)  # a step, in which it is over
        assert ended.value.value is running
        await cluster.ask()


async def test_patience_ends() -> None:
    with pytest.raises(VerifiersGone):
        await Cluster().watch.until_running(patience=SOON)


async def test_what_waits_for_a_verifier_is_cancelled_when_none_runs_any_more() -> None:
    cluster = Cluster()
    await cluster.ask()
    cancelled = asyncio.Event()

    async def queued() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    waiting = asyncio.create_task(cluster.watch.unless_gone(queued()))
    await asyncio.sleep(0)
    cluster.replicas = []
    await cluster.ask()
    with pytest.raises(VerifiersGone):
        await waiting
    assert cancelled.is_set()


async def test_what_has_come_is_given_and_what_has_failed_is_raised() -> None:
    cluster = Cluster()
    await cluster.ask()

    async def started() -> str:
        return "started"

    async def refused() -> str:
        raise ValueError("refused")

    assert await cluster.watch.unless_gone(started()) == "started"
    with pytest.raises(ValueError, match="refused"):
        await cluster.watch.unless_gone(refused())
