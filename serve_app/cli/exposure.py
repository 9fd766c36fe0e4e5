"""Who `taskspec serve` would serve: it checks the API keys, and refuses to serve everybody by accident.

On a Ray cluster whose Serve already runs, what Serve listens on decides, and not what the command was told.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import ConfigError
from serve_app.access.keys import check
from serve_app.access_config import ApiKeys
from serve_app.config import ServiceConfig

if TYPE_CHECKING:
    from serve_app.operations import Listener

LOOPBACK = "127.0.0.1"
PORT = 8000
REMEDIES = (
    "Make one: `taskspec keys add NAME --file keys`, and add --keys keys.\n"
    "If a firewall or a proxy decides who reaches it, add --insecure instead."
)


def with_keys(config: ServiceConfig, file: Path) -> ServiceConfig:
    """The configuration with this file of keys instead of its own."""
    keys = ApiKeys(file=file, env=config.ingress.keys and config.ingress.keys.env)
    return config.model_copy(update={"ingress": config.ingress.model_copy(update={"keys": keys})})


def open_to_this_command(config: ServiceConfig) -> ServiceConfig:
    """The configuration without keys and limits, for a service that one command starts for itself, on loopback."""
    return config.model_copy(update={"ingress": config.ingress.model_copy(update={"keys": None, "limits": None})})


def check_exposure(config: ServiceConfig, host: str, *, insecure: bool) -> None:
    """Raise `ConfigError` if the keys cannot be used, or if there are none and other machines could reach `host`."""
    if config.ingress.keys is not None:
        check(config.ingress.keys)
    elif not (insecure or is_loopback(host)):
        raise ConfigError(
            f"--host {host} would serve everybody who reaches this machine, as the service has no API keys.\n{REMEDIES}"
        )


def joined_listener(
    config: ServiceConfig, host: str | None, port: int | None, takedown: str, *, insecure: bool
) -> Listener:
    """The listener of a service on the Ray cluster of this process: that of the Serve that runs there, or a new one.

    Raises `ConfigError` if Serve listens elsewhere than `host` and `port` say, if others could reach a service without
    API keys, and if those that there are would be taken away. `takedown` is the command that ends Serve.
    """
    from serve_app.operations import Listener, asks_for_keys, serve_listener

    running = serve_listener()
    if running is None:
        new = Listener(host or LOOPBACK, PORT if port is None else port)
        if new.port == 0:
            raise ConfigError("--port 0 is for a service on this machine; on a cluster write the port")
        check_exposure(config, new.host, insecure=insecure)
        return new
    requested = Listener(host or running.host, running.port if port is None else port)
    where = f"Serve already runs on that cluster and listens on {running.host} port {running.port}"
    if requested != running:
        raise ConfigError(
            f"{where}, not on {requested.host} port {requested.port}. It keeps both until it ends.\n"
            f"Leave out --host and --port, or first end it, with all that it runs: `{takedown}`"
        )
    if insecure or config.ingress.keys is not None:
        return running
    if asks_for_keys():
        raise ConfigError(
            f"{where}. The service there asks for API keys, and this configuration would take them away.\n"
            "Add --keys FILE, or --insecure to serve everybody who reaches it, through a proxy or a tunnel too."
        )
    if not is_loopback(running.host):
        raise ConfigError(
            f"{where}. It would serve everybody who reaches it, as the service has no API keys.\n{REMEDIES}"
        )
    return running


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine reach the address; of names only `localhost` is known to be one."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
