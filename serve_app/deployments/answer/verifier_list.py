"""Which verifiers there are, as Serve tells the router of this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

from ray.serve.handle import DeploymentHandle
from ray.serve.request_router import RequestRouter, RunningReplica

_routers: WeakValueDictionary[str, RequestRouter] = WeakValueDictionary()  # by application


def remember(router: RequestRouter) -> None:
    """The router has been made in this process."""
    _routers[router.app_name] = router


def listed_verifiers(handle: DeploymentHandle[Any]) -> Sequence[RunningReplica]:
    """Those that Serve lists as running, as far as this process has heard; a dead one may be among them."""
    router = _routers.get(handle.app_name)
    if router is None:
        handle.options(stream=True)  # which makes the router, if this is the first use of the handle
        return ()
    return list(router.curr_replicas.values())
