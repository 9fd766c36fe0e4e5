"""The port at which a replica takes the calls of others is at the address of its node."""

from __future__ import annotations

from typing import Any

import pytest
from ray import util
from ray.serve._private import replica

from serve_app.config import Actors
from serve_app.deployments.deploy.bundle_applications import deployment
from serve_app.deployments.deploy.replica_port import narrow


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
    narrow()
    every: Any = replica
    assert every.add_port_to_grpc_server(None, "[::]:0") == 1234
    assert opened == [narrowed]


def test_every_replica_of_a_service_is_so_begun() -> None:
    options = deployment(object, Actors()).ray_actor_options
    assert options is not None
    assert f"{narrow.__module__}.{narrow.__name__}" in options["runtime_env"]["env_vars"].values()
