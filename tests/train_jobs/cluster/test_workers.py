"""How many workers run at once: what fits, and no more than the configuration allows."""

from __future__ import annotations

from typing import Any

import pytest

from train_jobs.cluster.workers import fitting
from train_jobs.config import WorkerConfig


@pytest.mark.parametrize(
    ("worker", "workers"),
    [
        ({}, 16),
        ({"num_cpus": 3}, 5),
        ({"num_cpus": 32}, 1),
        ({"num_gpus": 0.5}, 4),
        ({"at_once": 2}, 2),
        ({"num_cpus": 3, "at_once": 9}, 5),
        ({"num_gpus": 0.5, "at_once": 3}, 3),
    ],
)
def test_as_many_workers_as_fit_and_are_allowed(worker: dict[str, Any], workers: int) -> None:
    assert fitting({"CPU": 16.0, "GPU": 2.0}, WorkerConfig(**worker)) == workers
