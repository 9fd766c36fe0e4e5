"""The runs of all prompts of a batch as one stream, numbered as the answer's choices are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from serve_app.openai.batch import Batch
from serve_app.openai.disconnect import end
from serve_app.service import ChoiceRun, Service


async def merged_runs(batch: Batch, service: Service) -> AsyncGenerator[tuple[int, ChoiceRun], None]:
    """Yields (index of the choice in the answer, its next run). Closing it ends every session.

    A reader that is slow holds up nothing: runs wait here, at most `max_tokens` of them per choice.
    """
    arrived: asyncio.Queue[tuple[int, ChoiceRun] | None] = asyncio.Queue()
    pumping = asyncio.create_task(_pump_all(batch, service, arrived.put_nowait))
    pumping.add_done_callback(lambda _: arrived.put_nowait(None))
    try:
        while (item := await arrived.get()) is not None:
            yield item
        await pumping  # raises what went wrong, if anything did
    finally:
        await end(pumping)


async def _pump_all(batch: Batch, service: Service, put: Callable[[tuple[int, ChoiceRun]], None]) -> None:
    """Generate for all prompts, as many at a time as keep within `service.max_choices` choices."""
    per_prompt = len(batch.prompts[0])
    room = asyncio.Semaphore(service.max_choices // per_prompt)

    async def pump(number: int) -> None:
        async with room, aclosing(service.generate(batch.prompts[number], batch.speculation)) as runs:
            async for run in runs:
                put((number * per_prompt + run.choice, run))

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(len(batch.prompts)):
                group.create_task(pump(number))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
