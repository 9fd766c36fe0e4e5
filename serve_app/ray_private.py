"""All that this package uses of Ray without a public name, each with what the public ones lack: one file to review
when Ray is upgraded.

Ray reads its environment when it is imported, and commands start faster without it, so it is imported within functions.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from core.errors import ConfigError

CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


# ---- a Ray that starts on this machine


@contextmanager
def on_loopback() -> Iterator[None]:
    """Let a Ray that is started within listen on loopback only, with all its processes, or join such a Ray.

    Ray puts the network's address in place of a loopback one, except where it has no clusters, only a Ray per machine:
    on Windows and macOS, or as this variable says. Its processes inherit the variable, jobs included.
    """
    from ray._private import ray_constants

    before, had_clusters = os.environ.get(CLUSTERS), ray_constants.ENABLE_RAY_CLUSTER
    os.environ[CLUSTERS] = "0"
    ray_constants.ENABLE_RAY_CLUSTER = False  # read from the variable when it was imported
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = had_clusters
        if before is None:
            del os.environ[CLUSTERS]
        else:
            os.environ[CLUSTERS] = before


def silence_raylets() -> None:
    """There is no other switch for the messages of raylets in a driver's terminal."""
    from ray._private import worker

    worker.print_to_stdstream = lambda *_, **__: None


@contextmanager
def native_log(file: Path) -> Iterator[None]:
    """Let Ray's C++ part, if it begins within, write to `file` what it would write to stderr, now and later.

    Ray has no option for these lines. They pass Python's stderr by, and so break a progress view.
    """
    library = ctypes.CDLL(None)
    library.fopen.restype = ctypes.c_void_p
    stream = library.fopen(os.fsencode(file), b"a")
    if not stream:
        raise ConfigError(f"cannot write {file}; free some space there")
    stderr = ctypes.c_void_p.in_dll(library, "stderr")  # C's variable: Python and other processes have their own
    before, stderr.value = stderr.value, stream
    try:
        yield
    finally:
        stderr.value = before


def choose_any_agent_port() -> None:
    """`ray.init` has no option for this port; the job agents of two clusters on one machine would both use 52365."""
    from ray._private import parameter

    parameter.RayParams = partial(parameter.RayParams, dashboard_agent_listen_port=0)  # type: ignore[assignment, misc]


def write_address(address: str, directory: str) -> None:
    """Let a job find its cluster among several on a machine: Ray writes the address for `ray start` only."""
    from ray._private import utils

    utils.write_ray_address(address, directory)


def is_node() -> bool:
    """Whether `ray start` has made this machine a node of a cluster that still runs; Ray tells it to who joins only."""
    from ray._private.services import find_gcs_addresses
    from ray._private.utils import read_ray_address

    return read_ray_address() in find_gcs_addresses()


def read_settings_again() -> None:
    """An imported Ray has read its settings, the token's path among them, and has no public way to do it again."""
    if "ray" in sys.modules:
        from ray._raylet import Config  # type: ignore[attr-defined]

        Config.initialize("")


# ---- the nodes of a cluster


def free_resources() -> dict[str, dict[str, float]]:
    """What is free of the resources of each node, by its id; a public function has their sum only."""
    from ray._private.state import available_resources_per_node

    free: dict[str, dict[str, float]] = available_resources_per_node()
    return free


def announce_departure(node: str, seconds: float) -> str:
    """Let the cluster give a node no more work, as it goes in `seconds`; why not, if it refuses.

    Only `ray drain-node`, which is hidden, does the same. As the reason is that of a node that is taken away, Ray does
    not wait until the node is idle.
    """
    import ray
    from ray._raylet import GcsClient  # type: ignore[attr-defined]
    from ray.core.generated.autoscaler_pb2 import DrainNodeReason  # type: ignore[attr-defined]

    client = GcsClient(address=ray.get_runtime_context().gcs_address)
    reason = DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    deadline_ms = int((time.time() + seconds) * 1000)
    accepted, refusal = client.drain_node(node, reason, "taskspec drain", deadline_ms)
    return "" if accepted else str(refusal)


# ---- the store of a cluster


