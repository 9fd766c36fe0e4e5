"""`taskspec bench` as people run it, against a scripted service of ours and against somebody else's server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from serve_app.api.app import create_app
from serve_app.cli.main import app, main
from tests.serve_app.command import Command
from tests.serve_app.foreign import KEY, Foreign
from tests.serve_app.live import live
from tests.serve_app.scripted import ScriptedService

SHORT = ("--max-tokens", "20")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """Forty different ones, short enough for the scripted service."""
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"prompt {number}"}) + "\n" for number in range(40)))
    return file


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("COLUMNS", "80")


def bench(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["taskspec", "bench", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def test_help_teaches_with_examples() -> None:
    shown = CliRunner().invoke(app, ["bench", "--help"])
    assert shown.exit_code == 0
    text = " ".join(shown.stdout.split())
    taught = ("any OpenAI-compatible server", "Example: taskspec bench --streams 1", "OPENAI_API_KEY", "Exit code 0 if")
    assert [each for each in taught if each not in text] == []
    assert "-key" not in text


def test_a_client_needs_no_torch() -> None:
    program = "import sys, serve_app.load.run, serve_app.load.report; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_our_service_is_measured_at_every_level(
    prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plot, file = tmp_path / "load.png", tmp_path / "load.json"
    wanted = ("--streams", "1", "--streams", "3", "--requests", "5", "--prompts", str(prompts), "--ttft-ms", "60000")
    with live(create_app(ScriptedService())) as url:
        assert bench(monkeypatch, url, *SHORT, *wanted, "--json", str(file), "--plot", str(plot)) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for shown in ("1 stream", "3 streams", "first token, ms", "100%", "acceptance rate", "by the token ids"):
        assert shown in out
    found = json.loads(file.read_text())
    assert (found["model"], found["endpoint"], found["complete"]) == ("org/toy", f"{url}/v1", True)
    assert found["card"]["numerics"] == "exact"
    figures = [level["modes"][0] for level in found["levels"]]
    assert [each["level"] for each in figures] == [{"streams": 1}, {"streams": 3}]
    assert [(each["requests"], each["answered"], each["failed"]) for each in figures] == [(5, 5, {})] * 2
    assert {each["tokens"] for each in figures} == {5 * figures[0]["tokens"] // 5}
    assert all(each["goodput"]["share"] == 1.0 and each["acceptance_rate"] == 0.5 for each in figures)
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_json_on_stdout_is_all_of_stdout(
    prompts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with live(create_app(ScriptedService())) as url:
        assert bench(monkeypatch, url, *SHORT, "--requests", "2", "--prompts", str(prompts), "--json", "-") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["levels"][0]["modes"][0]["answered"] == 2
    assert "1 stream" in err


def test_both_modes_are_compared_prompt_by_prompt(
    prompts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = ("--speculation", "both", "--requests", "4", "--prompts", str(prompts), "--json", "-")
    with live(create_app(ScriptedService())) as url:
        assert bench(monkeypatch, url, *SHORT, *wanted) == 0
    out, err = capsys.readouterr()
    [level] = json.loads(out)["levels"]
    assert [mode["speculation"] for mode in level["modes"]] == ["on", "off"]
    pairs = level["paired"]
    assert (pairs["pairs"], pairs["equal"]) == (4, 4)
    assert pairs["low"] <= pairs["ratio"] <= pairs["high"]
    assert "times the tokens/s (95 %:" in err
    assert "4 of 4 answers are equal" in err


def test_answers_that_differ_with_speculation_end_with_1(
    prompts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    service = ScriptedService()
    runs = service.runs

    def differently(request: Any) -> Any:
        service.tokens[2] = 9 if request.num_speculative_tokens == 0 else 10  # type: ignore[index]
        return runs(request)

    service.runs = differently  # type: ignore[method-assign]
    with live(create_app(service)) as url:
        wanted = ("--speculation", "both", "--requests", "2", "--prompts", str(prompts))
        assert bench(monkeypatch, url, *SHORT, *wanted) == 1
    assert "0 of 2 answers are equal" in capsys.readouterr().out


@pytest.mark.parametrize(("usage", "tokens", "counted"), [(5, 10, "by the server's `usage`"), (None, 6, "by chunks")])
def test_a_foreign_server_is_measured_and_how_its_tokens_are_counted_is_told(
    usage: int | None, tokens: int, counted: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = Foreign(usage=usage)
    with live(foreign.app) as url:
        assert bench(monkeypatch, f"{url}/v1/", "--requests", "2", "--json", "-", "--max-tokens", "9") == 0
    out, err = capsys.readouterr()
    [figures] = json.loads(out)["levels"][0]["modes"]
    assert (figures["answered"], figures["tokens"], figures["acceptance_rate"]) == (2, tokens, None)
    assert counted in err
    assert "acceptance" not in err
    for body in foreign.bodies:
        assert "speculation" not in body
        assert (body["model"], body["max_tokens"], body["stream"]) == ("them/13b", 9, True)


def test_the_key_comes_from_the_environment_and_is_never_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = Foreign(wants_key=True)
    with live(foreign.app) as url:
        assert bench(monkeypatch, url) == 2
        assert "requires an API key: put it in the environment variable OPENAI_API_KEY" in capsys.readouterr().err
        monkeypatch.setenv("OPENAI_API_KEY", f"wrong-{KEY}")
        assert bench(monkeypatch, url) == 2
        wrong = capsys.readouterr()
        assert "does not accept the API key in" in wrong.err
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        foreign.refusal = (400, f"your key {KEY} has no quota")
        assert bench(monkeypatch, url) == 2
        refused = capsys.readouterr()
        assert "your key <key> has no quota" in refused.err
        foreign.refusal = None
        assert bench(monkeypatch, url, "--requests", "1", "--json", "-") == 0
        fine = capsys.readouterr()
    assert foreign.keys == {None, f"Bearer wrong-{KEY}", f"Bearer {KEY}"}
    assert all(KEY not in text for shown in (wrong, refused, fine) for text in shown)


def test_what_is_wrong_with_an_endpoint_is_told_with_what_to_write_instead(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(url: str, *arguments: str) -> str:
        assert bench(monkeypatch, url, *arguments) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert "Traceback" not in err
        return err

    with live(Foreign(models=("a/1b", "b/2b")).app) as url:
        assert "serves a/1b, b/2b; choose one with --model" in told(url)
        assert "It serves a/1b, b/2b. Choose one with --model" in told(url, "--model", "a/2b")
        assert "most end in /v1" in told(f"{url}/v2", "--model", "a/1b")
        assert "reports no speculation" in told(url, "--model", "a/1b", "--speculation", "both")
    with live(Foreign(models=None).app) as url:
        assert bench(monkeypatch, url, "--model", "hidden", "--requests", "1") == 0
        capsys.readouterr()
        assert "It serves no model in its list" in told(url)
    assert "nothing answers at" in told(url)
    assert "Start a service (`taskspec serve`)" in told(url)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("127.0.0.1:8000",), "is not a base URL; give one like http://127.0.0.1:8000/v1"),
        (("--rate", "2", "--streams", "2"), "give one of them"),
        (("--rate", "0"), "give requests per second, more than 0"),
        (("--streams", "8", "--requests", "4"), "--requests 4 leaves some of 8 streams without one"),
        (("--json", "nowhere/at/all.json"), "nowhere/at/all.json cannot be written"),
        (("--plot", "."), "cannot be written"),
        (("--prompts", "nowhere.jsonl"), "nowhere.jsonl cannot be read"),
    ],
)
def test_wrong_options_are_told_before_anything_is_sent(
    arguments: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(monkeypatch, *arguments) == 2
    assert told in capsys.readouterr().err


def test_a_file_without_prompts_is_refused_and_prompts_that_repeat_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n")
    assert bench(monkeypatch, "--prompts", str(file)) == 2
    assert "has no prompts" in capsys.readouterr().err
    file.write_text('{"prompt": "again"}\n')
    with live(Foreign().app) as url:
        assert bench(monkeypatch, url, "--prompts", str(file), "--requests", "2") == 0
    assert "3 questions from 1 prompts: they repeat" in " ".join(capsys.readouterr().out.split())


def test_a_file_of_conversations_with_tools_and_answers_is_asked_without_the_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file, foreign = tmp_path / "sharegpt.json", Foreign()
    turns = [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "So."}]
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    file.write_text(json.dumps([{"id": "1", "conversations": turns, "tools": tools}]))
    with live(foreign.app) as url:
        assert bench(monkeypatch, url, "--prompts", str(file), "--requests", "1") == 0
    assert foreign.bodies[-1]["messages"] == [{"role": "user", "content": "Why?"}]
    assert foreign.bodies[-1]["tools"] == tools
    assert "sharegpt.json: not used: the fields id; the answers at the end of 1 conversations" in caplog.text


def test_a_server_that_fails_at_a_level_leaves_the_figures_of_those_before(
    prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    service, file = ScriptedService(), tmp_path / "load.json"

    async def fail_later() -> None:
        if len(service.asked) > 1 + 2:  # the warm-up and the level of one stream
            raise RuntimeError("gone")

    service.step = fail_later
    wanted = ("--streams", "1", "--streams", "2", "--requests", "2", "--prompts", str(prompts), "--json", str(file))
    with live(create_app(service)) as url:
        assert bench(monkeypatch, url, *SHORT, *wanted) == 1
    out, err = capsys.readouterr()
    assert "the service answered 500" in err
    assert "Interrupted" in out
    found = json.loads(file.read_text())
    assert ([each["modes"][0]["answered"] for each in found["levels"]], found["complete"]) == ([2], False)


def test_ctrl_c_prints_what_has_been_measured_and_ends_with_130(prompts: Path, tmp_path: Path) -> None:
    service = ScriptedService()
    with live(create_app(service)) as url:
        arguments = (
            url,
            *SHORT,
            "--requests",
            "5000",
            "--prompts",
            str(prompts),
            "--json",
            str(tmp_path / "load.json"),
        )
        running = Command(tmp_path, "bench", *arguments)
        try:
            while len(service.asked) < 10:
                assert running.process.poll() is None, running.process.communicate()
            os.kill(running.process.pid, signal.SIGINT)
            out, err = running.process.communicate(timeout=60)
        finally:
            running.kill()
    assert (running.process.returncode, err) == (130, "")
    assert "tokens/s per user" in out
    assert "Interrupted" in out
    found = json.loads((tmp_path / "load.json").read_text())
    assert 5 <= found["levels"][0]["modes"][0]["answered"] < 5000
    assert not found["complete"]
