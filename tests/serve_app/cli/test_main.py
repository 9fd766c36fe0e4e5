from __future__ import annotations

import io
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from core.traces.store import TraceStore
from serve_app.cli import main as cli_main
from serve_app.cli.main import app, main
from serve_app.config import ServiceConfig
from serve_app.demo.table import DemoTable
from serve_app.local_cluster import DEBUG, RunningService, log_options, running_services
from tests.core.bundle.bundles import publish_adapters
from tests.serve_app.command import Command

SMALL = "name: small\ntarget: {model: family:target}\ndraft: {model: family:draft}\n"


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
    assert {"demo", "serve", "status", "scale", "bundles", "keys"} <= set(help_of().split())


def test_training_adds_its_commands_by_its_entry_point() -> None:
    assert {"retrain", "stage", "traces"} <= set(help_of().split())


def test_help_costs_no_heavy_import() -> None:
    program = (
        "import sys; from serve_app.cli.main import app; from typer.testing import CliRunner\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "sys.exit(' '.join({'ray', 'torch', 'transformers', 'sklearn'} & set(sys.modules)) or None)"
    )
    outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr


def test_the_demo_prints_a_line_before_any_heavy_import() -> None:
    program = (
        "import sys; from serve_app.cli import main\n"
        "def begun(*_, **__):\n"
        "    sys.exit(' '.join({'ray', 'torch', 'transformers'} & set(sys.modules)) or None)\n"
        "main._run_demo = begun\n"
        "main.app(['demo'])"
    )
    outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert outcome.stdout.startswith("Starting ")


@pytest.mark.parametrize(
    ("installed", "arguments", "served"),
    [
        (True, [], "smollm2-135m-instruct"),
        (False, [], "taskspec-family"),
        (True, ["--config", "family"], "taskspec-family"),
        (False, ["--config", "family"], "taskspec-family"),
    ],
)
def test_the_demo_takes_the_real_model_if_it_is_installed_and_says_so_if_not(
    monkeypatch: pytest.MonkeyPatch, installed: bool, arguments: list[str], served: str
) -> None:
    begun: list[str] = []

    def run(config: ServiceConfig, *_: object, **__: object) -> DemoTable:
        begun.append(config.name)
        return DemoTable([])

    monkeypatch.setattr(cli_main, "smollm2_is_installed", lambda: installed)
    monkeypatch.setattr(cli_main, "_run_demo", run)
    outcome = CliRunner().invoke(app, ["demo", *arguments])
    assert (outcome.exit_code, begun) == (0, [served])
    first, *others = outcome.stdout.splitlines()
    assert first.startswith(f"Starting {served}, ")
    assert ["make smollm2" in line for line in others] == ([] if installed or arguments else [True])


@pytest.mark.parametrize(("arguments", "shown"), [([], False), (["--debug"], True)])
def test_debug_before_a_command_shows_what_ray_logs(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], shown: bool
) -> None:
    seen: list[bool] = []

    def run(*_: object, **__: object) -> DemoTable:
        seen.append(log_options()["log_to_driver"])
        return DemoTable([])

    monkeypatch.setenv(DEBUG, "")  # so that it is as before after the test
    monkeypatch.delenv(DEBUG)
    monkeypatch.setattr(cli_main, "_run_demo", run)
    assert CliRunner().invoke(app, [*arguments, "demo", "--config", "family"]).exit_code == 0
    assert seen == [shown]


def test_a_gguf_file_is_converted_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.gguf").write_bytes(b"no model")
    file = tmp_path / "mine.yaml"
    file.write_text(SMALL.replace("family:target", f"{tmp_path}/model.gguf"))
    monkeypatch.setenv("TASKSPEC_CACHE", str(tmp_path / "cache"))
    assert run_main(monkeypatch, "serve", "--port", "0", "--config", str(file)) == 2
    out, err = capsys.readouterr()
    assert "Ray" not in out
    assert "model.gguf" in err


