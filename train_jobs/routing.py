"""Fourth stage: the router, fitted by `train_jobs.router` in a worker of the cluster.

Enters: the partition and the collected prompts. Leaves: a router directory, and how well it routes. Where all prompts
are one task there is nothing to route, and neither is made.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import ray

from core.durable import replace
from train_jobs import collect, partition
from train_jobs.collected import Collected
from train_jobs.config import RetrainConfig
from train_jobs.findings import Routing
from train_jobs.partition import Assigned
from train_jobs.progress import Progress, Report
from train_jobs.units import Unit, fingerprint
from train_jobs.workers import resources

_ROUTER, _ROUTING = "router", "routing.json"


def unit(config: RetrainConfig) -> Unit:
    """Where it is written, and what it depends on."""
    section = config.router.model_dump(mode="json", exclude={"worker"})
    general = Path(config.router.general or "")
    seen = fingerprint(general) if general.is_file() else []
    return Unit(config.work / "router", section, seen, partition.unit(config).key)


def run(config: RetrainConfig, progress: Progress) -> None:
    """Fit the router, unless there is but one task."""
    directory = unit(config).start()
    assigned = Assigned(partition.unit(config).directory)
    with progress.stage("router", 1) as report:
        if assigned.partition.k > 1:
            fit: Any = ray.remote(_fit).options(**resources(config.router.worker))
            ray.get(fit.remote(config, directory, report))


def fitted(config: RetrainConfig) -> Path:
    """The router's directory."""
    return unit(config).directory / _ROUTER


def routing(config: RetrainConfig) -> Routing | None:
    """How well it routes, if there is a router."""
    file = unit(config).directory / _ROUTING
    return msgspec.json.decode(file.read_bytes(), type=Routing) if file.exists() else None


def _fit(config: RetrainConfig, directory: Path, report: Report) -> None:
    import torch

    from train_jobs.router import fit_router

    torch.set_num_threads(config.router.worker.num_cpus)
    collected, assigned = Collected(collect.unit(config).directory), Assigned(partition.unit(config).directory)
    found = fit_router(
        config,
        partition.unit(config).directory,
        collected.traces("train"),
        assigned.labels("train"),
        collected.traces("test"),
        directory / _ROUTER,
        lambda done, total, note: report("router", done, total, note),
    )
    replace(directory / _ROUTING, msgspec.json.encode(found))
