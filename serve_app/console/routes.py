"""The endpoints of the console: its page at `/`, what that reads, and the actions of an operator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial

from fastapi import APIRouter, HTTPException, Request, Response

from core.errors import TaskSpecError
from serve_app.console.actions import ActionRoute, DeployFields, Done, Operator, ScaleFields, act
from serve_app.console.lookout import Lookout, Snapshot
from serve_app.console.page import PREFIX, PageFile
from serve_app.console.permission import viewer
from serve_app.http.answers import EventStream
from serve_app.http.service import Overloaded
from serve_app.http.writer import event_data

SECONDS_OPEN = 30.0  # of a stream of events; then the page connects again, so that no replica waits for it to end
NO_STORE = {"Cache-Control": "no-store"}


def static(files: Mapping[str, PageFile]) -> APIRouter:
    """The files of the page beside the one at `/`."""
    router = APIRouter(include_in_schema=False)

    @router.get(f"{PREFIX}{{name}}")
    async def file(name: str, request: Request) -> Response:
        if name not in files:
            raise HTTPException(404, "the page has no such file")
        return files[name].response(request.headers)

    return router


def reading(operator: Operator) -> APIRouter:
    """What the page reads, once or again and again."""
    router, lookout = APIRouter(include_in_schema=False), Lookout(operator.look)

    @router.get("/console/status")
    async def status(request: Request) -> Response:
        """What `taskspec status --json` tells, and what the page shows beside that."""
        written = _written(request, await _next(lookout))
        return Response(written, media_type="application/json", headers=NO_STORE)

    @router.get("/console/events")
    async def events(request: Request) -> Response:
        """The same every second, as server-sent events."""
        stream = _events(request, lookout)
        first = await anext(stream)  # a failure has its own HTTP status
        return EventStream(_after(first, stream), stream)

    return router


def acting(operator: Operator) -> APIRouter:
    """The actions."""
    router = APIRouter(include_in_schema=False, route_class=ActionRoute)

    @router.post("/console/deploy")
    async def deploy(body: DeployFields, request: Request) -> Done:
        """Let the service take up a bundle, or end its canary: `taskspec bundles deploy`."""
        share = body.share or 0.0
        action = f"deploy {body.version}{f' as a canary of {share:.0%}' if share else ''}{' by force' * body.force}"
        return await act(request, action, partial(operator.deploy, body.version, share, body.force))

    @router.post("/console/scale")
    async def scale(body: ScaleFields, request: Request) -> Done:
        """Set the replicas of parts: `taskspec scale`."""
        action = f"scale {', '.join(f'{part!r} to {number}' for part, number in body.replicas.items())}"
        return await act(request, action, partial(operator.scale, body.replicas))

    return router


async def _next(lookout: Lookout) -> Snapshot:
    try:
        return await lookout.next()
    except TaskSpecError as error:  # a service that is being deployed or ended
        raise error if isinstance(error, Overloaded) else Overloaded(str(error)) from error


async def _events(request: Request, lookout: Lookout) -> AsyncGenerator[bytes, None]:
    loop = asyncio.get_running_loop()
    end = loop.time() + SECONDS_OPEN
    with lookout.place():
        while loop.time() < end:
            snapshot = await _next(lookout)
            yield event_data(_written(request, snapshot))
            if snapshot.last:
                return


async def _after(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    yield first
    async with aclosing(rest):
        async for event in rest:
            yield event


def _written(request: Request, snapshot: Snapshot) -> bytes:
    return snapshot.written(viewer(request, keyed=request.app.state.asks_for_key))
