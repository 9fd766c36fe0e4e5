"""The manifests are what KubeRay, Ray and the service take, as far as that can be told without a cluster."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr
from ray.scripts.scripts import start

from serve_app.config import Actors, ServiceConfig, load_config
from serve_app.deployments.deploy.applications import ANSWER_SECONDS
from serve_app.deployments.deploy.bundle_applications import DRAIN_SECONDS
from tests.bench.hosts.cluster import shipped_environment
from tests.serve_app.kubernetes.manifests import (
    BASE,
    FOLDER,
    KUBECTL,
    Manifest,
    base,
    container,
    environment,
    groups,
    pods,
    rendered,
    the,
)
from tests.tree import ROOT

OVERLAYS = ("base", "gpu", "next")
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="needs kubectl")
every_overlay = pytest.mark.parametrize("overlay", [pytest.param(name, marks=needs_kubectl) for name in OVERLAYS])
# Of the schema of KubeRay 1.7.0, what is used here. A change wants the whole schema once more, which has 1 MB.
CLUSTER_KEYS = {
    "rayVersion",
    "authOptions",
    "enableInTreeAutoscaling",
    "autoscalerOptions",
    "gcsFaultToleranceOptions",
    "headGroupSpec",
    "workerGroupSpecs",
}
GROUP_KEYS = {"labels", "rayStartParams", "template"}
WORKER_KEYS = {"groupName", "minReplicas", "maxReplicas", *GROUP_KEYS}


@pytest.fixture
def cluster() -> Manifest:
    return the("RayCluster", base())


def service(overlay: str, tmp_path: Path) -> ServiceConfig:
    """The configuration that the overlay's ConfigMap has."""
    file = tmp_path / "taskspec.yaml"
    file.write_text(the("ConfigMap", rendered(overlay))["data"]["taskspec.yaml"])
    return load_config(file)


def parts(config: ServiceConfig) -> list[Actors]:
    return [config.target.actors, config.draft.actors, config.router.actors, config.ingress.actors]


def patience(group: Manifest) -> int:
    """Seconds that the hook of a group lets its answers take."""
    command = container(group)["lifecycle"]["preStop"]["exec"]["command"]
    assert command[:3] == ["taskspec", "drain", "--seconds"]
    return int(command[3])


def test_the_keys_are_those_of_kuberay(cluster: Manifest) -> None:
    assert (cluster["apiVersion"], set(cluster["spec"])) == ("ray.io/v1", CLUSTER_KEYS)
    assert set(cluster["spec"]["headGroupSpec"]) == GROUP_KEYS
    for group in cluster["spec"]["workerGroupSpecs"]:
        assert set(group) == WORKER_KEYS
        assert group["labels"] == {"role": group["groupName"]}


def test_what_kuberay_refuses_is_not_there(cluster: Manifest) -> None:
    """Labels in the parameters, a policy to restart beside its second autoscaler, Redis in variables of the head."""
    options = {parameter.opts[0] for parameter in start.params}
    for group in groups(cluster).values():
        assert "labels" not in group["rayStartParams"]
        assert {f"--{name}" for name in group["rayStartParams"]} <= options
        assert "restartPolicy" not in group["template"]["spec"]
        assert not {"REDIS_PASSWORD", "RAY_REDIS_ADDRESS", "RAY_AUTH_TOKEN"} & set(environment(container(group)))
        assert "envFrom" not in container(group)  # it would not see the reconnect timeout there, and write its own


def test_ray_and_its_autoscaler_read_the_cluster(cluster: Manifest) -> None:
    assert f"ray=={cluster['spec']['rayVersion']}" in (ROOT / "constraints.txt").read_text().splitlines()
    named = {**cluster, "metadata": {**cluster["metadata"], "namespace": "default"}}
    types = _derive_autoscaling_config_from_ray_cr(named)["available_node_types"]
    assert types["headgroup"]["resources"]["CPU"] == 0
    for role in ("ingress", "verifier", "draft"):
        assert types[role]["labels"] == {"role": role}
        # A pod that is drained is replaced before it has ended only if there may be one more.
        assert 1 <= types[role]["min_workers"] < types[role]["max_workers"]


def test_every_pod_has_the_variables_of_every_node(cluster: Manifest) -> None:
    """Those of ray.env; the mode of its token is KubeRay's to set."""
    variables = shipped_environment()
    assert cluster["spec"]["authOptions"] == {"mode": variables.pop("RAY_AUTH_MODE")}
    assert len(variables) >= 4
    for group in groups(cluster).values():
        assert environment(container(group)).items() >= variables.items()


