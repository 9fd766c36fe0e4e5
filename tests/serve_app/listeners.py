"""What processes listen on, read from the system as any administrator would read it."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

import psutil


class Listening(NamedTuple):
    """A process takes TCP connections or UDP datagrams at an address and a port."""

    process: str
    address: str
    port: int

    @property
    def on_loopback(self) -> bool:
        address = ipaddress.ip_address(self.address)
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return address.is_loopback


def listeners(processes: Iterable[psutil.Process]) -> set[Listening]:
    """All of these processes."""
    found = set[Listening]()
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # ended meanwhile
            name = " ".join(process.cmdline())
            for one in process.net_connections("inet"):
                if one.status == psutil.CONN_LISTEN or (one.type == socket.SOCK_DGRAM and not one.raddr):
                    found.add(Listening(name, one.laddr.ip, one.laddr.port))
    return found
