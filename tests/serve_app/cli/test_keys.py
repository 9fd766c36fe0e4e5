"""`taskspec keys`, and whom `taskspec serve` would serve."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from core.errors import ConfigError
from serve_app.access.key_file import add, key_hash
from serve_app.cli import main as cli_main
from serve_app.cli.exposure import check_exposure, is_loopback, open_to_this_command, with_keys
from serve_app.cli.main import app, main
from serve_app.config import ServiceConfig, load_config


def run(*arguments: str) -> tuple[int, str]:
    outcome = CliRunner().invoke(app, ["keys", *arguments])
    return outcome.exit_code, outcome.stdout


def test_a_key_is_made_listed_and_revoked(tmp_path: Path) -> None:
    file = str(tmp_path / "keys")
    code, printed = run("add", "alice", "--file", file)
    key = printed.strip()
    assert code == 0
    assert key.startswith("tsk-")
    assert Path(file).read_text() == f"alice:{key_hash(key.encode()).hex()}\n"
    assert run("add", "bob", "--file", file)[0] == 0
    assert run("list", "--file", file) == (0, "alice\nbob\n")
    assert run("revoke", "alice", "--file", file) == (0, "revoked the key of alice\n")
    assert run("list", "--file", file) == (0, "bob\n")
    assert run("add", "carol", "--admin", "--file", file)[0] == 0
    assert run("list", "--file", file) == (0, "bob\ncarol admin\n")


def serve(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int | str | None, list[ServiceConfig]]:
    """The exit code, and the configurations of the services that would have been started."""
    begun: list[ServiceConfig] = []

    def opened(config: ServiceConfig, *_: object, **__: object) -> None:
        begun.append(config)
        raise ConfigError("far enough")

    monkeypatch.setattr(cli_main, "_opened", opened)
    monkeypatch.setattr(sys, "argv", ["taskspec", "serve", "--port", "0", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, begun


def test_serving_everybody_has_to_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve(monkeypatch, "--host", "0.0.0.0") == (2, [])
    told = capsys.readouterr().err
    assert all(word in told for word in ("--host 0.0.0.0", "taskspec keys add", "--keys", "--insecure"))
    assert len(serve(monkeypatch, "--host", "0.0.0.0", "--insecure")[1]) == 1
    assert len(serve(monkeypatch)[1]) == 1
    file = tmp_path / "keys"
    assert serve(monkeypatch, "--keys", str(file)) == (2, [])
    assert "taskspec keys add" in capsys.readouterr().err
    add(file, "alice")
    monkeypatch.chdir(tmp_path)
    _, [config] = serve(monkeypatch, "--host", "0.0.0.0", "--keys", "keys")
    assert config.ingress.keys is not None
    assert config.ingress.keys.file == file


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_this_machine_alone_reaches_loopback(host: str) -> None:
    assert is_loopback(host)
    check_exposure(load_config("family"), host, insecure=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "fe80::1", "service.example.org", "localhost.evil"])
def test_others_reach_any_other_address(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(ConfigError, match="--insecure"):
        check_exposure(load_config("family"), host, insecure=False)


def test_a_service_for_one_command_asks_it_for_no_key(tmp_path: Path) -> None:
    config = with_keys(load_config("family"), tmp_path / "keys")
    assert config.ingress.keys is not None
    opened = open_to_this_command(config)
    assert (opened.ingress.keys, opened.ingress.limits) == (None, None)
    assert opened.target == config.target


def test_the_curl_line_has_a_place_for_the_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = load_config("family")
    for config, told in ((plain, False), (with_keys(plain, tmp_path / "keys"), True)):
        cli_main._print_usage("http://here", config, Console())
        assert ("Authorization: Bearer $OPENAI_API_KEY" in capsys.readouterr().out) == told