def test_a_message_goes_to_what_stderr_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a step is shown, stderr is a proxy that prints above its spinner."""
    handler = cli_main._Messages()
    now = io.StringIO()
    monkeypatch.setattr(sys, "stderr", now)
    handler.emit(logging.makeLogRecord({"msg": "converting %s", "args": ("it",)}))
    assert now.getvalue() == "converting it\n"


@pytest.mark.parametrize(
    ("command", "taught"),
    [
        ("demo", ("Example: taskspec demo", "leave nothing running", "--json", "Exit code 0 if every answer is equal")),
        ("serve", ("Example: taskspec serve", "Nothing is left running", "--address", "curl", "starts a retraining")),
        ("status", ("Example: taskspec status", "--address auto", "--json", "since the ingress began")),
        (
            "scale",
            ("Example: taskspec scale general=2", "no answer is cut off", "until the service is deployed"),
        ),
        ("bundles list", ("Example: taskspec bundles list", "--root", "live (true or false)")),
        ("keys add", ("Example: taskspec keys add alice --file keys", "print it once", "OPENAI_API_KEY")),
        ("keys revoke", ("Example: taskspec keys revoke alice --file keys", "refuses it within a second")),
        ("bundles show", ("Example: taskspec bundles show", "--json the manifest")),
        ("bundles diff", ("Example: taskspec bundles diff", "what, before, after")),
    ],
)
def test_help_teaches_what_a_command_does_an_example_and_what_it_leaves(command: str, taught: tuple[str, ...]) -> None:
    shown = help_of(*command.split())
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


def test_a_bundle_for_another_draft_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    publish_adapters(tmp_path / "bundles", tmp_path, 1)
    file = tmp_path / "mine.yaml"
    file.write_text(f"{SMALL}bundle: {tmp_path}/bundles\n")
    assert run_main(monkeypatch, "serve", "--port", "0", "--config", str(file)) == 2
    out, err = capsys.readouterr()
    assert "Ray" not in out
    assert "is for the target 'target-13b', and target.model is 'family:target'" in err


def status_of(url: str) -> dict[str, Any]:
    """What `taskspec status` says in another terminal about the service at this URL, one of several perhaps."""
    [service] = [service for service in running_services() if service.url == url]
    shown = subprocess.run(
        [sys.executable, "-m", "serve_app.cli.main", "status", "--json", "--address", service.address],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    status: dict[str, Any] = json.loads(shown.stdout)
    return status


JOBS = """
import sys, time
from ray.job_submission import JobSubmissionClient
client = JobSubmissionClient(sys.argv[1])
short = client.submit_job(entrypoint='python -c "import ray; ray.init(); print(ray.cluster_resources())"')
while not client.get_job_status(short).is_terminal():
    time.sleep(0.2)
print(client.get_job_status(short).value, client.get_job_logs(short))
endless = client.submit_job(
    entrypoint='python -c "import ray, time; ray.init(); print(1234, flush=True); time.sleep(1e6)"'
)
while "1234" not in client.get_job_logs(endless):
    time.sleep(0.2)
"""


def run_jobs(service: RunningService) -> str:
    """A job to its end and one that goes on, submitted where `retrain --address auto` does it."""
    assert service.token_file.stat().st_mode & 0o777 == 0o600
    environment = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(service.token_file)}
    return subprocess.run(
        [sys.executable, "-c", JOBS, service.jobs],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout


@pytest.mark.cluster
@pytest.mark.soak
def test_what_serve_prints_works_and_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    small, home = tmp_path / "small.yaml", tmp_path / "home"
    scaled = "ingress: {actors: {autoscaling: {min_replicas: 1}}}\n"  # Ray is imported to check it
    small.write_text(f"{SMALL}{scaled}traces: {{directory: {tmp_path}/traces, flush_seconds: 3600}}\n")
    home.mkdir()
    serving = Command(home, "serve", "--port", "0", "--config", str(small))
    try:
        line = serving.line(lambda line: line.startswith("curl "))
        assert len(serving.processes()) > 3
        answer = subprocess.run(
            ["bash", "-c", f"{line.strip()} --silent --show-error"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        tokens = json.loads(answer.stdout)["usage"]["completion_tokens"]
        assert tokens > 0

        status = status_of(line.split()[1].removesuffix("/v1/chat/completions"))
        assert (status["model"], status["bundle"], status["traces"]) == ("small", None, {})
        parts = {part["name"]: (part["state"], part["running"], part["target"]) for part in status["parts"]}
        assert parts == dict.fromkeys(("ingress", "target", "general"), ("HEALTHY", 1, 1))

        retraining = serving.line(lambda line: " retrain " in line)
        assert retraining.strip().endswith(" retrain --config train_jobs/configs/smoke.yaml --address auto")
        [service] = [one for one in running_services() if one.url in line]
        done = run_jobs(service)
        assert done.startswith("SUCCEEDED")
        assert "'CPU'" in done
        assert any("sleep(1e6)" in process for process in serving.processes())

        os.killpg(serving.process.pid, signal.SIGINT)  # as a terminal does it: to Ray's processes too
        out, err = serving.process.communicate(timeout=60)
        assert serving.process.returncode == 0, err
        assert out.splitlines()[-1] == "Stopped; nothing is left running."
        assert err == ""
        assert serving.left() == []
        assert list(home.iterdir()) == []
        assert [len(trace.output_ids) for trace in TraceStore(tmp_path / "traces")] == [tokens]
    finally:
        serving.kill()
