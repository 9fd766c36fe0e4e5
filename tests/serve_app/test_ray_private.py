"""What is changed of Ray itself: a replica listens at the address of its node, C++ logs into a file."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from ray import util
from ray.serve._private import replica

from serve_app.config import Actors
from serve_app.deployments.deploy.bundle_applications import deployment
from serve_app.local_cluster import LOOPBACK
from serve_app.ray_private import CLUSTERS, listen_at_node_address, native_log, on_loopback


@pytest.mark.parametrize(("node", "narrowed"), [("127.0.0.1", "127.0.0.1:0"), ("fd00::7", "[fd00::7]:0")])
def test_what_serve_opens_on_every_address_is_opened_on_that_of_the_node(
    monkeypatch: pytest.MonkeyPatch, node: str, narrowed: str
) -> None:
    opened: list[str] = []

    def add_port(_: Any, address: str) -> int:
        opened.append(address)
        return 1234

    monkeypatch.setattr(replica, "add_port_to_grpc_server", add_port)
    monkeypatch.setattr(util, "get_node_ip_address", lambda: node)
    listen_at_node_address()
    every: Any = replica
    assert every.add_port_to_grpc_server(None, "[::]:0") == 1234
    assert opened == [narrowed]


def test_every_replica_of_a_service_is_so_begun() -> None:
    options = deployment(object, Actors()).ray_actor_options
    assert options is not None
    assert (
        f"{listen_at_node_address.__module__}.{listen_at_node_address.__name__}"
        in options["runtime_env"]["env_vars"].values()
    )


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
        assert services.get_node_ip_address() == services.resolve_ip_for_localhost(LOOPBACK) == LOOPBACK
        assert os.environ[CLUSTERS] == "0"
    assert services.get_node_ip_address() == services.resolve_ip_for_localhost(LOOPBACK) == "192.0.2.7"
    assert os.environ.get(CLUSTERS) == before


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

    with native_log(tmp_path / "driver.log"):
        begun = stderr()
        native(b"E within\n", begun)
        sys.stderr.write("python\n")
    native(b"E later\n", begun)
    native(b"others\n", stderr())
    assert (tmp_path / "driver.log").read_text() == "E within\nE later\n"
    assert capfd.readouterr().err == "python\nothers\n"
