"""Merges the token runs of all prompts of one HTTP request into one stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import msgspec

from serve_app.http.batch import Batch
from serve_app.http.disconnect import cancelled
from serve_app.http.service import ChoiceRun, Service


async def merged_runs(batch: Batch, service: Service) -> AsyncGenerator[ChoiceRun, None]:
    """Every run of the batch, with `choice` as the index in the answer. Closing the generator ends every session.

    A slow reader holds up nothing: runs wait here, at most `max_tokens` of them per choice.
    """
    arrived: asyncio.Queue[ChoiceRun | None] = asyncio.Queue()
    pumping = asyncio.create_task(_pump_all(batch, service, arrived.put_nowait))
    pumping.add_done_callback(lambda _: arrived.put_nowait(None))
    try:
        while (run := await arrived.get()) is not None:
            yield run
        await pumping  # raises its exception, if it failed
    finally:
        await cancelled(pumping)


async def _pump_all(batch: Batch, service: Service, put: Callable[[ChoiceRun], None]) -> None:
    """Generate for all prompts, with at most `service.max_choices` choices at a time."""
    per_prompt = len(batch.prompts[0])
    room = asyncio.Semaphore(service.max_choices // per_prompt)

    async def pump(number: int) -> None:
        async with room, aclosing(service.generate(batch.prompts[number], batch.speculation)) as runs:
            async for run in runs:
                shown = batch.ending.shown_run(run.run)
                put(msgspec.structs.replace(run, choice=number * per_prompt + run.choice, run=shown))

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(len(batch.prompts)):
                group.create_task(pump(number))
    except ExceptionGroup as failures:
        raise batch.in_its_fields(failures.exceptions[0]) from None
