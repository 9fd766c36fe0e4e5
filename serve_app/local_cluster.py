"""A Ray cluster for one command, on loopback, with ports, directory and token of its own.

It never joins a Ray that is already running. However the command ends (an error, Ctrl-C, SIGTERM, a closed terminal),
no process or file of the cluster is left, jobs included.
"""

from __future__ import annotations

import json
import logging
import math
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil  # type: ignore[import-untyped]

from core.errors import ConfigError
from serve_app import ray_private

LOOPBACK = "127.0.0.1"
OBJECT_STORE_BYTES = 80 << 20  # Ray's minimum is 75 MB; the service does not use the object store
GRACE_SECONDS = 5.0
# Ray puts sockets into its directory. Their paths are limited to about 100 bytes, too few for some TMPDIRs.
SHORT_TEMP = "/tmp"
PREFIX = "taskspec-"
TOKEN = "token"
DRIVER_LOG = "driver.log"  # of Ray in the command's own process
SERVICE = "service.json"  # in the directory of a cluster that runs one
# Ray opens some forty listeners and a hundred connections on ephemeral ports (Linux: from 32768 up) when it starts, so
# that a port chosen among those may be taken before it is used. This range lies between the ports of Ray's workers and
# those of Serve's replicas; each process goes through it in an order of its own.
PORTS = range(20_000, 30_000)
_untaken = iter(secrets.SystemRandom().sample(PORTS, len(PORTS)))
DEBUG = "TASKSPEC_DEBUG"  # the environment variable that is set if Ray's log lines are to be seen
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Jobs(NamedTuple):
    """Access to Ray Jobs on a cluster: the address of its dashboard, and the file with its token."""

    address: str
    token_file: Path


class RunningService(NamedTuple):
    """A service on this machine: its base URL, the addresses of its Ray and of its dashboard, which takes jobs, and the
    file with that Ray's token."""

    url: str
    address: str
    jobs: str
    token_file: Path


@contextmanager
def local_cluster(cpus: float, gpus: float, *, jobs: bool = False) -> Iterator[Jobs | None]:
    """A Ray cluster with logical `cpus` for the service, and all cores of the machine for jobs.

    Raises `ConfigError` if the machine has fewer than `gpus` GPUs. With `jobs` it has a dashboard, on loopback.
    """
    raise_on_signals()
    directory = tempfile.mkdtemp(prefix=PREFIX, dir=SHORT_TEMP)
    token_file = Path(directory, TOKEN)
    dashboard = free_port(LOOPBACK) if jobs else None
    try:
        _create_token(token_file)
        _start(directory, cpus, dashboard)
        _check_gpus(gpus)
        yield None if dashboard is None else Jobs(f"http://{LOOPBACK}:{dashboard}", token_file)
    finally:
        with _signals_ignored():
            _stop()
            shutil.rmtree(directory, ignore_errors=True)


def announce(url: str, jobs: Jobs) -> None:
    """Let other commands find the service on this cluster, for as long as the cluster lasts."""
    import ray

    address = ray.get_runtime_context().gcs_address
    process = psutil.Process()
    service = {"url": url, "address": address, "jobs": jobs.address, "pid": process.pid, "began": process.create_time()}
    jobs.token_file.with_name(SERVICE).write_text(json.dumps(service))


def running_services() -> list[RunningService]:
    """The services of this user that were announced and still run."""
    services = []
    for directory in sorted(Path(SHORT_TEMP).glob(f"{PREFIX}*")):
        file = directory / SERVICE
        with suppress(OSError, ValueError, KeyError):  # there is none yet, or it is being written or removed
            # A Ray can run code in who connects to it, and any user can write here: another's file is passed over.
            if file.stat().st_uid == os.getuid():
                service = json.loads(file.read_text())
                if _runs(service["pid"], service["began"]):
                    token_file = directory / TOKEN
                    services.append(RunningService(service["url"], service["address"], service["jobs"], token_file))
    return services


def _runs(pid: int, began: float) -> bool:
    """Whether the process with this number is the one that began then. A killed one's number goes to others."""
    with suppress(psutil.NoSuchProcess):
        return bool(abs(psutil.Process(pid).create_time() - began) < 1)
    return False


def free_port(host: str) -> int:
    """A port that nothing listens on; never the same one twice. Raises `ConfigError` if there is none."""
    for port in _untaken:
        with suppress(OSError), _bound(host, port):
            return port
    raise ConfigError(f"no port of {host} from {PORTS.start} to {PORTS.stop - 1} is free; stop what uses them")


