"""Which nodes may run a replica, and how replicas are kept apart on them."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.application_names import CORE
from serve_app.config import Actors
from serve_app.deployments.deploy.nodes import Node, apart
from serve_app.ray_private import cap_resource

CAP = cap_resource(CORE, "TargetVerifier")


def node(number: int, cpus: float = 4.0, **free: float) -> Node:
    return Node(str(number), f"10.0.0.{number}", {"CPU": cpus}, {"CPU": cpus} | free)


@pytest.mark.parametrize(
    ("wish", "labels", "matches"),
    [
        ("verifier", {"role": "verifier"}, True),
        ("verifier", {"role": "draft"}, False),
        ("verifier", {}, False),
        ("!verifier", {"role": "draft"}, True),
        ("!verifier", {}, True),
        ("in(verifier, draft)", {"role": "draft"}, True),
        ("in(verifier,draft)", {"role": "head"}, False),
        ("!in(verifier, draft)", {"role": "verifier"}, False),
        ("!in(verifier, draft)", {}, True),
        ("inner", {"role": "inner"}, True),
    ],
)
def test_labels_are_compared_as_ray_compares_them(wish: str, labels: dict[str, str], matches: bool) -> None:
    actors = Actors(label_selector={"role": wish})
    assert Node("1", "10.0.0.1", {"CPU": 1.0}, labels=labels).may_run(actors) == matches


@pytest.mark.parametrize(
    ("replicas", "nodes", "limit"), [(2, 3, 1), (2, 2, 1), (3, 2, 2), (7, 3, 3), (1, 3, 1), (2, 1, None), (2, 0, None)]
)
def test_no_node_gets_more_than_its_part(replicas: int, nodes: int, limit: int | None) -> None:
    options = apart("TargetVerifier", Actors(replicas=replicas), [node(number) for number in range(nodes)])
    assert options.get("max_replicas_per_node") == limit


def test_with_autoscaling_the_part_is_of_all_that_may_run() -> None:
    actors = Actors(autoscaling={"min_replicas": 2, "max_replicas": 5})
    assert apart("TargetVerifier", actors, [node(1), node(2)])["max_replicas_per_node"] == 3


def test_only_nodes_that_may_run_a_replica_count() -> None:
    nodes = [node(1), node(2), node(3, cpus=0.0)]
    assert apart("TargetVerifier", Actors(replicas=2), nodes)["max_replicas_per_node"] == 1


@pytest.mark.parametrize(
    ("nodes", "surges"),
    [
        ([node(1), node(2)], True),  # nothing runs yet
        ([node(1, **{CAP: 0.0}), node(2, **{CAP: 0.0})], False),  # each has its replica, and may have no other
        ([node(1, **{CAP: 0.0}), node(2, **{CAP: 0.0}), node(3)], True),
        ([node(1, **{CAP: 0.0}), node(2, **{CAP: 0.0}), node(3, CPU=0.0)], False),  # something else takes the third
        ([node(1)], True),
        ([node(1, CPU=0.0)], False),
        ([], False),
    ],
)
def test_new_replicas_start_first_where_there_is_room_for_one(nodes: list[Node], surges: bool) -> None:
    options: dict[str, Any] = apart("TargetVerifier", Actors(replicas=2), nodes)
    assert ("max_surge_percent" in options) == surges
