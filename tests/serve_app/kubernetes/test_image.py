"""What the Dockerfile copies is there, what must not leave the repository is left out, and its versions are ours."""

from __future__ import annotations

import re
import tomllib

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


def test_the_image_runs_as_a_user_with_a_home() -> None:
    """Weights, compiled kernels and converted files are cached there."""
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    assert re.findall(r"(?m)^USER (\S+)$", last) == ["1000"]
    assert "useradd --uid 1000 --create-home taskspec" in last
    assert "HOME=/home/taskspec" in last
    assert " gcc " in last  # without it the kernels cannot be compiled
