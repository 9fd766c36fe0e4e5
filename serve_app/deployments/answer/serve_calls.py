"""Ends streaming Serve calls, and tells a lost replica from a failed request, and why that failed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ray.exceptions import RayError, RayTaskError
from ray.serve.handle import DeploymentResponseGenerator

from core.errors import TaskSpecError
from core.wire.engine_thread import EngineStopped


def cancel_call(stream: DeploymentResponseGenerator[Any]) -> None:
    """Cancel a streaming call in any state: queued, running, over or failed. It would continue without its caller."""
    with suppress(Exception):  # a call that reached no replica raises its failure again
        stream.cancel()


def replica_lost(error: RayError) -> bool:
    """True if a call failed because its replica was lost, not because of its arguments."""
    return isinstance(error, EngineStopped) or not isinstance(error, RayTaskError)


def without_traceback(error: RayError) -> Exception:
    """The error of ours that a call raised; Ray wraps it in one whose message is the traceback of the replica."""
    cause = error.cause if isinstance(error, RayTaskError) else None
    return cause if isinstance(cause, TaskSpecError) else error
