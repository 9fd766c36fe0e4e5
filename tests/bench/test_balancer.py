"""The balancer of operating.md before small servers on hosts, of which any may die: who was not answered yet is."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import httpx2 as httpx
import pytest

from tests.bench.hosts import Host, three_hosts
from tests.bench.hosts.cluster import balancer
from tests.bench.test_hosts import ALLOWED
from tests.eventually import eventually

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(not ALLOWED or shutil.which("haproxy") is None, reason="needs root and haproxy"),
]
SERVER = """
import sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.command == "POST":
            time.sleep(1)
        self.send_response(200)
        self.send_header("content-length", str(len(sys.argv[1])))
        self.end_headers()
        self.wfile.write(sys.argv[1].encode())

    do_GET = do_POST = answer

ThreadingHTTPServer(("", 8000), Handler).serve_forever()
"""


class Servers(NamedTuple):
    hosts: tuple[Host, Host, Host]
    url: str

    def start(self, host: Host) -> None:
        host.popen([sys.executable, "-c", SERVER, host.name], stderr=subprocess.DEVNULL)

    def answers(self, length: int = 1000) -> str:
        """The host that answered, after a second. Raises if none did."""
        response = httpx.post(f"{self.url}/", content=bytes(length), timeout=60, trust_env=False)
        response.raise_for_status()
        return response.text

    def answer(self) -> set[str]:
        """The hosts that answer, of which the balancer knows."""
        with ThreadPoolExecutor(12) as pool:
            return set(pool.map(lambda _: self.answers(), range(12)))


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    with three_hosts(tmp_path) as hosts, balancer(tmp_path, hosts) as url:
        servers = Servers(hosts, url)
        for host in hosts:
            servers.start(host)
        eventually(lambda: all_up(servers), "every server answers")
        yield servers


def all_up(servers: Servers) -> bool:
    try:
        return len(servers.answer()) == 3
    except httpx.HTTPError:
        return False


@pytest.mark.parametrize("length", [1000, 40_000])
def test_who_waits_at_a_server_that_dies_is_answered_by_another(servers: Servers, length: int) -> None:
    first, second, third = servers.hosts
    for kill in (lambda: first.signal("BaseHTTPRequestHandler"), second.kill):
        timer = threading.Timer(0.5, kill)
        timer.start()
        with ThreadPoolExecutor(12) as pool:
            places = list(pool.map(lambda _: servers.answers(length), range(36)))
        timer.join()
        assert third.name in places
    assert servers.answer() == {third.name}
    servers.start(first)
    eventually(lambda: servers.answer() == {first.name, third.name}, "it is asked again")
