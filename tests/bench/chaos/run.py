"""A run: references first, then clients and faults at once, then clients that all hang up, and the verdict."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.bench.chaos.checker import RELEASE, Verdict, check
from tests.bench.chaos.clients import Clients, Question
from tests.bench.chaos.faults import Fault, inflict
from tests.bench.chaos.history import Entry, Recorder, Reference, read
from tests.bench.chaos.table import Row, rows
from tests.family.corpora import TASKS, items

HISTORY, REFERENCES, ANSWERS = "history.jsonl", "references.json", "answers.jsonl"
QUESTIONS = 48
TEMPERATURES = (0.0, 0.7, 1.0)


class Plan(NamedTuple):
    """`urls` are addresses of the service, `held` counts the sessions that it holds, `key` is the API key by now."""

    urls: Sequence[str]
    model: str
    faults: Sequence[Fault]
    held: Callable[[], int]
    seconds: float
    streams: int
    seed: int = 0
    key: Callable[[], str | None] = lambda: None


class Outcome(NamedTuple):
    verdict: Verdict
    table: dict[str, Row]


def questions(model: str, count: int, max_tokens: int = 100) -> list[Question]:
    """Prompts of every task of the family, at several temperatures, each with its seed."""
    each = [items(task, -(-count // len(TASKS)), seed=17) for task in TASKS]
    prompts = [item.prompt for row in zip(*each, strict=True) for item in row][:count]
    return [
        Question(
            number,
            {
                "model": model,
                "messages": [{"role": "user", "content": prompt}],
                "max_tokens": max_tokens,
                "temperature": TEMPERATURES[number % len(TEMPERATURES)],
                "seed": number,
            },
        )
        for number, prompt in enumerate(prompts)
    ]


async def run(plan: Plan, directory: Path, count: int = QUESTIONS) -> Outcome:
    """The history stays in `directory`, and can be judged again by `judge`."""
    clock = time.monotonic
    with (directory / HISTORY).open("wb") as file:
        record = Recorder(file).add
        clients = Clients(plan.urls, questions(plan.model, count), record, clock, plan.seed, plan.key)
        try:
            references = await clients.references()
            (directory / REFERENCES).write_bytes(msgspec.json.encode(references))
            until = clock() + plan.seconds

            def over() -> bool:
                return clock() >= until

            async with asyncio.TaskGroup() as group:
                group.create_task(clients.ask_until(plan.streams, over))
                group.create_task(inflict(plan.faults, record, clock, over, plan.seed))
            await clients.hang_up(plan.streams)
            await asyncio.sleep(RELEASE + 1.0)
            record(Entry(clock(), "held", await asyncio.to_thread(plan.held)))
        finally:
            await clients.close()
    return judge(directory)


def judge(directory: Path) -> Outcome:
    """The verdict on the history of a run, by nothing but what lies in its directory."""
    references = msgspec.json.decode((directory / REFERENCES).read_bytes(), type=dict[int, Reference])
    entries = list(read(directory / HISTORY))
    verdict = check(entries, references)
    return Outcome(verdict, rows(entries, verdict))


def write_answers(directory: Path, model: str, count: int = QUESTIONS) -> Path:
    """The whole answers of a run as `taskspec audit` reads them: each with its request, as the chunks that came."""
    asked = {question.number: question.body for question in questions(model, count)}
    bodies: dict[int, dict[str, Any]] = {}
    chunks: defaultdict[int, list[Any]] = defaultdict(list)
    with (directory / ANSWERS).open("wb") as file:
        for entry in read(directory / HISTORY):
            value: Any = entry.value
            if entry.kind == "sent":
                bodies[entry.request] = asked[value["question"]]
            elif entry.kind == "event" and value != "[DONE]":
                chunk = json.loads(value)
                chunks[entry.request] += [chunk] if chunk.get("choices") else []
            elif entry.kind == "end" and value == "done":
                line = {"request": bodies[entry.request], "answer": chunks[entry.request]}
                file.write(msgspec.json.encode(line) + b"\n")
    return directory / ANSWERS


def summary(verdict: Verdict) -> Iterator[str]:
    outcomes = [request.outcome for request in verdict.requests]
    for outcome in sorted(set(outcomes)):
        yield f"{outcome}: {outcomes.count(outcome)}"
    cut = sum(request.cut and request.outcome == "answered" for request in verdict.requests)
    yield f"answered after a cut or a refusal: {cut}"
    yield f"violations: {len(verdict.violations)}"
