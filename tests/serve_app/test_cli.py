from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from serve_app.cli import app, main
from tests.serve_app.command import Command

SMALL = "name: small\ntarget: {model: family:target}\ndraft: {model: family:draft}\npools: {general: {}}\n"


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["taskspec", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def help_of(*command: str) -> str:
    shown = CliRunner().invoke(app, [*command, "--help"])
    assert shown.exit_code == 0
    return " ".join(shown.stdout.split())


def test_help_lists_the_commands() -> None:
    assert {"demo", "serve"} <= set(help_of().split())


@pytest.mark.parametrize(
    ("command", "taught"),
    [
        ("demo", ("Example: taskspec demo", "leave nothing running", "--json", "Exit code 0 if every answer is equal")),
        ("serve", ("Example: taskspec serve", "Nothing is left", "--address", "curl")),
    ],
)
def test_help_teaches_what_a_command_does_an_example_and_what_it_leaves(command: str, taught: tuple[str, ...]) -> None:
    shown = help_of(command)
    assert [each for each in taught if each not in shown] == []


@pytest.mark.parametrize("command", ["demo", "serve"])
def test_an_unknown_configuration_is_told_in_a_line(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(monkeypatch, command, "--config", "familly") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("taskspec: no configuration 'familly'")
    assert "'family'" in err


def test_an_unknown_key_is_told_with_the_nearest_known_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(SMALL.replace("family:target", "family:target, max_session: 4"))
    assert run_main(monkeypatch, "demo", "--config", str(file)) == 2
    err = capsys.readouterr().err
    assert "target.max_session: unknown key; did you mean `max_sessions`?" in err
    assert "Traceback" not in err


def test_a_port_in_use_is_told_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run_main(monkeypatch, "serve", "--port", str(port)) == 2
    out, err = capsys.readouterr()
    assert out == ""  # the first thing that starts says so
    assert f"cannot listen on 127.0.0.1 port {port}" in err
    assert "--port" in err


def test_a_missing_directory_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(SMALL + f"router: {{path: {tmp_path}/absent}}\n")
    assert run_main(monkeypatch, "serve", "--port", "0", "--config", str(file)) == 2
    assert "router.path: " in capsys.readouterr().err


@pytest.mark.service
def test_the_curl_line_of_serve_works_and_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    small, home = tmp_path / "small.yaml", tmp_path / "home"
    small.write_text(SMALL)
    home.mkdir()
    serving = Command(home, "serve", "--port", "0", "--config", str(small))
    try:
        line = next((line for line in serving.stdout if line.startswith("curl ")), None)
        assert line is not None, serving.process.communicate()
        assert len(serving.processes()) > 3
        answer = subprocess.run(
            ["bash", "-c", f"{line.strip()} --silent --show-error"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert json.loads(answer.stdout)["choices"][0]["message"]["content"]

        os.killpg(serving.process.pid, signal.SIGINT)  # as a terminal does it: to Ray's processes too
        out, err = serving.process.communicate(timeout=60)
        assert serving.process.returncode == 0, err
        assert out.strip().endswith("Stopped; nothing is left running.")
        assert err == ""
        assert serving.left() == []
        assert list(home.iterdir()) == []
    finally:
        serving.kill()