def check_port(host: str, port: int) -> None:
    """Raise `ConfigError` if the service could not listen there."""
    try:
        with _bound(host, port):
            return
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host} port {port}: {error.strerror}.\n"
            "Stop the program that uses it, or choose another port: --port 8001, or --port 0 for any free one."
        ) from error


@contextmanager
def _bound(host: str, port: int) -> Iterator[None]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # Servers set this option too, so the port of a service that has just ended counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        yield


def raise_on_signals() -> None:
    """Let SIGTERM and a closed terminal raise KeyboardInterrupt, as Ctrl-C does."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a shell's background job
            signal.signal(number, signal.default_int_handler)


def show_ray() -> None:
    """Let all that Ray and its workers log into the terminal: `taskspec --debug`."""
    os.environ[DEBUG] = "1"


def log_options() -> dict[str, Any]:
    """Options of `ray.init` that keep log lines out of the terminal, or in it after `show_ray`."""
    shown = DEBUG in os.environ
    return {"log_to_driver": shown, "logging_level": logging.INFO if shown else logging.CRITICAL}


def silence_ray() -> None:
    """Keep Ray's own messages out of the terminal, unless they are shown; its failures arrive as exceptions.

    All that Ray's processes log stays in its directory.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read when ray is imported
    import ray.serve  # noqa: F401  sets the levels of these loggers

    if DEBUG in os.environ:
        return
    ray_private.silence_raylets()
    warnings.filterwarnings("ignore", module=r"ray(\.|$)")  # they are for who calls it
    for name in ("ray", "ray.serve"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _create_token(token_file: Path) -> None:
    """Create a token for this cluster; Ray would use one in the home directory, or write one there."""
    token_file.touch(mode=0o600)
    token_file.write_text(secrets.token_hex(32))
    use_token(token_file)


def use_token(token_file: Path) -> None:
    """Let Ray use the token of one cluster, whether it has been imported, and so has read its settings, or not yet."""
    os.environ.pop("RAY_AUTH_TOKEN", None)  # of another cluster; Ray would prefer it
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(token_file))
    ray_private.read_settings_again()


def _start(directory: str, cpus: float, dashboard: int | None) -> None:
    # This machine is not preempted, and the watcher is an additional process for every Train run.
    os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")
    # Serve's proxies inherit it. With gRPC between proxy and ingress, and between ingress and draft pools, a chunk
    # takes the two 3.7 ms of CPU time instead of 5.6 (Zen 3); the time per token of a stream does not change.
    os.environ.setdefault("RAY_SERVE_PROXY_USE_GRPC", "1")
    # What they do first. It is named, not imported: Serve imports it, in the proxies.
    os.environ.setdefault("RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH", "serve_app.access.proxy:middlewares")
    # Serve gives a proxy 5 s to start, and its own start fails with it; a busy machine needs more.
    os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60")
    # A job is a command line, and must find the python that has this package.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    silence_ray()
    import ray

    ray_private.choose_any_agent_port()
    # A closed terminal signals every process in it. Ray's inherit this mask and survive until they are stopped.
    unmasked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        native_log = nullcontext() if DEBUG in os.environ else ray_private.native_log(Path(directory, DRIVER_LOG))
        with ray_private.on_loopback(), native_log:
            ray.init(
                address="local",
                num_cpus=(os.cpu_count() or 1) + math.ceil(cpus),
                object_store_memory=OBJECT_STORE_BYTES,
                include_dashboard=dashboard is not None,
                dashboard_host=LOOPBACK,
                dashboard_port=dashboard,
                _temp_dir=directory,
                **log_options(),
            )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unmasked)
    raise_on_signals()  # ray.init has installed a handler of its own
    ray_private.write_address(ray.get_runtime_context().gcs_address, directory)


def _check_gpus(gpus: float) -> None:
    import ray

    here = ray.cluster_resources().get("GPU", 0.0)
    if here < gpus:
        raise ConfigError(
            f"this configuration needs {gpus:g} GPUs and this machine has {here:g}.\n"
            "Deploy it on a Ray cluster that has them with --address, or use --config family, which needs none."
        )


def _stop() -> None:
    import ray

    # Workers are children of the raylet: once it has ended they can no longer be identified.
    processes = psutil.Process().children(recursive=True)
    ray.shutdown()
    for process in psutil.wait_procs(processes, timeout=GRACE_SECONDS)[1]:
        process.kill()
    psutil.wait_procs(processes, timeout=GRACE_SECONDS)


@contextmanager
def _signals_ignored() -> Iterator[None]:
    """A second Ctrl-C must not interrupt the clean-up."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
