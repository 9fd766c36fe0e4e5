"""cluster.yaml and own-machines.yaml are accepted by Ray's own launcher, as `ray up` would load them."""

from __future__ import annotations

import copy
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click import ClickException
from ray.autoscaler._private.util import prepare_config, validate_config

from tests.bench.hosts.cluster import shipped_environment

ROOT = Path(__file__).parent.parent
AWS, OWN = "cluster.yaml", "serve_app/own-machines.yaml"
Config = dict[str, Any]


def read(name: str) -> Config:
    return yaml.safe_load((ROOT / name).read_text())


@pytest.fixture
def cluster() -> Config:
    return read(AWS)


@pytest.fixture
def own() -> Config:
    return read(OWN)


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
    assert not any("gpu" in command for command in filled["head_setup_commands"])
    assert any("[gpu," in command for command in filled["worker_setup_commands"])
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


def test_ray_accepts_own_machines(own: Config) -> None:
    [nodes] = launch_config(own)["available_node_types"].values()
    assert nodes["min_workers"] == nodes["max_workers"] == len(own["provider"]["worker_ips"]) == 2


@pytest.mark.parametrize("spoilt", ["head_ip", "worker_ips"])
def test_ray_refuses_own_machines_without_addresses(own: Config, spoilt: str) -> None:
    del own["provider"][spoilt]
    with pytest.raises(ClickException):
        launch_config(own)


@pytest.mark.parametrize("name", [AWS, OWN])
def test_every_node_has_the_environment_and_the_token_of_the_service(name: str, tmp_path: Path) -> None:
    """The commands that set a node up, run in a home, give its shells what ray.env says, once."""
    config = read(name)
    assert config["file_mounts"].keys() >= {mounted(config, "."), mounted(config, "~/.ray/auth_token")}
    (tmp_path / "taskspec").symlink_to(ROOT)
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "activate").touch()
    [command] = [command for command in config["setup_commands"] if "ray.env" in command]
    for _ in range(2):
        shell(command, tmp_path)
    assert len((tmp_path / ".bashrc").read_text().splitlines()) == 1
    variables = dict(line.split("=", 1) for line in shell(". ~/.bashrc; env", tmp_path).splitlines())
    assert variables.items() >= shipped_environment().items() >= {("RAY_AUTH_MODE", "token")}
    assert not any("RAY_" in option for option in config.get("docker", {}).get("run_options", []))


def mounted(config: Config, what: str) -> str:
    """Where a file or directory of the operator lies on the nodes."""
    return next(there for there, here in config["file_mounts"].items() if here == what)


def shell(command: str, home: Path) -> str:
    """What a command prints that a node would run with this home."""
    environment = {"HOME": str(home), "PATH": os.defpath}
    return subprocess.run(["bash", "-c", command], env=environment, check=True, capture_output=True, text=True).stdout


def test_a_node_announces_the_address_it_is_reached_by_and_its_labels(own: Config, tmp_path: Path) -> None:
    reached = "export SSH_CONNECTION='10.0.0.9 50000 10.0.0.2 22' RAY_HEAD_IP=10.0.0.1; ray() { echo \"$@\"; }; "
    for node in ("head", "worker"):
        command = own[f"{node}_start_ray_commands"][-1]
        assert {"--node-ip-address=10.0.0.2", "--labels="} <= set(shell(reached + command, tmp_path).split())
        (tmp_path / "labels").write_text("role=verifier\n")
        assert "--labels=role=verifier" in shell(reached + command, tmp_path).split()
        (tmp_path / "labels").unlink()
