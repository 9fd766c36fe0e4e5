from __future__ import annotations

import json
import os
import signal
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pytest
import typer
from typer.testing import CliRunner, Result

from core.errors import ConfigError
from core.traces.store import TraceStore
from tests.serve_app.command import Command
from tests.train_jobs.small import SMALL, written
from tests.train_jobs.watching import answers, record
from train_jobs.cli import add_commands
from train_jobs.stages import STAGES


def unasked(_gpus: float) -> AbstractContextManager[None]:
    raise AssertionError("Ray was started")


def unasked_jobs() -> str:
    raise AssertionError("a service was looked for")


def run(*arguments: str) -> Result:
    app = typer.Typer(rich_markup_mode="markdown")
    add_commands(app, unasked, unasked_jobs)
    return CliRunner().invoke(app, arguments)


def told(*arguments: str) -> str:
    """The message of the `ConfigError`; Ray was not started for it."""
    error = run(*arguments).exception
    assert isinstance(error, ConfigError)
    return str(error)


def help_of(*command: str) -> str:
    shown = run(*command, "--help")
    assert shown.exit_code == 0
    return " ".join(shown.stdout.split())


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return written(tmp_path, SMALL)


@pytest.mark.parametrize(
    ("command", "taught"),
    [
        (
            "retrain",
            (
                "Example: taskspec retrain --config",
                "report's path",
                "Ctrl-C",
                "minutes",
                "paths are the cluster's",
                "Example: taskspec retrain --watch",
                "watch.every_s",
            ),
        ),
        ("stage", ("Example: taskspec stage align", "work directory")),
        ("traces import", ("Example: taskspec traces import", "collect: {traces: DIR}", "Ctrl-C keeps")),
    ],
)
def test_help_teaches_what_a_command_does_how_long_it_takes_and_where_results_lie(
    command: str, taught: tuple[str, ...]
) -> None:
    shown = help_of(*command.split())
    assert [each for each in taught if each not in shown] == []


def test_every_stage_of_the_pipeline_is_a_command_with_a_line_of_its_own() -> None:
    shown = help_of("stage")
    assert [stage for stage in STAGES if f"• {stage}: " not in shown] == []
    refused = run("stage", "collecting", "--config", "any.yaml")
    assert refused.exit_code == 2
    assert [stage for stage in STAGES if f"'{stage}'" not in refused.output] == []


@pytest.mark.parametrize("command", ["retrain", "stage align", "traces import {file} --to {tmp}"])
def test_an_unknown_key_is_told_with_the_nearest_known_one(command: str, small: Path, tmp_path: Path) -> None:
    small.write_text(small.read_text().replace("held_out_share", "held_out_shar"))
    words = command.format(file=small, tmp=tmp_path).split()
    assert "collect.held_out_shar: unknown key; did you mean `held_out_share`?" in told(*words, "--config", str(small))


def test_a_worker_larger_than_this_machine_is_told_at_once(tmp_path: Path) -> None:
    file = written(tmp_path, SMALL | {"align": {"worker": {"num_cpus": 4096}}})
    message = told("retrain", "--config", str(file))
    assert "align.worker.num_cpus" in message
    assert f"Write {os.cpu_count()} or less" in message


def test_watching_tells_what_it_needs(tmp_path: Path, small: Path) -> None:
    assert "write `collect: {traces: DIR}`" in told("retrain", "--watch", "--config", str(small))
    file = written(tmp_path, SMALL | {"collect": {"traces": "traces"}})
    message = told("retrain", "--watch", "--json", "--config", str(file), "--work", str(tmp_path / "here"))
    assert f"read {tmp_path / 'here'}/watch.json" in message


