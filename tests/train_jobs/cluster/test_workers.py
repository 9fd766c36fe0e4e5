"""How many workers run at once: what fits, and no more than the configuration allows. None waits without room."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.tree import ROOT
from train_jobs.cluster.workers import fitting
from train_jobs.config import WorkerConfig

PROGRAM = """
from serve_app.local_cluster import local_cluster
from train_jobs.cluster import workers
from train_jobs.config import WorkerConfig

class Doubler:
    def work(self, item):
        return 2 * item

with local_cluster(0, 0):
    import ray
    room = workers.at_once(WorkerConfig())
    workers.at_once = lambda worker: room + 1  # others took a place meanwhile
    print(sorted(workers.spread(Doubler, WorkerConfig(), range(room + 2))))
"""


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
    assert fitting([{"CPU": 16.0, "GPU": 2.0}], WorkerConfig(**worker)) == workers


def test_what_is_left_on_several_nodes_does_not_make_room_for_one_more() -> None:
    assert fitting([{"CPU": 1.9}, {"CPU": 1.8}, {"CPU": 2.0}, {}], WorkerConfig()) == 4


@pytest.mark.cluster
def test_items_do_not_wait_for_a_worker_without_room() -> None:
    printed = subprocess.check_output([sys.executable, "-c", PROGRAM], cwd=ROOT, text=True, timeout=120)
    items = [int(word) for word in printed.strip("[]\n").split(", ")]
    assert items == list(range(0, 2 * len(items), 2))
    assert len(items) >= 3
