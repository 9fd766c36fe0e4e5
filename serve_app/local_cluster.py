"""Ray for one command: started by it, open to those who have its token, and gone with it, processes and files.

Enters: what the command asks of its machine. It never joins a Ray that runs already: own ports, own directory, own
token. However the block ends (an error, Ctrl-C, SIGTERM, a closed terminal), nothing is left, jobs included.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil  # type: ignore[import-untyped]

from core.errors import ConfigError

LOOPBACK = "127.0.0.1"
OBJECT_STORE_BYTES = 80 << 20  # Ray's least is 75 MB; the service sends nothing through it
PLENTY = 10_000.0  # of every named resource: those name kinds of node, and this machine is all of them
GRACE_SECONDS = 5.0
# Ray's sockets lie in its directory and their paths are limited to about 100 bytes, too few for some TMPDIRs.
SHORT_TEMP = "/tmp"
# Ray's start opens some forty listeners and a hundred connections on ports that the system gives away (Linux: from
# 32768 up). One chosen among those is now and then gone when its turn comes. These lie between Ray's workers' and its
# Serve replicas', in an order of this process's own.
PORTS = range(20_000, 30_000)
_untaken = iter(secrets.SystemRandom().sample(PORTS, len(PORTS)))
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Jobs(NamedTuple):
    """Where a cluster takes Ray Jobs: its dashboard, and the file with the token that lets one in."""

    address: str
    token_file: Path


@contextmanager
def local_cluster(cpus: float, gpus: float, kinds: set[str], *, jobs: bool = False) -> Iterator[Jobs | None]:
    """Ray with room for `cpus`, and as many nodes' worth of each of `kinds` as anyone asks for.

    `cpus` are Ray's books: every core of the machine is there beside them, for jobs. There are as many `gpus` as the
    machine has: `ConfigError` if those are fewer. With `jobs` it has a dashboard, on loopback.
    """
    end_like_interrupt()
    directory = tempfile.mkdtemp(prefix="taskspec-", dir=SHORT_TEMP)
    token_file = Path(directory, "token")
    dashboard = free_port(LOOPBACK) if jobs else None
    try:
        _guard(token_file)
        _start(directory, cpus, dict.fromkeys(kinds, PLENTY), dashboard)
        _check_gpus(gpus)
        yield None if dashboard is None else Jobs(f"http://{LOOPBACK}:{dashboard}", token_file)
    finally:
        with _undisturbed():
            _stop()
            shutil.rmtree(directory, ignore_errors=True)


def free_port(host: str) -> int:
    """A port nothing listens on, given neither to who asks the system for any nor twice by this process.

    Raises `ConfigError` where there is none.
    """
    for port in _untaken:
        with suppress(OSError), _bound(host, port):
            return port
    raise ConfigError(f"no port of {host} from {PORTS.start} to {PORTS.stop - 1} is free; end something that uses them")


def check_port(host: str, port: int) -> None:
    """`ConfigError` where the service could not listen."""
    try:
        with _bound(host, port):
            return
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host} port {port}: {error.strerror}.\n"
            "Stop what uses it, or choose another: --port 8001, or --port 0 for any free one."
        ) from error


@contextmanager
def _bound(host: str, port: int) -> Iterator[None]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # As servers do: the port of a service that has just ended is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        yield


def end_like_interrupt() -> None:
    """Let SIGTERM and a closed terminal end this process the way Ctrl-C does."""
    for number in ENDINGS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a shell's background job
            signal.signal(number, signal.default_int_handler)


def hush() -> None:
    """Keep Ray's own talk out of the terminal; what goes wrong arrives as an exception."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read when ray is imported
    import ray.serve  # noqa: F401  sets the levels of these loggers
    from ray._private import worker

    worker.print_to_stdstream = lambda *_, **__: None  # what a raylet reports has no other switch
    for name in ("ray", "ray.serve"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _guard(token_file: Path) -> None:
    """A token of its own: Ray would take the one of the home directory, or write one there."""
    token_file.touch(mode=0o600)
    token_file.write_text(secrets.token_hex(32))
    os.environ.pop("RAY_AUTH_TOKEN", None)  # another cluster's, and Ray would prefer it
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(token_file))


def _start(directory: str, cpus: float, resources: Mapping[str, float], dashboard: int | None) -> None:
    # nobody takes this machine away, and looking out for it is a process of its own beside every Train run
    os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")
    # Serve's proxies inherit it: where they, and the ingress its draft pools, call over gRPC and not as actors call, a
    # chunk took both 3.7 ms of CPU instead of 5.6 (by /proc, Zen 3); a stream's milliseconds a token show nothing of it
    os.environ.setdefault("RAY_SERVE_PROXY_USE_GRPC", "1")
    # a job is a command line, and shall find the python that has this package
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    hush()
    import ray
    from ray._private import parameter, utils

    # ray.init has no option for this port, and the job agents of two Rays on one machine would both want 52365
    parameter.RayParams = partial(parameter.RayParams, dashboard_agent_listen_port=0)  # type: ignore[assignment, misc]
    # A closed terminal signals every process in it. Ray's inherit this mask and so outlive it, until told to end.
    unmasked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        ray.init(
            address="local",
            num_cpus=(os.cpu_count() or 1) + math.ceil(cpus),
            resources=dict(resources),
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=dashboard is not None,
            dashboard_host=LOOPBACK,
            dashboard_port=dashboard,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
            _temp_dir=directory,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unmasked)
    end_like_interrupt()  # ray.init put a handler of its own in place
    # where there are several Rays on a machine, a job is told the one noted here, or else any
    utils.write_ray_address(ray.get_runtime_context().gcs_address, directory)


def _check_gpus(gpus: float) -> None:
    import ray

    here = ray.cluster_resources().get("GPU", 0.0)
    if here < gpus:
        raise ConfigError(
            f"this configuration takes {gpus:g} GPUs and this machine has {here:g}.\n"
            "Deploy it on a Ray cluster that has them with --address, or take --config family, which needs none."
        )


def _stop() -> None:
    import ray

    # Workers are the raylet's children: once it has gone they can no longer be told from anybody's.
    processes = psutil.Process().children(recursive=True)
    ray.shutdown()
    for process in psutil.wait_procs(processes, timeout=GRACE_SECONDS)[1]:
        process.kill()
    psutil.wait_procs(processes, timeout=GRACE_SECONDS)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """An impatient second Ctrl-C must not leave half of it running."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ENDINGS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
