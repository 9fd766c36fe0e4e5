from __future__ import annotations

import ctypes
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
    CLUSTERS,
    DEBUG,
    PORTS,
    free_port,
    log_options,
    on_loopback,
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


@pytest.mark.parametrize("before", [None, "1"])
def test_a_ray_has_the_loopback_address_within_and_that_of_the_network_after(
    monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    """What Ray makes of 127.0.0.1 where it starts, and where it is joined."""
    from ray._private import ray_constants, services, worker

    monkeypatch.setattr(worker, "_global_node", None)
    monkeypatch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", True)
    monkeypatch.setattr(services, "node_ip_address_from_perspective", lambda *_: "192.0.2.7")
    monkeypatch.setenv(CLUSTERS, before or "")
    if before is None:
        monkeypatch.delenv(CLUSTERS)
    with on_loopback():
        assert services.get_node_ip_address() == services.resolve_ip_for_localhost(HOST) == HOST
        assert os.environ[CLUSTERS] == "0"
    assert services.get_node_ip_address() == services.resolve_ip_for_localhost(HOST) == "192.0.2.7"
    assert os.environ.get(CLUSTERS) == before


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


def test_only_native_code_that_begins_within_writes_to_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    library = ctypes.CDLL(None)
    library.fflush.argtypes = [ctypes.c_void_p]

    def native(line: bytes, stream: ctypes.c_void_p) -> None:
        library.fputs(line, stream)
        library.fflush(stream)

    def stderr() -> ctypes.c_void_p:
        """As native code takes it when it begins; it keeps this one."""
        return ctypes.c_void_p(ctypes.c_void_p.in_dll(library, "stderr").value)

    with local_cluster._native_log(tmp_path / "driver.log"):
        begun = stderr()
        native(b"E within\n", begun)
        sys.stderr.write("python\n")
    native(b"E later\n", begun)
    native(b"others\n", stderr())
    assert (tmp_path / "driver.log").read_text() == "E within\nE later\n"
    assert capfd.readouterr().err == "python\nothers\n"


NOISE = """
from serve_app.local_cluster import local_cluster

with local_cluster(0, 0, set()):
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
