"""Commands find the service of `taskspec serve` on this machine, and use the token of its Ray."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
import ray
from ray._private import services, utils

from core.errors import ConfigError
from serve_app import local_cluster
from serve_app.connection import connect_to_service, jobs_at
from serve_app.local_cluster import RunningService, running_services
from serve_app.ray_private import CLUSTERS, read_settings_again

OURS = psutil.Process()
FIRST, SECOND = "127.0.0.1:6001", "127.0.0.1:6002"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where clusters have their directories; what the tests set in the environment does not last."""
    monkeypatch.setattr(local_cluster, "SHORT_TEMP", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of another cluster")
    yield tmp_path
    monkeypatch.undo()
    read_settings_again()


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that were connected to."""
    addresses: list[str] = []
    monkeypatch.setattr(ray, "init", lambda address, **_: addresses.append(address))
    return addresses


@pytest.fixture
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ray start` was not called here, or the cluster has ended and left its file."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(utils, "read_ray_address", lambda: "127.0.0.1:6999")
    monkeypatch.setattr(services, "find_gcs_addresses", lambda: {FIRST})


def announced(
    here: Path, name: str, address: str, pid: int = OURS.pid, began: float = OURS.create_time()
) -> RunningService:
    directory = here / f"taskspec-{name}"
    directory.mkdir()
    url = f"http://127.0.0.1/{name}"
    service = {"url": url, "address": address, "jobs": f"{url}1", "pid": pid, "began": began}
    (directory / "service.json").write_text(json.dumps(service))
    return RunningService(url, address, f"{url}1", directory / "token")


def test_services_are_found_but_none_that_was_killed_is_starting_or_is_somebody_elses(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = announced(here, "first", FIRST)
    announced(here, "killed", SECOND, 2**22 + 1)  # more than Linux has
    announced(here, "long-killed", SECOND, began=OURS.create_time() - 60)  # its number is another process's now
    (here / "taskspec-starting").mkdir()
    (here / "taskspec-writing").mkdir()
    (here / "taskspec-writing" / "service.json").write_text('{"url": ')
    assert running_services() == [found]
    monkeypatch.setattr(os, "getuid", lambda: here.stat().st_uid + 1)
    assert running_services() == []


def test_the_one_service_here_is_meant_by_default(here: Path, reached: list[str]) -> None:
    only = announced(here, "first", FIRST)
    connect_to_service(None)
    assert reached == [FIRST]
    assert os.environ["RAY_AUTH_TOKEN_PATH"] == str(only.token_file)
    assert "RAY_AUTH_TOKEN" not in os.environ


def test_of_several_services_one_must_be_named_and_its_token_is_used(here: Path, reached: list[str]) -> None:
    announced(here, "first", FIRST)
    second = announced(here, "second", SECOND)
    with pytest.raises(ConfigError, match=f"--address {SECOND} for {second.url}"):
        connect_to_service(None)
    connect_to_service(SECOND)
    assert reached == [SECOND]
    assert os.environ["RAY_AUTH_TOKEN_PATH"] == str(second.token_file)


@pytest.mark.parametrize("by_environment", [False, True])
def test_auto_is_the_cluster_that_this_machine_is_a_node_of_with_the_token_of_the_environment(
    here: Path, reached: list[str], monkeypatch: pytest.MonkeyPatch, *, by_environment: bool
) -> None:
    announced(here, "first", FIRST)
    if by_environment:
        monkeypatch.setenv("RAY_ADDRESS", SECOND)
    else:
        monkeypatch.setattr(utils, "read_ray_address", lambda: SECOND)
        monkeypatch.setattr(services, "find_gcs_addresses", lambda: {FIRST, SECOND})
    connect_to_service("auto")
    assert reached == ["auto"]
    assert os.environ["RAY_AUTH_TOKEN"] == "of another cluster"


@pytest.mark.usefixtures("no_cluster")
def test_auto_without_a_cluster_is_the_service_here_for_serving_and_for_jobs(here: Path, reached: list[str]) -> None:
    only = announced(here, "first", FIRST)
    connect_to_service("auto")
    assert reached == [FIRST]
    assert jobs_at("auto") == jobs_at(FIRST) == only.jobs
    assert os.environ["RAY_AUTH_TOKEN_PATH"] == str(only.token_file)
    announced(here, "second", SECOND)
    with pytest.raises(ConfigError, match="several services"):
        jobs_at("auto")


def test_a_dashboard_is_where_its_cluster_takes_jobs() -> None:
    assert jobs_at("http://head:8265") == "http://head:8265"


def test_a_service_here_is_joined_on_loopback_and_another_cluster_is_not(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray would look for it at the network's address, where it does not listen."""
    announced(here, "first", FIRST)
    loopback: list[bool] = []
    monkeypatch.setattr(ray, "init", lambda **_: loopback.append(os.environ.get(CLUSTERS) == "0"))
    connect_to_service(FIRST)
    connect_to_service(SECOND)
    assert loopback == [True, False]


@pytest.mark.usefixtures("here")
def test_no_service_here_is_told_with_what_to_write(reached: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"no `taskspec serve` is up .*\n.*--address HOST:PORT"):
        connect_to_service(None)
    assert reached == []
