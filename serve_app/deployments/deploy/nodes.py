"""The nodes of the cluster: which of them may run a replica, and how replicas of a deployment keep apart on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray

from serve_app import ray_private
from serve_app.application_names import CORE
from serve_app.config import Actors


@dataclass(frozen=True)
class Node:
    """A node of the cluster: Ray's id of it, its address, its resources, those of them that are free, and its labels.

    A cap that `free` does not name has not been used there yet.
    """

    id: str
    address: str
    resources: Mapping[str, float] = field(compare=False)
    free: Mapping[str, float] = field(compare=False, default_factory=dict)
    labels: Mapping[str, str] = field(compare=False, default_factory=dict)

    def may_run(self, actors: Actors) -> bool:
        """Whether a replica fits on the node, if nothing else is there."""
        return self.has_labels(actors) and all(
            self.resources.get(name, 0.0) >= amount for name, amount in _needs(actors).items()
        )

    def has_labels(self, actors: Actors) -> bool:
        """Whether the node is of the kind that a replica asks for."""
        return all(_matches(wish, self.labels.get(name)) for name, wish in actors.label_selector.items())

    def has_room(self, actors: Actors, cap: str, share: float) -> bool:
        """Whether a replica fits beside all that runs, of which it takes a `share` of the resource `cap`."""
        free = {cap: 1.0} | self.free
        return self.may_run(actors) and all(
            free.get(name, 0.0) >= amount for name, amount in {**_needs(actors), cap: share}.items()
        )


def alive() -> list[Node]:
    """The nodes of the cluster of this process."""
    free = ray_private.free_resources()
    return [
        Node(
            node["NodeID"], node["NodeManagerAddress"], node["Resources"], free.get(node["NodeID"], {}), node["Labels"]
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


def apart(deployment: str, actors: Actors, nodes: Sequence[Node]) -> dict[str, Any]:
    """Options of a deployment of the core by which its replicas spread over `nodes`, and newer ones replace them.

    No node gets more than its part of them, so the loss of one takes no more. Serve's own way to spread is a wish: it
    often puts both of two replicas on one node. Where there is room for one replica more, new ones start before old
    ones end; without room they would wait for each other.
    """
    hosts = [node for node in nodes if node.may_run(actors)]
    limit = math.ceil(actors.most / len(hosts)) if len(hosts) > 1 else None
    cap, share = ray_private.cap_resource(CORE, deployment), 1 / limit if limit else 0.0
    options = {} if limit is None else {"max_replicas_per_node": limit}
    return options | ({"max_surge_percent": 100} if any(node.has_room(actors, cap, share) for node in hosts) else {})


def _needs(actors: Actors) -> dict[str, float]:
    needs = {"CPU": actors.num_cpus, "GPU": actors.num_gpus}
    return {name: amount for name, amount in needs.items() if amount}


def _matches(wish: str, value: str | None) -> bool:
    """Whether a value, None without the label, is as one of Ray's selectors says: `a`, `!a`, `in(a, b)`, `!in(a, b)`."""
    plain = wish.removeprefix("!")
    listed = plain.removeprefix("in(").removesuffix(")") if plain.endswith(")") else plain
    return (value in [choice.strip() for choice in listed.split(",")]) != wish.startswith("!")
