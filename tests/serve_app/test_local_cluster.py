from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from core.errors import ConfigError
from serve_app import local_cluster
from serve_app.local_cluster import (
    DEBUG,
    PORTS,
    free_port,
    log_options,
    show_ray,
    silence_ray,
)

HOST = "127.0.0.1"
GIVEN_AWAY = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_a_port_is_none_that_the_system_gives_away() -> None:
    """A demo's was, now and then, to a process of Ray that started before the service listened."""
    given = range(*map(int, GIVEN_AWAY.read_text().split())) if GIVEN_AWAY.exists() else range(49_152, 65_536)
    assert PORTS.stop <= given.start or PORTS.start > given.stop
    assert all(free_port(HOST) in PORTS for _ in range(20))


def test_no_port_is_chosen_twice_nor_one_that_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    first, taken, second = free_port(HOST), free_port(HOST), free_port(HOST)
    monkeypatch.setattr(local_cluster, "_untaken", iter([first, taken, second]))
    with socket.create_server((HOST, taken)):
        assert [free_port(HOST), free_port(HOST)] == [first, second]
        with pytest.raises(ConfigError, match=r"no port of 127\.0\.0\.1 from 20000 to 29999 is free"):
            free_port(HOST)


@pytest.fixture
def unshown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's lines are not shown; what a test changes of that is undone."""
    monkeypatch.setenv(DEBUG, "")
    monkeypatch.delenv(DEBUG)


@pytest.mark.usefixtures("unshown")
def test_what_ray_logs_is_shown_on_request_only() -> None:
    assert log_options() == {"log_to_driver": False, "logging_level": logging.CRITICAL}
    show_ray()
    assert log_options() == {"log_to_driver": True, "logging_level": logging.INFO}


@pytest.mark.usefixtures("unshown")
def test_rays_warnings_are_not_shown_and_those_of_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray.serve  # noqa: F401  sets the levels that are to be kept
    from ray._private import worker

    for name in ("ray", "ray.serve"):
        monkeypatch.setattr(logging.getLogger(name), "level", logging.getLogger(name).level)
    monkeypatch.setattr(worker, "print_to_stdstream", worker.print_to_stdstream)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        silence_ray()
        for module in ("ray", "ray._private.worker", "rayon", "core.errors"):
            warnings.warn_explicit(f"from {module}", FutureWarning, "file.py", 1, module)
    assert [str(warning.message) for warning in seen] == ["from rayon", "from core.errors"]


NOISE = """
from serve_app.local_cluster import local_cluster

with local_cluster(0, 0):
    import ray

    @ray.remote(num_cpus=0, max_restarts=1)
    class Restarted:
        def __init__(self, argument):
            pass  # Ray's C++ part logs as an error that the argument is in the object store

        def fail(self):
            raise ValueError("the cause")

    ray.get(Restarted.remote(ray.put(0)).fail.remote())
"""


@pytest.mark.cluster
@pytest.mark.soak
@pytest.mark.parametrize("shown", [False, True])
def test_of_ray_only_the_error_of_a_worker_is_seen_with_its_cause(shown: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if name != DEBUG} | ({DEBUG: "1"} if shown else {})
    outcome = subprocess.run(
        [sys.executable, "-c", NOISE], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert outcome.returncode == 1
    assert outcome.stderr.rstrip().endswith("ValueError: the cause")
    assert ("core_worker.cc" in outcome.stderr) == shown
    assert outcome.stderr.startswith("Traceback ") != shown
    assert shown or outcome.stdout == ""
