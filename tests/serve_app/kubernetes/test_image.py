"""What the Dockerfile copies is there, what must not leave the repository is left out, and it has what a pod needs."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.serve_app.kubernetes.manifests import FOLDER
from tests.tree import ROOT

DOCKERFILE = (FOLDER / "Dockerfile").read_text()
IGNORED = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]


def copied() -> set[str]:
    """What comes from the repository."""
    lines = re.findall(r"(?m)^COPY (?!--from)(.+) \S+$", DOCKERFILE)
    return {name for line in lines for name in line.split()}


def test_only_what_is_copied_leaves_the_repository() -> None:
    """So neither `.venv` and `.git` nor a file of keys, a token or a bundle beside them does."""
    assert copied() == {"constraints.txt", "pyproject.toml", "README.md", "LICENSE", "core", "serve_app", "train_jobs"}
    assert all((ROOT / name).exists() for name in copied())
    assert IGNORED[0] == "*"
    assert {pattern[1:] for pattern in IGNORED if pattern.startswith("!")} == copied()


def test_the_image_has_the_ray_the_python_and_the_gpu_packages_of_the_project() -> None:
    ray = re.search(r"(?m)^ray==(\S+)$", (ROOT / "constraints.txt").read_text())
    assert ray
    assert f"FROM rayproject/ray:{ray[1]}-py311-" in DOCKERFILE
    assert "FROM python:3.11-slim-" in DOCKERFILE
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["gpu"]
    assert all(f"'{package}'" in DOCKERFILE for package in extra)


@pytest.mark.parametrize("name", ["serve_app/kubernetes/Dockerfile", "cluster.yaml", "serve_app/own-machines.yaml"])
def test_spans_can_be_turned_on_with_every_installation_that_is_shipped(name: str) -> None:
    installed = re.findall(r"-c constraints\.txt (?:-e )?'?\.(.*?)(?: |$)", (ROOT / name).read_text(), re.MULTILINE)
    assert installed
    assert all("tracing" in extras for extras in installed)


def test_kuberay_is_one_that_asks_for_the_health_of_ray_without_wget() -> None:
    """By HTTP, as it does since 1.6.1 with Ray 2.53 and later."""
    ray = re.search(r"(?m)^ray==(\d+)\.(\d+)", (ROOT / "constraints.txt").read_text())
    assert ray
    assert (int(ray[1]), int(ray[2])) >= (2, 53)
    assert not re.search(r"install .*wget", DOCKERFILE)
    assert "(1.6.1 is the oldest" in (FOLDER / "README.md").read_text()


def test_the_image_runs_as_a_user_with_a_home() -> None:
    """Weights, compiled kernels and converted files are cached there."""
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    assert re.findall(r"(?m)^USER (\S+)$", last) == ["1000"]
    assert "useradd --uid 1000 --create-home taskspec" in last
    assert "HOME=/home/taskspec" in last
    assert " gcc " in last  # without it the kernels cannot be compiled