@pytest.mark.parametrize("content", ["", "\n", "\ufeff"])
def test_importing_tells_of_a_file_without_prompts(content: str, small: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(content)
    message = told("traces", "import", str(prompts), "--to", str(tmp_path / "to"), "--config", str(small))
    assert message.startswith(f'{prompts} has no prompts: write lines of {{"prompt": "..."}}')
    assert not (tmp_path / "to").exists()


def test_importing_tells_of_a_line_that_is_no_prompt_and_of_a_directory_it_cannot_make(
    small: Path, tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "What is 2 + 2?"}\n{"promt": "and 3?"}\n')
    assert "prompts.jsonl, line 2" in told("traces", "import", str(prompts), "--to", "x", "--config", str(small))
    prompts.write_text('{"prompt": "What is 2 + 2?"}\n')
    inside_a_file = str(small / "traces")
    message = told("traces", "import", str(prompts), "--to", inside_a_file, "--config", str(small))
    assert f"--to {inside_a_file}: " in message


@pytest.mark.cluster
@pytest.mark.soak
def test_imported_traces_are_the_targets_answers_in_the_order_of_the_prompts(small: Path, tmp_path: Path) -> None:
    prompts, home = tmp_path / "prompts.jsonl", tmp_path / "home"
    home.mkdir()
    asked = [
        {"prompt": "What is 17 + 25?"},
        {"messages": [{"role": "user", "content": "Name a gas."}], "task": "gases"},
    ]
    prompts.write_bytes(b"\n".join(msgspec.json.encode(line) for line in asked))
    command = Command(home, "traces", "import", str(prompts), "--to", str(tmp_path / "traces"), "--config", str(small))
    try:
        out, err = command.process.communicate(timeout=240)
        assert command.process.returncode == 0, err
        assert out.splitlines()[-1] == f"2 traces in {tmp_path / 'traces'}"
        kept = list(TraceStore(tmp_path / "traces"))
        assert len(kept) == 2
        assert all(0 < len(trace.output_ids) <= SMALL["collect"]["max_tokens"] for trace in kept)
        assert command.left() == []
    finally:
        command.kill()


@pytest.mark.cluster
@pytest.mark.soak
def test_ctrl_c_ends_a_watch_as_it_ends_a_retraining_after_a_look_that_is_kept(tmp_path: Path) -> None:
    work, home = tmp_path / "work", tmp_path / "home"
    home.mkdir()
    record(tmp_path / "traces", answers(40))
    record(tmp_path / "traces", answers(40))
    sizes = {"every_s": 3600, "reference": 40, "recent": 40, "min_answers": 40}
    settings = SMALL | {"collect": {"traces": str(tmp_path / "traces")}, "watch": sizes}
    file = written(tmp_path, settings | {"bundles": str(tmp_path / "bundles")})
    command = Command(home, "retrain", "--watch", "--config", str(file), "--work", str(work))
    try:
        looked = command.line(lambda line: " UTC: " in line)
        assert "UTC: 40 answers against 40 under no bundle: mix 0.00" in looked
        command.processes()
        os.killpg(command.process.pid, signal.SIGINT)
        out, err = command.process.communicate(timeout=60)
        assert command.process.returncode == 130, err
        assert out.splitlines()[-1] == f"Stopped; nothing is left running; the same command resumes from {work}"
        assert err == ""
        assert command.left() == []
        assert json.loads((work / "watch.json").read_text())["answers"] == 40
    finally:
        command.kill()


@pytest.mark.cluster
@pytest.mark.soak
def test_ctrl_c_in_a_stage_ends_with_a_line_that_says_how_to_go_on_and_leaves_nothing_running(
    small: Path, tmp_path: Path
) -> None:
    work, home = tmp_path / "elsewhere", tmp_path / "home"
    home.mkdir()
    command = Command(home, "retrain", "--config", str(small), "--work", str(work))
    try:
        command.line(lambda line: line.startswith("collect: begun"))
        assert len(command.processes()) > 3
        os.killpg(command.process.pid, signal.SIGINT)  # as a terminal does it: to Ray's processes too
        out, err = command.process.communicate(timeout=60)
        assert command.process.returncode == 130, err
        assert out.splitlines()[-1] == (f"Stopped; nothing is left running; the same command resumes from {work}")
        assert err == ""
        assert command.left() == []
        assert list(work.rglob("*")) != []
        assert not (tmp_path / "bundles").exists()
    finally:
        command.kill()
