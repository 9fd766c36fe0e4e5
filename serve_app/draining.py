"""Takes the node of this process out of its cluster while it serves: its answers end, and new ones begin elsewhere.

Ray ends a node that is told to go at once, with every answer on it. What is announced here first makes Serve start the
node's replicas elsewhere, then end these as it does in a roll.
"""

from __future__ import annotations

import time

import ray
from ray.exceptions import RayError

from core.errors import TaskSpecError
from serve_app import ray_private

LOOK_EVERY = 1.0  # seconds
PATIENCE = 5.0  # seconds for Serve to tell what it runs


class NotDrained(TaskSpecError):
    """The node refuses to be drained, or something still serves on it."""


def drain(seconds: float) -> None:
    """Announce that the node of this process goes in `seconds`, and wait until it serves nothing any more.

    A replica ends as soon as another has started in its place, and without one early enough to have all the time that
    it may take to end its sessions. A proxy ends with the last request that came through it. Raises `NotDrained`.
    """
    deadline = time.monotonic() + seconds
    node = ray.get_runtime_context().get_node_id()
    if refusal := ray_private.announce_departure(node, seconds):
        raise NotDrained(f"Ray does not drain this node: {refusal}")
    while parts := serving_on(node):
        if time.monotonic() > deadline:
            raise NotDrained(f"still on this node after {seconds:g} s: {', '.join(parts)}")
        time.sleep(LOOK_EVERY)


def serving_on(node: str) -> list[str]:
    """What Serve runs on a node, in words."""
    try:
        details = ray_private.serve_details(PATIENCE)
    except RayError as error:  # it is started again, as the node may have been the one that it was on
        return [f"what Serve does not tell ({type(error).__name__})"]
    if details is None:
        return []
    replicas = [
        replica.replica_id
        for application in details.applications.values()
        for deployment in application.deployments.values()
        for replica in deployment.replicas
        if replica.node_id == node
    ]
    return replicas + ["a proxy"] * (node in details.proxies)
