"""Work spread over the cluster: as many workers at once as its resources allow, each item asked for again if one dies.

Enters: an actor class and items. Leaves: results, as they come.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import ray
from ray.util import ActorPool

from train_jobs.config import Worker

Item = TypeVar("Item")
_LOOKS = 5
_RETRIES = 2  # workers lost to a node or to memory; every item can be done twice without harm


def spread(cls: type, worker: Worker, items: Sequence[Item], *args: Any) -> Iterator[Any]:
    """Yield `cls(*args).work(item)` for every item, in no order; the workers end with the iterator."""
    if not items:
        return
    options = {"max_restarts": _RETRIES, "max_task_retries": _RETRIES, **resources(worker)}
    remote: Any = ray.remote(_Host).options(**options)
    hosts = [remote.remote() for _ in range(min(len(items), at_once(worker)))]
    pool: Any = ActorPool(hosts)
    try:
        yield from pool.map_unordered(lambda host, item: host.work.remote(cls, args, item), list(items))
    finally:
        for host in hosts:
            with contextlib.suppress(Exception):  # Ray may be going down
                ray.kill(host)


class _Host:
    """A process for one worker, made with its first item: an actor that Ray restarts may have lost its arguments."""

    def __init__(self) -> None:
        self._worker: Any = None

    def work(self, cls: type, args: tuple[Any, ...], item: Any) -> Any:
        self._worker = self._worker or cls(*args)
        return self._worker.work(item)


def resources(worker: Worker) -> dict[str, Any]:
    """What Ray sets aside for one worker."""
    return {"num_cpus": worker.num_cpus, "num_gpus": worker.num_gpus}


def at_once(worker: Worker) -> int:
    """How many such workers the cluster has room for beside whatever runs on it, at least 1.

    What has just ended is still booked for a moment, so the most of a second is taken.
    """
    looks = []
    for _ in range(_LOOKS):
        looks.append(_fit_into(ray.available_resources(), worker))
        time.sleep(1 / _LOOKS)
    return max(looks)


def at_most(worker: Worker) -> int:
    """How many such workers the cluster could hold if nothing else ran on it, at least 1."""
    return _fit_into(ray.cluster_resources(), worker)


def _fit_into(resources: Mapping[str, float], worker: Worker) -> int:
    room = resources.get("CPU", 0.0) / worker.num_cpus
    if worker.num_gpus:
        room = min(room, resources.get("GPU", 0.0) / worker.num_gpus)
    return max(1, int(room))
