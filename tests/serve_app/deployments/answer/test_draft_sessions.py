"""Draft sessions come, end and are given up with the generation they are for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest
from ray.serve._private.common import DeploymentID
from ray.serve.exceptions import DeploymentUnavailableError
from ray.serve.handle import DeploymentResponseGenerator

from core.draft_key import DraftKey
from core.generation import GenerationRequest, Run
from core.policy.draft_policy import OTHERS
from core.policy.rerouting import RoutingTable
from core.sampling.params import SamplingParams
from core.wire.messages import Address, OpenSession
from serve_app.application_names import draft_key
from serve_app.config import load_config
from serve_app.deployments.answer import draft_sessions
from serve_app.deployments.answer.bundles import IngressCounts, ServingBundle
from serve_app.deployments.answer.draft_sessions import DraftSessions
from serve_app.deployments.answer.generation import Generation
from serve_app.deployments.answer.started import Started, declined_drafts
from serve_app.deployments.models.served_models import ServedModels
from serve_app.deployments.telemetry.answer_metrics import Move
from serve_app.http.exchange import Exchange
from serve_app.http.service import ChoiceRun
from serve_app.spans import MOVE
from tests.serve_app.span_events import KeptSpan

ADDRESS = Address("tcp://127.0.0.1:1", "key")


class Stream:
    """A draft session of a task that is open until it is ended, lost or cancelled, if `joins`; else it stays queued."""

    def __init__(self, task: str, *, joins: bool) -> None:
        self.task = task
        self.cancelled = False
        self.events: asyncio.Queue[Exception | None] = asyncio.Queue()
        if joins:
            self.events.put_nowait(None)

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> None:
        event = await self.events.get()
        if event is not None:
            raise event

    def end(self) -> None:
        """As the verifier does with the draft that another has replaced."""
        self.events.put_nowait(StopAsyncIteration())

    def lose(self) -> None:
        self.events.put_nowait(DeploymentUnavailableError(DeploymentID("DraftPool")))

    def cancel(self) -> None:
        self.cancelled = True


class Pools:
    """A router that answers when told to, and pools that always have room, save those that are `down`."""

    def __init__(self, *, declining: bool = False, down: Sequence[str] = ()) -> None:
        self.table = RoutingTable(["math", "code"], {})
        self.counts = IngressCounts(declining=declining)
        self.down = down
        self.routed = 0
        self.answer = asyncio.Event()
        self.opened: list[OpenSession] = []
        self.streams: list[Stream] = []

    async def route(self, _tokens: Sequence[int]) -> dict[str, float]:
        self.routed += 1
        await self.answer.wait()
        return {"math": 0.95, "code": 0.02, "general": 0.03}

    def declined(self, started: Started) -> set[str]:
        return {task for task in self.table.drafts if started.declines(draft_key(task))}

    def open_draft(self, task: str, opening: OpenSession) -> DeploymentResponseGenerator[None]:
        self.opened.append(opening)
        self.streams.append(Stream(task, joins=task not in self.down))
        if task in self.down:
            self.streams[-1].lose()
        return cast(Any, self.streams[-1])


def requests(n: int, asked: int | None = None, most: int = 9) -> list[GenerationRequest]:
    params = SamplingParams(seed=1, max_tokens=most)
    return [
        GenerationRequest(tokens=(5, 6), prompt_length=2, params=params, choice=choice, num_speculative_tokens=asked)
        for choice in range(n)
    ]


def started(*sessions: int, declined: Sequence[str] = (), declines_all: bool = False) -> Started:
    return Started(sessions, ADDRESS, frozenset(map(draft_key, declined)), declines_all)


def wired(pools: Pools, generation: Generation, task: str | None = None) -> DraftSessions:
    return DraftSessions(cast(Any, pools), generation, 4, task)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_choice_that_ends_before_the_router_answers_leaves_the_others_their_drafts() -> None:
    pools = Pools()
    wiring = wired(pools, Generation(requests(2)))
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
    pools, generation = Pools(), Generation(requests(3))
    pools.answer.set()
    wiring = wired(pools, generation)
    wiring.start(started(70, 71, 72), [0, 1, 2])
    await settle()
    generation.ledger.add(ChoiceRun(1, Run((7, 8), finish_reason="stop"), "math"))
    wiring.end(1)
    generation.ledger.add(ChoiceRun(2, Run((9,)), "math"))
    wiring.stop()
    await settle()
    assert all(stream.cancelled for stream in pools.streams)
    wiring.start(started(80, 82), generation.unfinished)
    await settle()
    assert [(opened.session, opened.choice, opened.tokens) for opened in pools.opened[3:]] == [
        (80, 0, (5, 6)),
        (82, 2, (5, 6, 9)),
    ]
    wiring.close()
    await settle()
    assert all(stream.cancelled for stream in pools.streams)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_draft_is_opened_for_as_many_proposals_as_the_request_or_the_service_allows() -> None:
    pools = Pools()
    pools.answer.set()
    for asked in (16, 3, None):
        wiring = wired(pools, Generation(requests(1, asked)))
        wiring.start(started(70), [0])
        await settle()
        wiring.close()
    assert [opened.num_speculative_tokens for opened in pools.opened] == [16, 3, 4]


async def test_a_session_goes_without_a_draft_of_which_nothing_is_wanted() -> None:
    pools = Pools()
    pools.answer.set()
    wiring = wired(pools, Generation(requests(1)))
    wiring.start(started(70, declined=["math", "code", "general"]), [0])
    await settle()
    assert not pools.opened
    wiring.start(started(75, declined=["math"]), [0])
    await settle()
    assert [(stream.task, opened.session) for stream, opened in zip(pools.streams, pools.opened, strict=True)] == [
        ("general", 75)
    ]
    wiring.stop()
    wiring.start(started(80, declined=["code"]), [0])
    await settle()
    assert [(pools.streams[-1].task, pools.opened[-1].session)] == [("math", 80)]
    wiring.close()
    await settle()


@pytest.mark.parametrize(("declines_all", "routed"), [(True, 0), (False, 1)])
async def test_where_every_draft_is_declined_the_router_is_not_asked(*, declines_all: bool, routed: int) -> None:
    pools = Pools(declining=True)  # as the verifier did for the answer before
    pools.answer.set()
    wiring = wired(pools, Generation(requests(3)))
    await settle()
    assert pools.routed == 0
    wiring.start(started(70, 71, 72, declines_all=declines_all), [0, 1, 2])
    await settle()
    assert pools.routed == routed
    assert wiring.task(0) == ("math" if routed else "general")
    assert [opened.session for opened in pools.opened] == [70, 71, 72] * routed
    wiring.close()
    await settle()
    assert asyncio.all_tasks() == {asyncio.current_task()}


WRONG, RIGHT = Run((9,), proposed=4, accepted=0), Run((1, 2, 3, 4, 5), proposed=4, accepted=4)
LONG = 400  # tokens


async def drafted(pools: Pools, *, asked: int | None = None, task: str | None = None, n: int = 1) -> DraftSessions:
    """Choices whose first drafts are open."""
    pools.answer.set()
    wiring = wired(pools, Generation(requests(n, asked, LONG)), task)
    wiring.start(started(*range(70, 70 + n)), list(range(n)))
    await settle()
    return wiring


async def take(wiring: DraftSessions, run: Run, times: int = 12, choice: int = 0) -> None:
    for _ in range(times):
        wiring.observe(choice, run)
        await settle()


async def test_a_choice_whose_draft_does_badly_moves_and_the_first_draft_goes_on_until_the_second_is_heard() -> None:
    pools, span = Pools(), KeptSpan()
    with Exchange(span).current():
        wiring = await drafted(pools, n=2)
        await take(wiring, WRONG)
    assert span.events == [(MOVE, {"taskspec.from": "math", "taskspec.to": "general"})]
    assert [stream.task for stream in pools.streams] == ["math", "math", "general"]
    assert [(one.session, one.epoch) for one in pools.opened] == [(70, 0), (71, 0), (70, 1)]
    assert not pools.streams[0].cancelled
    assert wiring.task(0) == "math", "the second has not proposed yet"
    pools.streams[0].end()
    await settle()
    assert (wiring.task(0), wiring.task(1)) == ("general", "math")
    await take(wiring, RIGHT)
    assert len(pools.streams) == 3
    assert pools.counts.events == {"rerouted": 1}
    assert pools.counts.moves == {Move("math", "general"): 1}
    wiring.close()
    await settle()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_choice_whose_draft_does_well_stays() -> None:
    pools = Pools()
    wiring = await drafted(pools)
    await take(wiring, RIGHT, 30)
    assert len(pools.streams) == 1
    wiring.close()
    await settle()


@pytest.mark.parametrize(("asked", "task"), [(4, None), (None, "math"), (4, "math")])
async def test_a_draft_that_the_client_has_named_or_fixed_the_length_of_is_kept(
    asked: int | None, task: str | None
) -> None:
    pools = Pools()
    wiring = await drafted(pools, asked=asked, task=task)
    await take(wiring, WRONG)
    assert [stream.task for stream in pools.streams] == ["math"]
    wiring.close()
    await settle()


async def test_runs_without_proposals_move_nothing() -> None:
    pools = Pools()
    wiring = await drafted(pools)
    await take(wiring, Run((9,)), 50)
    assert len(pools.streams) == 1
    wiring.close()
    await settle()


async def test_a_move_to_a_pool_that_is_down_changes_nothing_and_is_not_tried_again() -> None:
    pools = Pools(down=["general", "code"])
    wiring = await drafted(pools)
    await take(wiring, WRONG, 40)
    assert wiring.task(0) == "math"
    assert not pools.streams[0].cancelled
    tried = [stream.task for stream in pools.streams[1:]]
    assert "general" in tried
    assert len(tried) == len(set(tried))
    assert pools.counts.events["rerouted"] == 0
    wiring.close()
    await settle()


async def test_a_pool_that_the_verifier_declines_is_not_moved_to() -> None:
    pools = Pools()
    pools.answer.set()
    wiring = wired(pools, Generation(requests(1, None, LONG)))
    wiring.start(started(70, declined=["general", "code"]), [0])
    await settle()
    await take(wiring, WRONG, 40)
    assert [stream.task for stream in pools.streams] == ["math"]
    wiring.close()
    await settle()


async def test_a_lost_draft_is_opened_once_more_unless_another_has_taken_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(draft_sessions, "RETRY_AFTER", 0.0)
    pools = Pools()
    wiring = await drafted(pools)
    pools.streams[0].lose()
    await settle()
    assert [one.epoch for one in pools.opened] == [0, 1]
    await take(wiring, WRONG)
    assert [(stream.task, one.epoch) for stream, one in zip(pools.streams[2:], pools.opened[2:], strict=True)] == [
        ("general", 2)
    ]
    pools.streams[1].lose()
    await settle()
    assert (len(pools.streams), wiring.task(0)) == (3, "general")
    wiring.close()
    await settle()


async def test_a_move_that_is_still_queued_when_the_answer_ends_is_given_up() -> None:
    pools = Pools()
    wiring = await drafted(pools)
    pools.streams.clear()
    held = Stream("general", joins=False)
    pools.open_draft = lambda *_: cast(Any, held)  # type: ignore[method-assign]
    await take(wiring, WRONG, 20)
    assert wiring.task(0) == "math"
    wiring.observe(0, Run((2,), finish_reason="stop"))
    await settle()
    assert held.cancelled
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_router_is_asked_before_the_verifier_has_answered() -> None:
    """And once, though the sessions come to be more than a draft pays among."""
    pools = Pools()
    wiring = wired(pools, Generation(requests(1)))
    await settle()
    assert pools.routed == 1
    wiring.start(started(70, declines_all=True), [0])
    await settle()
    assert not pools.opened
    wiring.start(started(80), [0])
    pools.answer.set()
    await settle()
    assert ([opened.session for opened in pools.opened], pools.routed) == ([80], 1)
    wiring.close()
    await settle()


def test_a_draft_is_declined_by_its_own_pool_alone() -> None:
    old, new = draft_key("math", "/bundles/old"), draft_key("math", "/bundles/new")
    assert declined_drafts({old: False, new: True, OTHERS: False}) == ({new}, False)
    assert declined_drafts({new: True, OTHERS: True}) == ({new}, True)
    assert declined_drafts({}) == (frozenset(), False)


@pytest.mark.parametrize("task", ["math", "c++", "数学"])
def test_the_ingress_opens_no_draft_that_the_verifier_declines(task: str) -> None:
    drafts = {"general": None, "code": None, task: "/bundles/new"}
    bundle = ServingBundle(ServedModels(load_config("family"), drafts=drafts), IngressCounts())
    keys = {name: draft_key(name, directory) for name, directory in drafts.items()}
    some, every = declined_drafts({keys[name]: name == task for name in drafts} | {OTHERS: False})

    def declined(drafts: frozenset[DraftKey], *, declines_all: bool = False) -> set[str]:
        return bundle.declined(Started((70, 71), ADDRESS, drafts, declines_all))

    assert declined(some, declines_all=every) == {task}
    assert declined(frozenset()) == set()
    assert declined(frozenset(), declines_all=True) == set(drafts)