@every_overlay
def test_every_part_has_a_group_that_it_fits(overlay: str, tmp_path: Path) -> None:
    config = service(overlay, tmp_path)
    homes = groups(the("RayCluster", rendered(overlay)))
    for actors in parts(config):
        home = homes[actors.label_selector["role"]]
        limits = container(home)["resources"]["limits"]
        gpus = float(limits.get("nvidia.com/gpu", 0))
        assert actors.num_cpus <= float(limits["cpu"])
        assert actors.num_gpus <= gpus
        a_pod = min(float(limits["cpu"]) // (actors.num_cpus or 1), gpus // actors.num_gpus if actors.num_gpus else 99)
        assert math.ceil(actors.most / a_pod) <= home["maxReplicas"]
    for part, role in ((config.target, "verifier"), (config.ingress, "ingress")):
        assert 2 <= part.actors.fewest <= homes[role]["minReplicas"]


@needs_kubectl
def test_the_service_on_gpus_is_the_shipped_pair(tmp_path: Path) -> None:
    shipped, config = load_config("llama2-13b"), service("gpu", tmp_path)
    assert config.target == shipped.target
    assert config.draft == shipped.draft
    assert config.bundle == shipped.bundle
    made = the("Job", base())["spec"]["template"]["spec"]["initContainers"][0]["command"]
    assert config.bundle in made  # on a new volume it is not there, and nothing would serve


def test_a_pod_that_goes_has_time_for_its_answers(cluster: Manifest) -> None:
    for role, longest in (("ingress", ANSWER_SECONDS), ("verifier", DRAIN_SECONDS), ("draft", DRAIN_SECONDS)):
        group = groups(cluster)[role]
        assert longest + 60 <= patience(group) < group["template"]["spec"]["terminationGracePeriodSeconds"]


def test_requests_go_to_ingress_pods_whose_proxy_is_well(cluster: Manifest) -> None:
    ingress = container(groups(cluster)["ingress"])
    assert {port["name"]: port["containerPort"] for port in ingress["ports"]}["serve"] == 8000
    assert ingress["readinessProbe"]["httpGet"] == {"path": "/-/healthz", "port": "serve"}
    assert "livenessProbe" not in ingress  # or KubeRay would not add that of Ray
    selector = the("Service", base(), "taskspec")["spec"]["selector"]
    labels = {"ray.io/group": "ingress", **groups(cluster)["ingress"]["labels"]}
    assert selector == labels
    for budget in (manifest for manifest in base() if manifest["kind"] == "PodDisruptionBudget"):
        assert budget["spec"]["minAvailable"] == 1  # `maxUnavailable` needs a controller with a scale, which it has not


@every_overlay
def test_pods_run_without_root_and_without_more_than_they_need(overlay: str) -> None:
    specifications = list(pods(rendered(overlay)))
    assert len(specifications) == 6
    for pod in specifications:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        for part in (*pod["containers"], *pod.get("initContainers", ())):
            assert part["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
            assert part["resources"]["limits"]["memory"]


def test_no_manifest_has_a_secret_and_keys_are_mounted_so_that_they_change(cluster: Manifest) -> None:
    assert "Secret" not in {manifest["kind"] for manifest in base()}
    for role in ("head", "ingress"):  # the head reads them to deploy
        mounts = {mount["name"]: mount for mount in container(groups(cluster)[role])["volumeMounts"]}
        assert mounts["keys"] == {"name": "keys", "mountPath": "/etc/taskspec-keys"}  # a `subPath` is never updated
    for pod in pods(base()):
        volumes = {volume["name"] for volume in pod.get("volumes", ())}
        mounted = {mount["name"] for part in pod["containers"] for mount in part.get("volumeMounts", ())}
        assert mounted <= volumes | {"data"}  # which is a template of the StatefulSet


def test_what_the_pods_name_is_there() -> None:
    names = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in base()}
    settings = yaml.safe_load((BASE / "kustomization.yaml").read_text())
    names |= {("ConfigMap", made["name"]) for made in settings["configMapGenerator"]}
    for pod in pods(base()):
        for volume in pod.get("volumes", ()):
            if claim := volume.get("persistentVolumeClaim"):
                assert ("PersistentVolumeClaim", claim["claimName"]) in names
            if config := volume.get("configMap"):
                assert ("ConfigMap", config["name"]) in names
    redis = the("RayCluster", base())["spec"]["gcsFaultToleranceOptions"]["redisAddress"].partition(":")
    assert ("Service", redis[0]) in names


def test_the_page_makes_every_secret_that_the_pods_name() -> None:
    said = set(re.findall(r"create secret generic (\S+)", (FOLDER / "README.md").read_text()))
    used = set(
        re.findall(r"secret(?:KeyRef: \{name|Name): ([\w-]+)", "".join(map(Path.read_text, BASE.glob("*.yaml"))))
    )
    assert used - {"taskspec"} == said  # KubeRay makes that one, which has the token of Ray


@needs_kubectl
def test_the_next_cluster_is_another_one_and_shares_the_rest() -> None:
    now, later = rendered("base"), rendered("next")
    assert the("RayCluster", later)["metadata"]["name"] == "taskspec-b"
    job = the("Job", later)
    assert job["metadata"]["name"] == "taskspec-b-deploy"
    env = {variable["name"]: variable for variable in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["RAY_API_SERVER_ADDRESS"]["value"] == "http://taskspec-b-head-svc:8265"
    assert env["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]["name"] == "taskspec-b"
    own = ("RayCluster", "Job")
    assert [m for m in later if m["kind"] not in own] == [m for m in now if m["kind"] not in own]
    assert images(now).isdisjoint(images(later))


def images(manifests: list[Manifest]) -> set[Any]:
    """Those of ours."""
    return {
        part["image"] for pod in pods(manifests) for part in pod["containers"] if not part["image"].startswith("redis:")
    }
