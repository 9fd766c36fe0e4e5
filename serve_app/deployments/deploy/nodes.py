"""The nodes of the cluster: which of them may run a replica, and how replicas of a deployment keep apart on them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.serve.schema import DeploymentDetails, ServeInstanceDetails

from serve_app import ray_private
from serve_app.application_names import CORE
from serve_app.config import Actors


@dataclass(frozen=True)
class Node:
    """A node of the cluster: Ray's id of it, its address, its resources, what is free of them, and its labels."""

    id: str
    address: str
    resources: Mapping[str, float] = field(compare=False)
    free: Mapping[str, float] = field(compare=False, default_factory=dict)
    labels: Mapping[str, str] = field(compare=False, default_factory=dict)

    def may_run(self, actors: Actors) -> bool:
        """Whether a replica fits on the node, if nothing else is there."""
        return self.has_labels(actors) and _hold(self.resources, actors)

    def has_room(self, actors: Actors) -> bool:
        """Whether a replica fits beside all that runs."""
        return self.has_labels(actors) and _hold(self.free, actors)

    def has_labels(self, actors: Actors) -> bool:
        """Whether the node is of the kind that a replica asks for."""
        return all(_matches(wish, self.labels.get(name)) for name, wish in actors.label_selector.items())


@dataclass(frozen=True)
class Cluster:
    """Its nodes, and for each deployment of the core that runs, how many replicas each node has of it."""

    nodes: Sequence[Node] = ()
    replicas: Mapping[str, Counter[str]] = field(default_factory=dict)

    def apart(self, deployment: str, actors: Actors) -> dict[str, Any]:
        """Options of a deployment of the core by which its replicas spread over nodes, and newer ones replace them.

        No node gets more than its part of them, so the loss of one takes no more. Serve's own way to spread is a wish:
        it often puts both of two replicas on one node. Where there is room for one replica more, new ones start before
        old ones end; without room they would wait for each other.
        """
        hosts = [node for node in self.nodes if node.may_run(actors)]
        limit = math.ceil(actors.most / len(hosts)) if len(hosts) > 1 else None
        there = self.replicas.get(deployment, Counter())
        surges = any(node.has_room(actors) and (limit is None or there[node.id] < limit) for node in hosts)
        spread = {} if limit is None else {"max_replicas_per_node": limit}
        return spread | ({"max_surge_percent": 100} if surges else {})


def alive() -> list[Node]:
    """The nodes of the cluster of this process."""
    free = ray_private.free_resources()
    return [_node(facts, free.get(facts["NodeID"], {})) for facts in ray.nodes() if facts["Alive"]]


def cluster() -> Cluster:
    """That of this process, with the service that runs there."""
    controller = ray_private.controller()
    if controller is None:
        return Cluster(alive())
    details = ServeInstanceDetails(**ray.get(controller.get_serve_instance_details.remote()))
    core = details.applications.get(CORE)
    deployments = core.deployments if core is not None else {}
    return Cluster(alive(), {name: _places(deployment) for name, deployment in deployments.items()})


def _node(facts: Mapping[str, Any], free: Mapping[str, float]) -> Node:
    return Node(facts["NodeID"], facts["NodeManagerAddress"], facts["Resources"], free, facts["Labels"])


def _places(deployment: DeploymentDetails) -> Counter[str]:
    return Counter(replica.node_id or "" for replica in deployment.replicas)


def _hold(resources: Mapping[str, float], actors: Actors) -> bool:
    needs = {"CPU": actors.num_cpus, "GPU": actors.num_gpus}
    return all(resources.get(name, 0.0) >= amount for name, amount in needs.items() if amount)


def _matches(wish: str, value: str | None) -> bool:
    """Whether a value, None without the label, is as a selector of Ray's says: `a`, `!a`, `in(a,b)`, `!in(a,b)`."""
    plain = wish.removeprefix("!")
    listed = plain.removeprefix("in(").removesuffix(")") if plain.endswith(")") else plain
    return (value in listed.split(",")) != wish.startswith("!")
