"""The tests' own eye for what listens sees every kind of socket that others could reach."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import psutil
import pytest

from tests.serve_app.listeners import listeners

KINDS = [
    (socket.AF_INET, "127.0.0.1", True),
    (socket.AF_INET, "0.0.0.0", False),
    (socket.AF_INET6, "::1", True),
    (socket.AF_INET6, "::", False),
    (socket.AF_INET6, "::ffff:127.0.0.1", True),
]


@pytest.mark.parametrize("protocol", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
@pytest.mark.parametrize(("family", "host", "on_loopback"), KINDS)
def test_what_listens_is_seen_with_whether_others_reach_it(
    family: socket.AddressFamily, host: str, on_loopback: bool, protocol: socket.SocketKind
) -> None:
    with ExitStack() as opened:
        own = opened.enter_context(socket.socket(family, protocol))
        try:
            own.bind((host, 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        if protocol == socket.SOCK_STREAM:
            own.listen()
        [seen] = [one for one in listeners([psutil.Process()]) if one.port == own.getsockname()[1]]
        assert seen.on_loopback == on_loopback
