"""Operators see every part of the service, and set its replicas while it answers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import httpx2 as httpx
import pytest
from ray.util import list_named_actors

from core.draft_key import GENERAL
from serve_app.deployments.telemetry.service_status import ServicePart
from serve_app.operations import (
    NOT_DEPLOYED,
    Listener,
    asks_for_keys,
    serve_listener,
    service_status,
    set_replicas,
)
from tests.eventually import eventually
from tests.service.conftest import ADVERSARIAL, LATE, Body, Service, chat, token_ids

pytestmark = pytest.mark.cluster

ENDLESS = {"2": -100}  # bars the end-of-sequence token
CHOICES = 4


def parts() -> dict[str, ServicePart]:
    return {part.name: part for part in service_status().parts}


def asked(task: str) -> Body:
    """Long answers that are always drafted for, with a session each."""
    text = {"n": CHOICES, "seed": 4, "temperature": 1.0, "max_tokens": 100, "logit_bias": ENDLESS}
    return chat("Write about the sea.", speculation={"task": task, "num_speculative_tokens": 4}, **text)


def replicas() -> set[str]:
    names = {actor["name"] for actor in list_named_actors(all_namespaces=True)}
    return {name for name in names if name.startswith("SERVE_REPLICA")}


@contextmanager
def answering(service: Service, body: Body) -> Iterator[list[Body]]:
    """Ask the same again and again meanwhile; yields the answers so far."""
    over, answers = Event(), list[Body]()

    def ask() -> None:
        while not over.is_set():
            answers.append(service.answer(body))

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            yield answers
        finally:
            over.set()
        asking.result()


def test_what_serve_listens_on_and_that_no_key_is_asked_for_are_read_from_serve(service: Service) -> None:
    port = httpx.URL(service.url).port
    assert port is not None
    assert serve_listener() == Listener("127.0.0.1", port)
    assert not asks_for_keys()


def test_status_tells_of_every_part_and_counts_what_an_answer_accepted(service: Service) -> None:
    task = service.tasks[0]
    service.frees_everything()
    before = parts()
    assert set(before) == {"ingress", "target", "router", *service.served.drafts}
    deployed = {name: (one.state, one.running, one.target) for name, one in before.items() if name != LATE}
    assert set(deployed.values()) == {("HEALTHY", 1, 1)}
    assert before[LATE].state == NOT_DEPLOYED
    drafted = service.answer(asked(task))["usage"]["speculation"]["sources"]["draft"]
    after = parts()
    assert (after[task].proposed or 0) - (before[task].proposed or 0) == drafted["proposed"] > 0
    assert (after[task].accepted or 0) - (before[task].accepted or 0) == drafted["accepted"] > 0
    assert [after[name].proposed for name in (GENERAL, ADVERSARIAL)] == [
        before[name].proposed for name in (GENERAL, ADVERSARIAL)
    ]
    report = service_status().report
    assert report is not None
    assert (report.model, report.bundle) == (service.config.name, service.served.version)
    assert report.traces is not None


@pytest.mark.soak
def test_a_pool_is_scaled_while_answers_stream_and_nothing_else_changes(service: Service) -> None:
    task = service.tasks[0]
    expected = token_ids(service.answer(asked(task)))
    others = replicas() - service.pool_replicas(task)
    with answering(service, asked(task)) as answers:
        eventually(lambda: parts()[task].sessions == CHOICES, f"{CHOICES} sessions are drafted for")
        first = service.pool_replicas(task)
        assert [(one.name, one.target) for one in set_replicas({task: 2})] == [(task, 1)]
        eventually(lambda: parts()[task].running == 2, "two replicas run")
        assert first < service.pool_replicas(task), "the replica that served was replaced"
        eventually(lambda: parts()[task].sessions == CHOICES, f"{CHOICES} sessions are drafted for")
        set_replicas({task: 1})
        eventually(lambda: len(service.pool_replicas(task)) == 1, "one replica is left")
        number = len(answers)
        eventually(lambda: len(answers) > number + 1, "two more answers")
    assert [token_ids(answer) for answer in answers] == [expected] * len(answers)
    assert any("draft" in answer["usage"]["speculation"]["sources"] for answer in answers)
    assert replicas() - service.pool_replicas(task) == others


@pytest.mark.soak
def test_without_replicas_of_a_pool_answers_are_the_same_and_undrafted(service: Service) -> None:
    task = service.tasks[0]
    expected = token_ids(service.answer(asked(task)))
    set_replicas({task: 0})
    try:
        eventually(lambda: not service.pool_replicas(task), "no replica is left")
        answer = service.answer(asked(task))
        assert token_ids(answer) == expected
        assert "draft" not in answer["usage"]["speculation"]["sources"]
    finally:
        set_replicas({task: 1})
        eventually(lambda: parts()[task].running == 1, "a replica runs")
    eventually(lambda: "draft" in service.answer(asked(task))["usage"]["speculation"]["sources"], "it drafts again")