def load_value(key: str) -> Any:
    """What was stored under this key; None if nothing was.

    Of Ray's own only this store outlasts the process that put a value there, and needs no actor and no disk.
    """
    import ray.cloudpickle as pickle
    from ray.experimental import internal_kv

    content = internal_kv._internal_kv_get(key.encode())
    return None if content is None else pickle.loads(content)


def store_value(key: str, value: object) -> None:
    """See `load_value`."""
    import ray.cloudpickle as pickle
    from ray.experimental import internal_kv

    internal_kv._internal_kv_put(key.encode(), pickle.dumps(value), overwrite=True)


# ---- Serve


def controller() -> Any:
    """The actor of Serve, None if Serve does not run. Only it tells the HTTP options and scales one deployment."""
    import ray
    from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE

    try:
        return ray.get_actor(SERVE_CONTROLLER_NAME, namespace=SERVE_NAMESPACE)
    except ValueError:
        return None


def serve_details(timeout: float) -> Any:
    """What Serve runs, a `ServeInstanceDetails`; None if Serve does not run. Raises `RayError`."""
    import ray
    from ray.serve.schema import ServeInstanceDetails

    actor = controller()
    if actor is None:
        return None
    details = ray.get(actor.get_serve_instance_details.remote(), timeout=timeout)
    for application in details["applications"].values():
        for deployment in application["deployments"].values():  # nobody asks for this, and checking it takes 20 ms
            deployment["deployment_config"].pop("request_router_config", None)
    return ServeInstanceDetails(**details)


def set_deployment_replicas(application: str, deployment: str, replicas: int) -> None:
    """The REST API can do this, but a cluster has it only with a dashboard."""
    import ray
    from ray.serve._private.common import DeploymentID

    ray.get(controller().update_deployment_replicas.remote(DeploymentID(deployment, application), replicas))


def call_replica(actor_name: str, method: str, timeout: float, *arguments: Any) -> Any:
    """The answer of this replica, where a handle would choose one.

    Raises `RayError`, and `ValueError` if there is no such replica any more.
    """
    import ray

    return ray.get(_begin_call(actor_name, method, *arguments), timeout=timeout)


def call_replicas(actor_names: Sequence[str], method: str, timeout: float) -> list[Any]:
    """The answers of these replicas, asked at once; those that fail or take longer are left out."""
    import ray
    from ray.exceptions import RayError

    calls, answers = list[Any](), list[Any]()
    for name in actor_names:
        with suppress(ValueError):  # it has ended meanwhile
            calls.append(_begin_call(name, method))
    done, _ = ray.wait(calls, num_returns=len(calls), timeout=timeout) if calls else ([], [])
    for call in done:
        with suppress(RayError):
            answers.append(ray.get(call))
    return answers


def _begin_call(actor_name: str, method: str, *arguments: Any) -> Any:
    import pickle

    import ray
    from ray.serve._private.common import RequestMetadata
    from ray.serve._private.constants import SERVE_NAMESPACE

    call = pickle.dumps(RequestMetadata("operator", uuid.uuid4().hex, call_method=method))
    actor = ray.get_actor(actor_name, namespace=SERVE_NAMESPACE)
    return actor.handle_request.remote(call, *arguments)


def listen_at_node_address() -> None:
    """Let the replica in this process listen at the address of its node, instead of every address of the machine.

    Others call it there. Serve opens the port after it has made the replica, and has no option for the address.
    """
    from ray._common.network_utils import build_address, parse_address  # type: ignore[attr-defined]
    from ray.util import get_node_ip_address

    replica: Any = import_module("ray.serve._private.replica")
    add_port = replica.add_port_to_grpc_server

    def add_port_of_node(server: Any, address: str) -> Any:
        _, port = parse_address(address)
        return add_port(server, build_address(get_node_ip_address(), port))

    replica.add_port_to_grpc_server = add_port_of_node


def setup_hook() -> dict[str, str]:
    """The environment of a replica that calls `listen_at_node_address` as it starts.

    The hook has a public name for one of all processes of a job only.
    """
    from ray._private.ray_constants import WORKER_PROCESS_SETUP_HOOK_ENV_VAR

    return {WORKER_PROCESS_SETUP_HOOK_ENV_VAR: f"{__name__}.{listen_at_node_address.__name__}"}
