"""Which nodes may run a replica, and how replicas are kept apart on them."""

from __future__ import annotations

from collections import Counter

import pytest

from serve_app.config import Actors
from serve_app.deployments.deploy.nodes import Cluster, Node

NAME = "TargetVerifier"


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
        ("in(verifier,draft)", {"role": "draft"}, True),
        ("in(verifier,draft)", {"role": "head"}, False),
        ("!in(verifier,draft)", {"role": "verifier"}, False),
        ("!in(verifier,draft)", {}, True),
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
    options = Cluster([node(number) for number in range(nodes)]).apart(NAME, Actors(replicas=replicas))
    assert options.get("max_replicas_per_node") == limit


def test_with_autoscaling_the_part_is_of_all_that_may_run() -> None:
    actors = Actors(autoscaling={"min_replicas": 2, "max_replicas": 5})
    assert Cluster([node(1), node(2)]).apart(NAME, actors)["max_replicas_per_node"] == 3


def test_only_nodes_that_may_run_a_replica_count() -> None:
    nodes = [node(1), node(2), node(3, cpus=0.0)]
    assert Cluster(nodes).apart(NAME, Actors(replicas=2))["max_replicas_per_node"] == 1


@pytest.mark.parametrize(
    ("nodes", "there", "surges"),
    [
        ([node(1), node(2)], "", True),  # nothing runs yet
        ([node(1), node(2)], "12", False),  # each has its replica, and may have no other
        ([node(1), node(2), node(3)], "12", True),
        ([node(1), node(2), node(3, CPU=0.0)], "12", False),  # something else takes the third
        ([node(1)], "11", True),
        ([node(1, CPU=0.0)], "11", False),
        ([], "", False),
    ],
)
def test_new_replicas_start_first_where_there_is_room_for_one(nodes: list[Node], there: str, surges: bool) -> None:
    options = Cluster(nodes, {NAME: Counter(there)}).apart(NAME, Actors(replicas=2))
    assert ("max_surge_percent" in options) == surges
