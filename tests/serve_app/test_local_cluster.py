from __future__ import annotations

import socket
from pathlib import Path

import pytest

from core.errors import ConfigError
from serve_app import local_cluster
from serve_app.local_cluster import PORTS, free_port

HOST = "127.0.0.1"
GIVEN_AWAY = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_a_port_is_none_that_the_system_gives_away() -> None:
    """A demo's was, now and then, to a process of Ray that started before the service listened."""
    given = range(*map(int, GIVEN_AWAY.read_text().split())) if GIVEN_AWAY.exists() else range(49_152, 65_536)
    assert PORTS.stop <= given.start or PORTS.start > given.stop
    assert all(free_port(HOST) in PORTS for _ in range(20))


def test_no_port_is_chosen_twice_nor_one_that_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    first, taken, second = free_port(HOST), free_port(HOST), free_port(HOST)
    monkeypatch.setattr(local_cluster, "_untaken", iter([first, taken, second]))
    with socket.create_server((HOST, taken)):
        assert [free_port(HOST), free_port(HOST)] == [first, second]
        with pytest.raises(ConfigError, match=r"no port of 127\.0\.0\.1 from 20000 to 29999 is free"):
            free_port(HOST)
