"""Several hosts on one machine: network namespaces on a bridge, each with processes, mounts and a name of its own.

`three_hosts` moves the thread that calls it into the network of the hosts, so that it, and all that it starts in the
block, reach them by their addresses and reach nothing else. That network belongs to this process: when the process
ends, however that happens, the kernel removes every namespace, link and process of it.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
NETWORK = "10.77.0"
GATEWAY = f"{NETWORK}.254"  # of the thread in the block
COMMANDS = ("ip", "nsenter", "unshare", "setpriv", "mount")
PATIENCE = 120.0  # seconds for a command
RAY_DIRECTORY = Path("/tmp/ray")  # Ray's default, which is another directory on each host
SHARED_MEMORY = "256m"  # of each host, for Ray's object store
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_libc = ctypes.CDLL(None, use_errno=True)

# What a host begins with; its arguments are its name and the directories that it has instead of the machine's.
_BOOT = f"""
set -e
hostname "$1"
mount --bind "$2" {RAY_DIRECTORY}
mount -t tmpfs -o size={SHARED_MEMORY} tmpfs /dev/shm
ip link set lo up
echo booted
exec env --ignore-signal=CHLD sleep infinity  # so that the kernel buries what loses its parent
"""


class Host:
    """A host that runs until it is killed, and again from `boot` on. What it has written is kept in `directory`."""

    def __init__(self, number: int, directory: Path, environment: Mapping[str, str]) -> None:
        self.name, self.address = f"host{number}", f"{NETWORK}.{number}"
        self.home, self.ray = directory / self.name / "home", directory / self.name / "ray"
        self.environment = {"HOME": str(self.home), "HOSTNAME": self.name, **environment}
        # The same again after each boot, or the others would look for the old one for a while.
        self._port, self._hardware = f"port{number}", f"02:00:00:00:00:{number:02x}"
        self._init: subprocess.Popen[str] | None = None
        self.pid = 0  # of its first process, as this machine counts; 0 while it does not run
        for path in (self.home, self.ray):
            path.mkdir(parents=True)

    def boot(self) -> None:
        """Start it, with no process but the first."""
        namespaces = ("--net", "--mount", "--pid", "--fork", "--uts", "--ipc", "--mount-proc", "--kill-child")
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", *namespaces, "sh", "-c", _BOOT, "sh"]
        self._init = subprocess.Popen(
            [*command, self.name, str(self.ray)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        assert self._init.stdout is not None
        if self._init.stdout.readline() != "booted\n":
            self._init.wait()
            raise RuntimeError(f"{self.name} does not boot; this sandbox lacks a kind of namespace or mount")
        self.pid = psutil.Process(self._init.pid).children()[0].pid
        peer = ("name", "eth0", "address", self._hardware, "netns", str(self.pid))
        _ip("link", "add", self._port, "type", "veth", "peer", *peer)
        _ip("link", "set", self._port, "master", "switch", "up")
        self.run(["ip", "address", "add", f"{self.address}/24", "dev", "eth0"])
        self.run(["ip", "link", "set", "eth0", "up"])

    def popen(self, command: Sequence[str | Path], **options: Any) -> subprocess.Popen[str]:
        """Start a command on the host; `options` are those of `subprocess.Popen`."""
        inside = ["nsenter", "--target", str(self.pid), "--all", f"--wd={ROOT}", *map(str, command)]
        environment = os.environ | self.environment | options.pop("env", {})
        return subprocess.Popen(inside, env=environment, text=True, **options)

    def run(self, command: Sequence[str | Path], timeout: float = PATIENCE, **options: Any) -> str:
        """The output of a command on the host, with stderr if `options` do not say otherwise.

        Raises `RuntimeError` with it if the command fails, or takes too long.
        """
        process = self.popen(command, **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **options})
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            raise RuntimeError(f"{self.name}: {command} has not ended in {timeout:.0f} s:\n{output}") from None
        if process.returncode:
            raise RuntimeError(f"{self.name}: {command} exits with {process.returncode}:\n{output}")
        return output

    def processes(self, pattern: str = "") -> list[psutil.Process]:
        """Those of the host whose command line contains `pattern`; none of a host that does not run."""
        if not self.pid:
            return []
        own = _namespace(self.pid)
        return [
            process for process in psutil.process_iter() if _namespace(process.pid) == own and pattern in _line(process)
        ]

    def pids(self, pattern: str = "") -> list[int]:
        """Their ids, as this machine counts."""
        return [process.pid for process in self.processes(pattern)]

    def signal(self, pattern: str, number: signal.Signals = signal.SIGKILL) -> list[int]:
        """Send a signal to the processes that match; their ids."""
        processes = self.processes(pattern)
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return [process.pid for process in processes]

    def link_down(self) -> None:
        """Pull the cable: the host keeps its address and reaches only itself."""
        _ip("link", "set", self._port, "down")

    def link_up(self) -> None:
        _ip("link", "set", self._port, "up")

    def small_disk(self, path: Path, size: str = "16m") -> None:
        """Put an empty file system of this size over a directory, as the host alone sees it."""
        self.run(["mkdir", "-p", path])
        self.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path])

    def fill(self, path: Path) -> None:
        """Leave no byte on the disk of a directory, which ought to be a small one."""
        self.run(["sh", "-c", 'cat /dev/zero > "$1/full" 2>/dev/null || true', "sh", path])

    def kill(self) -> None:
        """Pull the plug: every process of the host ends at once, and its link with it."""
        if self._init is not None:
            self._init.kill()  # its child, which is the first process, dies with it, and all others with that
            self._init.wait()
            self._init, self.pid = None, 0
            while _link_exists(self._port):  # the kernel removes a namespace a moment later
                _ip("link", "delete", self._port, check=False)


@contextmanager
def three_hosts(directory: Path, environment: Mapping[str, str] | None = None) -> Iterator[tuple[Host, Host, Host]]:
    """Three hosts for as long as the block lasts, with `environment` in all their processes, and this thread beside
    them. `directory` must be empty: it holds what the hosts write.

    Raises `RuntimeError` without root, and where a command is missing or a namespace is not allowed.
    """
    check()
    RAY_DIRECTORY.mkdir(exist_ok=True)
    base = {"PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), **(environment or {})}
    one, two, three = (Host(number, directory, base) for number in (1, 2, 3))
    with _network():
        try:
            for host in (one, two, three):
                host.boot()
            yield one, two, three
        finally:
            for host in (one, two, three):
                host.kill()


def check() -> None:
    """Raise `RuntimeError` where hosts cannot be made."""
    if os.geteuid() != 0:
        raise RuntimeError("hosts are namespaces, which only root can make: run this as root, in a sandbox")
    if missing := [command for command in COMMANDS if shutil.which(command) is None]:
        raise RuntimeError(f"no {', '.join(missing)} here: install iproute2 and util-linux")


@contextmanager
def _network() -> Iterator[None]:
    """A network of this thread alone, with a switch for the hosts. What listens on the machine is not reached."""
    with Path("/proc/thread-self/ns/net").open() as before:
        if _libc.unshare(_NEW_NETWORK):
            raise RuntimeError(f"no network namespace: {os.strerror(ctypes.get_errno())}")
        try:
            _ip("link", "set", "lo", "up")
            _ip("link", "add", "switch", "type", "bridge")
            _ip("address", "add", f"{GATEWAY}/24", "dev", "switch")
            _ip("link", "set", "switch", "up")
            yield
        finally:
            _libc.setns(before.fileno(), _NEW_NETWORK)


def _ip(*arguments: str, check: bool = True) -> None:
    outcome = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if check and outcome.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {outcome.stderr.strip()}")


def _link_exists(name: str) -> bool:
    return Path("/proc/thread-self/net/dev").read_text().find(f" {name}:") >= 0


def _namespace(pid: int) -> Path | None:
    """That of the ids of a process, None of one that has ended."""
    try:
        return Path(f"/proc/{pid}/ns/pid").readlink()
    except OSError:
        return None


def _line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
