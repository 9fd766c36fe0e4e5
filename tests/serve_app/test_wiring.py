"""Draft sessions come, end and are given up with the generation they are for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray.serve.handle import DeploymentResponseGenerator

from core.generation import GenerationRequest, Run
from core.messages import Address, OpenSession
from core.sampling_params import SamplingParams
from serve_app.config import draft_label, pool_application
from serve_app.ingress import SpeculativeIngress
from serve_app.received import Received
from serve_app.target_verifier import Started, unwanted_pools
from serve_app.wiring import Wiring

WINDOW = 16
ADDRESS = Address("tcp://127.0.0.1:1", "key")


class Stream:
    """A draft session that is open until cancelled."""

    def __init__(self) -> None:
        self.cancelled = False

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> None:
        await asyncio.Event().wait()

    def cancel(self) -> None:
        self.cancelled = True


class Pools:
    """A router that answers when told to, and pools that always have room."""

    def __init__(self, *, crowded: bool = False) -> None:
        self.crowded = crowded
        self.routed = 0
        self.answer = asyncio.Event()
        self.opened: list[OpenSession] = []
        self.streams: list[Stream] = []

    async def route(self, _tokens: Sequence[int]) -> str:
        self.routed += 1
        await self.answer.wait()
        return "math"

    def spares(self, task: str, started: Started, session: int) -> bool:
        return started.spares(session, pool_application(task))

    def open_draft(self, task: str, opened: OpenSession) -> DeploymentResponseGenerator[None]:
        assert task == "math"
        self.opened.append(opened)
        self.streams.append(Stream())
        return cast(Any, self.streams[-1])


def requests(n: int, asked: int | None = None) -> list[GenerationRequest]:
    params = SamplingParams(seed=1, max_tokens=9)
    return [
        GenerationRequest(tokens=(5, 6), prompt_length=2, params=params, choice=choice, num_speculative_tokens=asked)
        for choice in range(n)
    ]


def started(
    *sessions: int, unwanted: frozenset[str] = frozenset(), crowded: bool = False, scout: int | None = None
) -> Started:
    return Started(sessions, ADDRESS, WINDOW, unwanted, crowded, scout)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_choice_that_ends_before_the_router_answers_leaves_the_others_their_drafts() -> None:
    pools = Pools()
    wiring = Wiring(pools, Received(requests(2)), 4, None)
    wiring.start(started(70, 71), [0, 1])
    await settle()
    wiring.end(0)
    await settle()
    pools.answer.set()
    await settle()
    assert [opened.session for opened in pools.opened] == [71]
    wiring.close()
    await settle()
    assert [stream.cancelled for stream in pools.streams] == [True]


async def test_drafts_of_a_lost_verifier_end_and_those_of_the_next_go_on_from_what_arrived() -> None:
    pools, received = Pools(), Received(requests(3))
    pools.answer.set()
    wiring = Wiring(pools, received, 4, None)
    wiring.start(started(70, 71, 72), [0, 1, 2])
    await settle()
    received.add(1, Run((7, 8), finish_reason="stop"))
    wiring.end(1)
    received.add(2, Run((9,)))
    wiring.stop()
    await settle()
    assert all(stream.cancelled for stream in pools.streams)
    wiring.start(started(80, 82), received.unfinished)
    await settle()
    assert [(opened.session, opened.choice, opened.tokens) for opened in pools.opened[3:]] == [
        (80, 0, (5, 6)),
        (82, 2, (5, 6, 9)),
    ]
    wiring.close()
    await settle()
    assert all(stream.cancelled for stream in pools.streams)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_request_for_more_proposals_than_the_wire_carries_gets_as_many_as_it_does() -> None:
    pools = Pools()
    pools.answer.set()
    for asked in (64, 3, None):
        wiring = Wiring(pools, Received(requests(1, asked)), 4, None)
        wiring.start(started(70), [0])
        await settle()
        wiring.close()
    assert [opened.num_speculative_tokens for opened in pools.opened] == [WINDOW, 3, 4]


async def test_a_session_goes_without_a_draft_of_which_nothing_is_wanted() -> None:
    pools = Pools()
    pools.answer.set()
    wiring = Wiring(pools, Received(requests(1)), 4, None)
    wiring.start(started(70, unwanted=frozenset({"draft-math"})), [0])
    await settle()
    assert not pools.opened
    wiring.start(started(80, unwanted=frozenset({"draft-code"})), [0])
    await settle()
    assert [opened.session for opened in pools.opened] == [80]
    wiring.close()
    await settle()


@pytest.mark.parametrize(("crowded", "scout", "routed"), [(True, None, 0), (True, 71, 1), (False, None, 1)])
async def test_among_so_many_that_no_draft_is_wanted_the_router_is_asked_for_a_scout_only(
    crowded: bool, scout: int | None, routed: int
) -> None:
    pools = Pools(crowded=True)  # as the verifier said of the answer before
    pools.answer.set()
    wiring = Wiring(pools, Received(requests(3)), 4, None)
    await settle()
    assert pools.routed == 0
    wiring.start(started(70, 71, 72, crowded=crowded, scout=scout), [0, 1, 2])
    await settle()
    assert pools.routed == routed
    assert wiring.task == ("math" if routed else "general")
    assert [opened.session for opened in pools.opened] == ([70, 71, 72] if not crowded else [71] * routed)
    wiring.close()
    await settle()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_router_is_asked_before_the_verifier_has_answered() -> None:
    """And once, though the sessions come to be more than a draft pays among."""
    pools = Pools()
    wiring = Wiring(pools, Received(requests(1)), 4, None)
    await settle()
    assert pools.routed == 1
    wiring.start(started(70, crowded=True), [0])
    await settle()
    assert not pools.opened
    wiring.start(started(80, scout=80), [0])
    pools.answer.set()
    await settle()
    assert ([opened.session for opened in pools.opened], pools.routed) == ([80], 1)
    wiring.close()
    await settle()


def test_of_a_pool_that_has_served_several_drafts_the_last_asked_says_whether_it_is_wanted() -> None:
    old, new = draft_label("math", "/bundles/old"), draft_label("math", "/bundles/new")
    other = draft_label("c++", None)
    assert unwanted_pools({old: True, other: False, new: False}) == {"draft-math", other}
    assert unwanted_pools({old: False, new: True}) == set()


@pytest.mark.parametrize("task", ["math", "c++", "数学"])
def test_the_ingress_spares_sessions_the_drafts_that_the_verifier_does_not_want(task: str) -> None:
    ingress: Any = SimpleNamespace(_counts=Counter())
    unwanted = unwanted_pools({draft_label(task, "/bundles/new"): False, draft_label("code", None): True})

    def spared(task: str, unwanted: frozenset[str], *, crowded: bool = False) -> list[bool]:
        begun = started(70, 71, 72, unwanted=unwanted, crowded=crowded, scout=71)
        return [SpeculativeIngress.spares(ingress, task, begun, session) for session in begun.sessions]

    assert spared(task, unwanted) == [True, False, True]
    assert not any(spared("code", unwanted) + spared(task, frozenset()))
    assert spared("code", frozenset(), crowded=True) == [True, False, True]
    assert ingress._counts == Counter(drafts_spared=4)
