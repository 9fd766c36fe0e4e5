"""The service on three hosts, as operating.md has it for those who must not lose it, and what is done to it there."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from core.bundle.store import Bundle, Winner, open_live, publish
from core.draft_key import GENERAL
from core.model_names import locate
from tests.bench.chaos.faults import Fault, Signal, killed, process_faults, stopped
from tests.bench.hosts import Host, three_hosts
from tests.bench.hosts.cluster import (
    ROLES,
    balancer,
    environment,
    redis,
    serve,
    start_ray,
)
from tests.bench.served import target_sessions

TRACES = "traces"  # the directory of the recorded answers
KEY_SEEN = 2.0  # seconds in which every ingress has read a changed file of keys
PARTS = ("verifier", "draft", "router", "ingress", "proxy", "controller")
TARGET = """
name: chaos
target: {model: "family:target", threads: 1, decoder: torch, max_sessions: 16, actors: {replicas: 2}}
draft: {model: "family:draft"}
"""
CONFIG = """
bundle: {directory}/bundles
ingress: {{actors: {{replicas: 2}}, keys: {{file: {directory}/keys}}}}
traces: {{directory: {directory}/{traces}, flush_seconds: 1}}
rollout: {{follow: false}}
"""


class Cluster:
    """`hosts[0]` is the head, whose state Redis keeps. `directory` is on storage that all of them share."""

    def __init__(self, hosts: Sequence[Host], directory: Path, state: str, url: str) -> None:
        self.hosts, self.url = hosts, url
        self._directory = directory
        self._config = directory / "chaos.yaml"
        self._rng = random.Random(0)
        self._config.write_text(TARGET + CONFIG.format(directory=directory, traces=TRACES))
        self._keys = ("--file", str(directory / "keys"))
        self._rotations = 0
        self.key = self._add_key()
        self.versions = bundles(directory / "bundles")
        start_ray(hosts, redis=state)
        serve(hosts[0], self._config)

    def taskspec(self, *arguments: str) -> str:
        return self.hosts[0].run(["taskspec", *arguments])

    def sessions(self) -> int:
        return target_sessions(lambda: self.taskspec("status", "--json", "--address", "auto"))

    def send(self, role: str, number: signal.Signals) -> list[int]:
        """To the processes of a part on one of the hosts that run it, or on all if it lets them go on."""
        running = [host for host in self.hosts if host.processes(ROLES[role])]
        chosen = running if number == signal.SIGCONT or not running else [self._rng.choice(running)]
        return [pid for host in chosen for pid in host.signal(ROLES[role], number)]

    def operations(self) -> list[Fault]:
        """What an operator does on a working day."""
        first, second = self.versions
        return [
            Fault("scale", lambda: self._at("scale", "general=2"), lambda: self._at("scale", "general=1")),
            Fault("bundle swap", lambda: self._deploy(second), lambda: self._deploy(first)),
            Fault("canary", lambda: self._deploy(second, "--canary", "25%"), lambda: self._deploy(first)),
            Fault("upgrade", self._redeploy),
            Fault("key rotated", self._rotate_key),
        ]

    def faults(self) -> list[Fault]:
        """Everything that may break, and what an operator does meanwhile."""
        head, *others = self.hosts
        traces = self._directory / TRACES
        return [
            *process_faults(self.send, PARTS),
            *self.operations(),
            Fault("scale to 0", lambda: self._at("scale", "general=0"), lambda: self._at("scale", "general=1")),
            Fault("hostile draft", lambda: self._hostile("on"), lambda: self._hostile("off")),
            killed(signals_to(head), "gcs"),
            stopped(signals_to(head), "gcs"),
            Fault(
                "disk of the traces full", lambda: head.fill(traces), lambda: head.run(["rm", "-f", traces / "full"])
            ),
            *(fault for host in others for fault in self._faults_of(host)),
        ]

    def _faults_of(self, host: Host) -> list[Fault]:
        return [
            killed(signals_to(host), "raylet", f" of {host.name}"),
            stopped(signals_to(host), "raylet", f" of {host.name}"),
            Fault(f"link of {host.name} down", host.link_down, host.link_up),
        ]

    def _add_key(self) -> str:
        return self.taskspec("keys", "add", f"clients{self._rotations}", *self._keys).split()[-1]

    def _rotate_key(self) -> None:
        """Give the clients another key, then revoke the one before; each step has time to be seen everywhere."""
        before = f"clients{self._rotations}"
        self._rotations += 1
        key = self._add_key()
        time.sleep(KEY_SEEN)
        self.key = key
        time.sleep(KEY_SEEN)
        self.taskspec("keys", "revoke", before, *self._keys)

    def _at(self, *arguments: str) -> str:
        return self.taskspec(*arguments, "--address", "auto")

    def _deploy(self, version: str, *options: str) -> str:
        return self._at("bundles", "deploy", version, "--force", *options)

    def _redeploy(self) -> str:
        return serve(self.hosts[0], self._config)

    def _hostile(self, switch: str) -> str:
        command = [sys.executable, "-m", "tests.bench.chaos.hostile", str(self._config), switch]
        return self.hosts[0].run(command)


def signals_to(host: Host) -> Signal:
    """Sends to what runs a role on one host."""
    return lambda role, number: host.signal(ROLES[role], number)


@contextmanager
def cluster(directory: Path) -> Iterator[Cluster]:
    """Everything up, and gone at the end of the block. The disk of the traces is small, so that it can be filled."""
    with (
        small_disk(directory / TRACES),
        three_hosts(directory, environment(directory)) as hosts,
        redis(directory) as state,
        balancer(directory, hosts) as url,
    ):
        yield Cluster(hosts, directory, state, url)


@contextmanager
def small_disk(directory: Path, size: str = "8m") -> Iterator[None]:
    """Hosts that begin in the block share it."""
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", directory], check=True)


def bundles(root: Path) -> tuple[str, str]:
    """Two with the parts of the shipped one: as it is, and with the drafts of a task and of all others exchanged.

    The first is live.
    """
    shipped = open_live(Path(locate("family:bundle"))).bundle
    assert shipped is not None
    task = next(task for task, slot in shipped.manifest.slots.items() if slot.decision == "task")
    own, general = shipped.directory(task), shipped.directory(GENERAL)
    right, wrong = {task: own, GENERAL: general}, {task: general, GENERAL: own}
    return _published(root, shipped, right, live=True), _published(root, shipped, wrong, live=False)


def _published(root: Path, shipped: Bundle, drafts: dict[str, Path | None], *, live: bool) -> str:
    manifest = shipped.manifest
    return publish(
        root,
        {task: Winner(directory=draft, decision="task", reason="for the bench") for task, draft in drafts.items()},
        router=shipped.router,
        target=manifest.target,
        draft=manifest.draft,
        id_map=manifest.id_map,
        controls={"base": shipped.control("base")},
        acceptance={task: manifest.acceptance[task] for task in drafts},
        live=live,
    ).version
