"""Hosts on one machine: what they share, what they do not, and that nothing is left of them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.bench.hosts import COMMANDS, ROOT, Host, three_hosts
from tests.bench.hosts.cluster import documented
from tests.bench.hosts.ssh import COMMANDS as SSH_COMMANDS
from tests.bench.hosts.ssh import make_key, start_sshd
from tests.eventually import eventually

ALLOWED = (
    os.geteuid() == 0
    and None not in map(shutil.which, COMMANDS)
    and subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], check=False).returncode == 0
)
needs_root = pytest.mark.skipif(not ALLOWED, reason="only root can make hosts, and not in every sandbox")
LISTEN = """
import socket
server = socket.create_server(("", 9000))
print("listens", flush=True)
while True:
    server.accept()
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Host, Host]]:
    with three_hosts(tmp_path_factory.mktemp("hosts"), {"COLOUR": "red"}) as hosts:
        yield hosts


def reaches(host: Host) -> bool:
    try:
        with socket.create_connection((host.address, 9000), timeout=0.5):
            return True
    except OSError:
        return False


def listens(host: Host) -> None:
    process = host.popen([sys.executable, "-c", LISTEN], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "listens\n"


@needs_root
def test_each_has_its_name_its_home_its_processes_and_its_loopback(hosts: tuple[Host, Host, Host]) -> None:
    listens(hosts[0])
    for host in hosts:
        assert host.run(["sh", "-c", "hostname; echo $HOME $COLOUR"]).split() == [host.name, str(host.home), "red"]
        assert len(host.run(["ps", "-e", "-o", "pid="]).split()) <= 3
        assert [reaches(host), bool(host.processes("create_server"))] == [host is hosts[0]] * 2
    with pytest.raises(RuntimeError, match=r"host2: .* exits with 1"):
        hosts[1].run([sys.executable, "-c", "import socket; socket.create_connection(('127.0.0.1', 9000), timeout=1)"])


@needs_root
@pytest.mark.skipif(None in map(shutil.which, SSH_COMMANDS), reason=f"needs {', '.join(SSH_COMMANDS)}")
def test_root_logs_in_by_key_and_is_at_home(hosts: tuple[Host, Host, Host], tmp_path: Path) -> None:
    start_sshd(hosts[1], make_key(tmp_path / "key"))
    options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes"]
    ssh = ["ssh", "-q", *options, "-i", tmp_path / "key", f"root@{hosts[1].address}"]
    said = hosts[0].run([*ssh, "hostname; echo ~; echo ${COLOUR:-none}"])
    assert said.split() == ["host2", str(hosts[1].home), "none"]
    ssh[-2] = make_key(tmp_path / "another")
    with pytest.raises(RuntimeError, match="exits with 255"):
        hosts[0].run([*ssh, "true"])


@needs_root
def test_a_link_goes_down_and_up(hosts: tuple[Host, Host, Host]) -> None:
    listens(hosts[1])
    hosts[1].link_down()
    assert not reaches(hosts[1])
    hosts[1].link_up()
    eventually(lambda: reaches(hosts[1]), "the link is up")


@needs_root
def test_a_signal_reaches_what_matches_on_that_host_alone(hosts: tuple[Host, Host, Host]) -> None:
    sleeping = [host.popen(["sleep", "1234"]) for host in hosts[:2]]
    eventually(lambda: all(host.processes("sleep 1234") for host in hosts[:2]), "both sleep")
    assert len(hosts[0].signal("1234", signal.SIGKILL)) == 1
    sleeping[0].wait()
    assert hosts[1].processes("sleep 1234")
    hosts[1].signal("1234")
    sleeping[1].wait()


@needs_root
def test_a_small_disk_is_full(hosts: tuple[Host, Host, Host]) -> None:
    place = hosts[0].home / "small"
    hosts[0].small_disk(place, "1m")
    hosts[0].fill(place)
    with pytest.raises(RuntimeError, match="exits with 1"):
        hosts[0].run(["sh", "-c", f"echo more > {place}/more"])


@needs_root
def test_a_killed_host_is_gone_until_it_boots(hosts: tuple[Host, Host, Host]) -> None:
    listens(hosts[2])
    hosts[2].kill()
    assert not reaches(hosts[2])
    assert hosts[2].processes() == []
    hosts[2].boot()
    listens(hosts[2])
    assert reaches(hosts[2])


@needs_root
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_however_it_ends(tmp_path: Path, number: signal.Signals) -> None:
    program = f"""
import time
from pathlib import Path
from tests.bench.hosts import three_hosts
with three_hosts(Path({str(tmp_path)!r})) as hosts:
    print(*(host.pid for host in hosts), flush=True)
    hosts[0].popen(["sleep", "1000"])
    time.sleep(100)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=ROOT, text=True)
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    assert len(pids) == 3
    process.send_signal(number)
    process.wait()
    eventually(lambda: not any(map(psutil.pid_exists, pids)), "every host is gone")


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(RuntimeError, match="as root"), three_hosts(tmp_path):
        pass
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda command: None if command == "ip" else command)
    with pytest.raises(RuntimeError, match="no ip here: install iproute2"), three_hosts(tmp_path):
        pass


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="needs haproxy")
def test_the_documented_balancer_is_one(tmp_path: Path) -> None:
    (tmp_path / "haproxy.cfg").write_text(documented("haproxy"))
    subprocess.run(["haproxy", "-c", "-f", tmp_path / "haproxy.cfg"], check=True, capture_output=True)
