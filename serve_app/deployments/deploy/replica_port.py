"""Where the replicas of a service listen for the calls of others. What Serve has no option for is set here only."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def narrow() -> None:
    """Let the replica in this process listen at the address of its node, instead of every address of the machine.

    Others call it there. Serve opens the port after it has made the replica.
    """
    from ray._common.network_utils import build_address, parse_address  # type: ignore[attr-defined]
    from ray.util import get_node_ip_address

    replica: Any = import_module("ray.serve._private.replica")
    add_port = replica.add_port_to_grpc_server

    def add_port_of_node(server: Any, address: str) -> Any:
        _, port = parse_address(address)
        return add_port(server, build_address(get_node_ip_address(), port))

    replica.add_port_to_grpc_server = add_port_of_node
