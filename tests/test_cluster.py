"""cluster.yaml is accepted by Ray's own launcher, as `ray up` would load it before it calls the cloud."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).parent.parent
Config = dict[str, Any]


@pytest.fixture
def cluster() -> Config:
    return yaml.safe_load((ROOT / "cluster.yaml").read_text())


def launch_config(cluster: Config) -> Config:
    """The defaults filled in and the schema checked, as `ray up` does."""
    filled = prepare_config(copy.deepcopy(cluster))
    validate_config(filled)
    return filled


def test_ray_accepts_the_cluster(cluster: Config) -> None:
    nodes = launch_config(cluster)["available_node_types"]
    assert set(nodes) == {"head", "verifier", "draft"}
    assert nodes["head"]["max_workers"] == 0
    assert nodes["head"]["resources"]["GPU"] == 0
    for name in ("verifier", "draft"):
        assert nodes[name]["resources"]["GPU"] == 1
        assert nodes[name]["labels"] == {"role": name}
        assert 1 <= nodes[name]["min_workers"] <= nodes[name]["max_workers"]


def misspell_a_key(cluster: Config) -> None:
    cluster["max_worker"] = 4


def misspell_a_node_key(cluster: Config) -> None:
    cluster["available_node_types"]["draft"]["min_worker"] = 1


def halve_a_gpu(cluster: Config) -> None:
    cluster["available_node_types"]["draft"]["resources"]["GPU"] = 0.5


def name_an_unknown_head(cluster: Config) -> None:
    cluster["head_node_type"] = "haed"


def ask_for_more_workers_than_allowed(cluster: Config) -> None:
    cluster["available_node_types"]["draft"]["min_workers"] = cluster["max_workers"]


@pytest.mark.parametrize(
    ("spoil", "refusal"),
    [
        (misspell_a_key, "max_worker"),
        (misspell_a_node_key, "min_worker"),
        (halve_a_gpu, "0.5"),
        (name_an_unknown_head, "head_node_type"),
        (ask_for_more_workers_than_allowed, "max_workers"),
    ],
)
def test_ray_refuses_a_spoilt_cluster(cluster: Config, spoil: Callable[[Config], None], refusal: str) -> None:
    spoil(cluster)
    with pytest.raises((ValueError, jsonschema.ValidationError), match=refusal):
        launch_config(cluster)


def test_images_carry_the_pinned_ray_and_this_python(cluster: Config) -> None:
    pinned = re.search(r"^ray==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned
    for image in ("head_image", "worker_image"):
        assert cluster["docker"][image].startswith(f"rayproject/ray:{pinned[1]}-py311-")


def test_every_node_installs_the_package_and_gpu_nodes_its_gpu_extra(cluster: Config) -> None:
    filled = launch_config(cluster)
    assert not any("[gpu]" in command for command in filled["head_setup_commands"])
    assert any("[gpu]" in command for command in filled["worker_setup_commands"])
    mounted = next(there for there, here in cluster["file_mounts"].items() if here == ".")
    assert any(f"cd {mounted} && pip install" in command for command in filled["head_setup_commands"])


def test_the_cluster_has_nodes_for_every_verifier_of_the_gpu_config(cluster: Config) -> None:
    service = yaml.safe_load((ROOT / "serve_app" / "configs" / "llama2-13b.yaml").read_text())
    actors, nodes = service["target"]["actors"], cluster["available_node_types"]["verifier"]
    assert actors["label_selector"] == nodes["labels"]
    assert actors["num_gpus"] == nodes["resources"]["GPU"]
    assert actors["autoscaling"]["max_replicas"] <= nodes["max_workers"]
    assert 2 <= actors["autoscaling"]["min_replicas"] <= nodes["min_workers"]
    draft = cluster["available_node_types"]["draft"]["labels"]
    assert all(pool["actors"]["label_selector"] == draft for pool in [service["draft"], *service["pools"].values()])
