"""Where `taskspec serve --address` deploys: on what the Serve of that cluster listens, for whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import ConfigError
from serve_app import hosting, operations
from serve_app.access.key_file import add
from serve_app.cli import main as cli_main
from serve_app.cli.exposure import joined_listener, with_keys
from serve_app.config import ServiceConfig, load_config
from serve_app.operations import Listener
from tests.serve_app.cli.test_main import run_main

TAKEDOWN = "serve shutdown --yes"
OPEN, CLOSED = Listener("0.0.0.0", 8100), Listener("127.0.0.1", 8100)


@pytest.fixture
def guarded(tmp_path: Path) -> ServiceConfig:
    add(tmp_path / "keys", "alice")
    return with_keys(load_config("family"), tmp_path / "keys")


def joined(
    monkeypatch: pytest.MonkeyPatch,
    config: ServiceConfig,
    running: Listener | None,
    *,
    host: str | None = None,
    port: int | None = None,
    keyed: bool = False,
    insecure: bool = False,
) -> Listener:
    monkeypatch.setattr(operations, "serve_listener", lambda: running)
    monkeypatch.setattr(operations, "asks_for_keys", lambda: keyed)
    return joined_listener(config, host, port, TAKEDOWN, insecure=insecure)


def test_without_a_serve_it_listens_as_told_and_for_others_with_keys_only(
    monkeypatch: pytest.MonkeyPatch, guarded: ServiceConfig
) -> None:
    open_to_all = load_config("family")
    assert joined(monkeypatch, open_to_all, None) == Listener("127.0.0.1", 8000)
    assert joined(monkeypatch, open_to_all, None, host="::1", port=8100) == Listener("::1", 8100)
    assert joined(monkeypatch, guarded, None, host="0.0.0.0") == Listener("0.0.0.0", 8000)
    with pytest.raises(ConfigError, match="--insecure"):
        joined(monkeypatch, open_to_all, None, host="0.0.0.0")
    with pytest.raises(ConfigError, match="--port 0"):
        joined(monkeypatch, open_to_all, None, port=0)


@pytest.mark.parametrize(("host", "port"), [(None, None), ("0.0.0.0", None), (None, 8100), ("0.0.0.0", 8100)], ids=str)
def test_a_running_serve_keeps_its_host_and_port(
    monkeypatch: pytest.MonkeyPatch, guarded: ServiceConfig, host: str | None, port: int | None
) -> None:
    assert joined(monkeypatch, guarded, OPEN, host=host, port=port) == OPEN


@pytest.mark.parametrize(
    ("host", "port", "told"),
    [
        ("127.0.0.1", None, "not on 127.0.0.1 port 8100"),
        (None, 8000, "not on 0.0.0.0 port 8000"),
        (None, 0, "not on 0.0.0.0 port 0"),
        ("10.0.0.1", 8000, "not on 10.0.0.1 port 8000"),
    ],
)
def test_a_host_or_port_that_a_running_serve_would_ignore_is_refused(
    monkeypatch: pytest.MonkeyPatch, guarded: ServiceConfig, host: str | None, port: int | None, told: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        joined(monkeypatch, guarded, OPEN, host=host, port=port, insecure=True)
    for words in (told, "listens on 0.0.0.0 port 8100", "Leave out --host and --port", TAKEDOWN):
        assert words in str(refused.value)


@pytest.mark.parametrize(
    ("running", "keyed", "told"),
    [
        (OPEN, False, "would serve everybody"),
        (OPEN, True, "would take them away"),
        (CLOSED, True, "would take them away"),  # a proxy or a tunnel may let others in
        (Listener("::", 8100), False, "would serve everybody"),
        (Listener("10.0.0.1", 8100), False, "would serve everybody"),
    ],
)
def test_a_service_without_keys_where_others_reach_serve_or_in_place_of_one_with_keys_has_to_be_asked_for(
    monkeypatch: pytest.MonkeyPatch, guarded: ServiceConfig, running: Listener, keyed: bool, told: str
) -> None:
    config = load_config("family")
    with pytest.raises(ConfigError, match=told) as refused:
        joined(monkeypatch, config, running, keyed=keyed)
    assert "--keys" in str(refused.value)
    assert "--insecure" in str(refused.value)
    assert joined(monkeypatch, config, running, keyed=keyed, insecure=True) == running
    assert joined(monkeypatch, guarded, running, keyed=keyed) == running


def test_on_loopback_a_service_without_keys_replaces_another(monkeypatch: pytest.MonkeyPatch) -> None:
    assert joined(monkeypatch, load_config("family"), CLOSED) == CLOSED


def test_the_command_asks_serve_before_it_opens_or_deploys_anything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hosting, "join", lambda *_: TAKEDOWN)
    monkeypatch.setattr(operations, "serve_listener", lambda: OPEN)
    monkeypatch.setattr(operations, "asks_for_keys", lambda: True)
    monkeypatch.setattr(cli_main, "_opened", lambda *_, **__: pytest.fail("opened"))
    assert run_main(monkeypatch, "serve", "--config", "family", "--address", "auto") == 2
    assert "would take them away" in capsys.readouterr().err
    assert run_main(monkeypatch, "serve", "--config", "family", "--address", "auto", "--port", "8000") == 2
    assert "Leave out --host and --port" in capsys.readouterr().err
