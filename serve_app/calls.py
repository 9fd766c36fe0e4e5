"""How a Serve call ends."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ray.exceptions import RayError, RayTaskError
from ray.serve.handle import DeploymentResponseGenerator

from core.engine_thread import EngineStopped


def hang_up(stream: DeploymentResponseGenerator[Any]) -> None:
    """End a streaming call in whatever state it is: queued, running, over or failed. One that is dropped runs on."""
    with suppress(Exception):  # a call that never got to a replica raises its failure a second time
        stream.cancel()


def replica_lost(error: RayError) -> bool:
    """Whether a call failed because its replica went away, not because of what it was asked."""
    return isinstance(error, EngineStopped) or not isinstance(error, RayTaskError)
