"""Spreading of work items over actors on the cluster: as many as fit, and an item is retried if its actor dies."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import ray

from train_jobs.cluster.ray_private import free_resources
from train_jobs.config import WorkerConfig

Item = TypeVar("Item")
_SAMPLES = 5  # of the free resources, within a second
_RETRIES = 2  # after a worker is lost with its node or for lack of memory; items may be done twice


def spread(cls: type, worker: WorkerConfig, items: Sequence[Item], *args: Any) -> Iterator[Any]:
    """Yield `cls(*args).work(item)` for every item, in any order; the workers end with the iterator."""
    if not items:
        return
    options = {"max_restarts": _RETRIES, "max_task_retries": _RETRIES, **resources(worker)}
    remote: Any = ray.remote(_Host).options(**options)
    hosts = [remote.remote() for _ in range(min(len(items), at_once(worker)))]
    try:
        yield from _results(hosts, cls, args, items)
    finally:
        for host in hosts:
            with contextlib.suppress(Exception):  # Ray may be going down
                ray.kill(host)


def _results(hosts: Sequence[Any], cls: type, args: tuple[Any, ...], items: Sequence[Item]) -> Iterator[Any]:
    """Those of the items. A host gets one when it runs: others may have taken its place, and keep it to the end."""
    waiting, starting, working = list(items), {host.start.remote(): host for host in hosts}, dict[Any, Any]()
    while waiting or working:
        [over], _ = ray.wait([*starting, *working])
        result, done = ray.get(over), over in working
        host = working.pop(over) if done else starting.pop(over)
        if waiting:
            working[host.work.remote(cls, args, waiting.pop(0))] = host
        if done:
            yield result


class _Host:
    """An actor that makes its worker with the first item: an actor that Ray restarts may have lost its arguments."""

    def __init__(self) -> None:
        self._worker: Any = None

    def start(self) -> None:
        """Return once it runs."""

    def work(self, cls: type, args: tuple[Any, ...], item: Any) -> Any:
        self._worker = self._worker or cls(*args)
        return self._worker.work(item)


def resources(worker: WorkerConfig) -> dict[str, Any]:
    """Ray options of one worker."""
    return {"num_cpus": worker.num_cpus, "num_gpus": worker.num_gpus}


def at_once(worker: WorkerConfig) -> int:
    """Number of such workers that fit beside whatever else runs on the cluster, at least 1, at most `at_once`.

    The resources of work that has just ended are freed with a delay, so this is the maximum over a second.
    """
    rooms = []
    for _ in range(_SAMPLES):
        rooms.append(fitting(free_resources(), worker))
        time.sleep(1 / _SAMPLES)
    return max(rooms)


def at_most(worker: WorkerConfig) -> int:
    """Number of such workers that an otherwise empty cluster could hold, at least 1, at most `at_once`."""
    return fitting([node["Resources"] for node in ray.nodes() if node["Alive"]], worker)


def fitting(nodes: Sequence[Mapping[str, float]], worker: WorkerConfig) -> int:
    """Number of such workers that these resources of nodes are enough for, at least 1, at most `at_once`."""
    room = sum(_fitting_on(node, worker) for node in nodes)
    return max(1, room if worker.at_once is None else min(room, worker.at_once))


def _fitting_on(resources: Mapping[str, float], worker: WorkerConfig) -> int:
    room = resources.get("CPU", 0.0) / worker.num_cpus
    if worker.num_gpus:
        room = min(room, resources.get("GPU", 0.0) / worker.num_gpus)
    return int(room)
