"""What an operator does on the console, by the functions of the commands; each try leaves a line in the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Protocol

from fastapi import Request, Response
from pydantic import BaseModel, Field

from core.errors import InvalidRequest, TaskSpecError
from serve_app.console.lookout import Snapshot
from serve_app.console.permission import Forbidden, check_may_act
from serve_app.http.body import JsonRoute
from serve_app.http.owners import client_name
from serve_app.http.schema.fields import Fields

MOST_PARTS = 64
LONGEST_NAME = 200  # characters of a part

logger = logging.getLogger(__name__)


class Operator(Protocol):
    """Looks at a service and acts on it; every method blocks. Actions raise `TaskSpecError` if they cannot be."""

    def look(self) -> Snapshot: ...

    def deploy(self, version: str, share: float, force: bool) -> str:
        """See `serve_app.operations.deploy_bundle`."""

    def scale(self, replicas: dict[str, int]) -> str:
        """See `serve_app.operations.set_replicas`; what was done, in words."""


class DeployFields(Fields):
    """As `taskspec bundles deploy` has them."""

    version: str = Field(pattern="^([0-9a-f]{16}|none)$")
    share: float | None = Field(None, gt=0, lt=1, description="That of a canary; all prompts if absent.")
    force: bool = False


PartName = Annotated[str, Field(max_length=LONGEST_NAME)]


class ScaleFields(Fields):
    """As `taskspec scale` has them."""

    replicas: dict[PartName, Annotated[int, Field(ge=0, le=1000)]] = Field(min_length=1, max_length=MOST_PARTS)


class Done(BaseModel):
    """What an action has begun, in words."""

    done: str


class ActionRoute(JsonRoute):
    """A route for those who may act; who may not is refused before the body is read."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                check_may_act(request, keyed=request.app.state.asks_for_key)
            except Forbidden as error:
                logger.info("%s by %s: refused, %s", request.url.path, _who(request), error.code)
                raise
            return await handler(request)

        return handle


async def act(request: Request, action: str, work: Callable[[], str]) -> Done:
    """Do it in a thread, which also writes the line: who asked may leave, and it is done all the same.

    Raises `InvalidRequest` if it cannot be done.
    """
    who = _who(request)

    def logged() -> str:
        try:
            done = work()
        except TaskSpecError as error:
            logger.info("%s by %s: not possible: %s", action, who, error)
            raise
        except Exception as error:
            logger.error("%s by %s: failed: %s", action, who, type(error).__name__)
            raise
        logger.info("%s by %s: %s", action, who, done)
        return done

    try:
        return Done(done=await asyncio.to_thread(logged))
    except TaskSpecError as error:
        raise InvalidRequest(None, str(error), status=409, code="not_possible") from error


def _who(request: Request) -> str:
    """As the access log has it."""
    return client_name(request.scope) or "-"
