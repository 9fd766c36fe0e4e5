"""A run of clients and faults against an application whose streams are cut, and against one that alters answers."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path

from fastapi import FastAPI

from serve_app.api.app import create_app
from tests.bench.chaos.faults import Fault, in_turn, process_faults
from tests.bench.chaos.run import HISTORY, Outcome, Plan, run, summary, write_answers
from tests.bench.chaos.table import markdown
from tests.serve_app.cutting import Cutting
from tests.serve_app.live import live
from tests.serve_app.scripted import EOS_ID, ScriptedService

SECONDS = 4.0


class Altering(ScriptedService):
    """Says something else once it is told to."""

    altered = False

    def drawn(self, begin: int, length: int) -> list[int]:
        tokens = super().drawn(begin, length)
        return [5 if self.altered and token > 40 else token for token in tokens]


async def outcome(app: FastAPI, faults: list[Fault], directory: Path, held: int = 0) -> Outcome:
    with live(app) as url:
        plan = Plan([url], "org/toy", faults, lambda: held, SECONDS, streams=3)
        return await run(plan, directory, count=6)


async def test_cut_streams_are_continued_and_nothing_is_altered(tmp_path: Path) -> None:
    app = Cutting(create_app(ScriptedService()), *[None] * 6, *random.Random(3).choices(range(1, 9), k=100))
    verdict, table = await outcome(app, [Fault("nothing", lambda: None)], tmp_path)
    assert verdict.violations == []
    assert sum(request.cut and request.outcome == "answered" for request in verdict.requests) > 5
    assert {request.outcome for request in verdict.requests} == {"answered", "cancelled"}
    assert table["nothing"].cut > 5
    assert "| nothing | 1 |" in markdown(table)
    assert "violations: 0" in list(summary(verdict))
    lines = list(map(json.loads, write_answers(tmp_path, "org/toy", 6).read_text().splitlines()))
    assert len(lines) == sum(request.outcome == "answered" for request in verdict.requests)
    tokens = [[token for chunk in line["answer"] for token in chunk["choices"][0]["token_ids"]] for line in lines]
    assert all(answer == [*ScriptedService().tokens, EOS_ID] for answer in tokens)
    assert {line["request"]["seed"] for line in lines} <= set(range(6))


async def test_an_altered_answer_is_seen_and_so_is_a_session_that_is_left(tmp_path: Path) -> None:
    service = Altering()

    def alter() -> None:
        service.altered = True

    verdict, table = await outcome(create_app(service), [Fault("alter", alter)], tmp_path, held=1)
    assert {"prefix", "released"} <= {violation.rule for violation in verdict.violations}
    assert table["alter"].altered > 0


async def test_a_fault_that_fails_is_written_down(tmp_path: Path) -> None:
    def fail() -> None:
        raise ProcessLookupError("it is gone")

    _, table = await outcome(create_app(ScriptedService()), [Fault("kill it", fail)], tmp_path)
    assert list(table) == ["kill it, which failed"]
    assert "kill it, which failed: ProcessLookupError: it is gone" in (tmp_path / HISTORY).read_text()


def test_every_fault_comes_equally_often() -> None:
    sent: list[tuple[str, signal.Signals]] = []

    def send(role: str, number: signal.Signals) -> list[int]:
        sent.append((role, number))
        return [1]

    faults = process_faults(send, ["draft", "proxy"])
    turns = in_turn(faults, random.Random(1))
    names = [next(turns).name for _ in range(3 * len(faults))]
    assert sorted(names) == sorted([fault.name for fault in faults] * 3)
    for fault in faults:
        fault.begin()
        if fault.end is not None:
            fault.end()
    assert sent == [
        (role, number) for role in ("draft", "proxy") for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT)
    ]
