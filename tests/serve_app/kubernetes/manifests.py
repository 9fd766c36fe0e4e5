"""The manifests of serve_app/kubernetes, and what KubeRay 1.7 makes of them as far as a service depends on it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tests.tree import ROOT

FOLDER = ROOT / "serve_app" / "kubernetes"
BASE = FOLDER / "base"
KUBECTL = shutil.which("kubectl")
GCS_PORT, DASHBOARD_PORT = 6379, 8265
Manifest = dict[str, Any]


def base() -> list[Manifest]:
    """The base, as its files have it."""
    names = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    return [manifest for name in names for manifest in yaml.safe_load_all((BASE / name).read_text())]


def rendered(overlay: str) -> list[Manifest]:
    """What `kubectl apply -k` would send."""
    assert KUBECTL is not None
    command = [KUBECTL, "kustomize", str(FOLDER / overlay)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return list(yaml.safe_load_all(output))


def the(kind: str, manifests: list[Manifest], name: str = "") -> Manifest:
    """The one manifest of a kind whose name ends so."""
    (manifest,) = (m for m in manifests if m["kind"] == kind and m["metadata"]["name"].endswith(name))
    return manifest


def groups(cluster: Manifest) -> dict[str, Manifest]:
    """The groups of pods by their role, that of the head among them."""
    head, workers = cluster["spec"]["headGroupSpec"], cluster["spec"]["workerGroupSpecs"]
    return {group["labels"]["role"]: group for group in (head, *workers)}


def container(group: Manifest) -> Manifest:
    """The container that runs Ray."""
    first: Manifest = group["template"]["spec"]["containers"][0]
    return first


def environment(part: Manifest) -> dict[str, str]:
    """The variables of a container that have their values in the manifest."""
    return {variable["name"]: variable["value"] for variable in part["env"] if "value" in variable}


def pods(manifests: list[Manifest]) -> Iterator[Manifest]:
    """The specification of every pod."""
    for manifest in manifests:
        if manifest["kind"] == "RayCluster":
            yield from (group["template"]["spec"] for group in groups(manifest).values())
        elif manifest["kind"] in ("Job", "StatefulSet"):
            yield manifest["spec"]["template"]["spec"]


def start_command(group: Manifest, head: bool, changes: Mapping[str, str]) -> list[str]:
    """The command of a group's container as KubeRay writes it, with `changes` to the parameters of `ray start`."""
    labels = ",".join(f"{name}={value}" for name, value in sorted(group["labels"].items()))
    added = {"dashboard-host": "0.0.0.0", "no-monitor": "true", "redis-password": "$REDIS_PASSWORD"} if head else {}
    parameters = {
        "block": "true",
        "dashboard-agent-listen-port": "52365",
        "metrics-export-port": "8080",
        "num-cpus": container(group)["resources"]["limits"]["cpu"],
        "labels": labels,
        **added,
        **group["rayStartParams"],
        **changes,
    }
    flags = (f"--{name}" if value == "true" else f"--{name}={value}" for name, value in sorted(parameters.items()))
    ray = " ".join(["ray start", *(["--head"] if head else []), *flags])
    return ["/bin/bash", "-c", "--", f"ulimit -n ${{RAY_START_ULIMIT_OPEN_FILES:-65536}}; {ray}"]
