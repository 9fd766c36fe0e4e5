"""`taskspec chat` as people run it: in a terminal, in a pipe and in scripts, over real HTTP."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest
from typer.testing import CliRunner

from serve_app.api.app import create_app
from serve_app.cli.main import app, main
from tests.eventually import PATIENCE, eventually, late
from tests.serve_app.command import ROOT
from tests.serve_app.foreign import KEY, Foreign
from tests.serve_app.live import live
from tests.serve_app.scripted import ScriptedService, toy_tokenizer

ANSWER = "the answer is forty-two. END of the story"
MARKED = "the[ answer is forty]-[two. END] of[ the story]"  # of every four tokens three are accepted
EXPLAINED = "[Text like this] was proposed by a draft or looked up, and accepted; the rest the target wrote itself.\n"
FOUND = re.compile(r"tokens 12, target passes 3 \(3\.67 tokens each\), [\d.]+ s, [\d.]+ tokens/s; ")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def service() -> ScriptedService:
    return ScriptedService(lengths=(4,))


def chat(monkeypatch: pytest.MonkeyPatch, *arguments: str, typed: str = "") -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["taskspec", "chat", *arguments])
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def asked_of(service: ScriptedService) -> list[str]:
    """Each prompt as the template wrote it."""
    return [toy_tokenizer().raw.decode(list(request.tokens)) for request in service.asked]


def test_help_teaches_with_examples() -> None:
    shown = CliRunner().invoke(app, ["chat", "--help"])
    assert shown.exit_code == 0
    text = " ".join(shown.stdout.split())
    taught = ("Example: taskspec chat --system", "--prompt 'What is 17 + 25?'", "/plain", "NO_COLOR", "Exit code 0")
    assert [each for each in taught if each not in text] == []


def test_a_script_gets_the_answer_alone(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with live(create_app(service)) as url:
        assert chat(monkeypatch, url, "--prompt", "hello") == 0
    out, err = capsys.readouterr()
    assert out == ANSWER + "\n"
    assert FOUND.match(err)
    assert err.endswith("; accepted: draft of general 9 of 12\n")


def test_a_service_with_aliases_has_one_model_and_any_of_its_names_may_be_chosen(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    service.aliases = ["gpt-4o", "claude-for-a-test"]
    with live(create_app(service)) as url:
        assert chat(monkeypatch, url, "--prompt", "hello") == 0
        assert chat(monkeypatch, url, "--prompt", "hello", "--model", "gpt-4o") == 0
        assert chat(monkeypatch, url, "--prompt", "hello", "--model", "gpt-5") == 2
    out, err = capsys.readouterr()
    assert out == f"{ANSWER}\n" * 2
    assert "serves org/toy, gpt-4o, claude-for-a-test, not gpt-5; choose one with --model" in err


def test_marks_are_exactly_the_accepted_tokens(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with live(create_app(service)) as url:
        assert chat(monkeypatch, url, "--prompt", "hello", "--marks") == 0
    out, err = capsys.readouterr()
    decode = toy_tokenizer().raw.decode
    runs = [
        (decode(run.tokens[: run.accepted]), decode(run.tokens[run.accepted :])) for run in service.runs(*service.asked)
    ]
    assert out == "".join(f"[{accepted}]{own}" if accepted else own for accepted, own in runs) + "\n" == MARKED + "\n"
    assert err.startswith(EXPLAINED)


def test_a_conversation_is_remembered_until_a_new_one(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = "one\n\n  two \n/new\nthree\n/quit\nnever\n"
    with live(create_app(service)) as url:
        assert chat(monkeypatch, url, "--system", "be brief", typed=typed) == 0
    head = "system: be brief\nuser: "
    assert asked_of(service) == [
        f"{head}one\nassistant:",
        f"{head}one\nassistant: {ANSWER}\nuser: two\nassistant:",
        f"{head}three\nassistant:",
    ]
    assert capsys.readouterr().out.count(ANSWER + "\n") == 3


def test_speculation_is_switched_and_marks_are_explained_once(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = "one\n/draft\ntwo\n/plain\nthree\n/draft\nfour\n/drafts\n"
    with live(create_app(service)) as url:
        assert chat(monkeypatch, url, "--no-speculation", "--marks", typed=typed) == 0
    out, err = capsys.readouterr()
    assert [request.num_speculative_tokens for request in service.asked] == [0, None, 0, None]
    assert err == ""
    assert out.count(EXPLAINED) == 1
    assert out.index("Speculation is on.") < out.index(EXPLAINED) < out.index("Speculation is off.")
    assert "No command /drafts: /draft and /plain turn speculation" in out


def test_options_reach_the_service(service: ScriptedService, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--model", "org/toy", "--temperature", "0.5", "--max-tokens", "3", "--seed", "9", "--prompt", "hello")
    with live(create_app(service)) as url:
        assert chat(monkeypatch, f"{url}/v1/", *options) == 0
    [asked] = service.asked
    assert (asked.params.temperature, asked.params.max_tokens, asked.params.seed) == (0.5, 3, 9)


def test_another_servers_answer_is_shown_unmarked_and_it_is_sent_nothing_of_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = Foreign(usage=3)
    with live(foreign.app) as url:
        assert chat(monkeypatch, url, "--prompt", "hello", "--marks") == 0
    out, err = capsys.readouterr()
    assert out == "forty-two\n"
    assert re.search(r"^tokens 3, [\d.]+ s, [\d.]+ tokens/s$", err, re.MULTILINE)
    assert foreign.bodies[0].keys() == {"model", "messages", "temperature", "stream", "stream_options"}


def test_bytes_that_are_no_text_are_replaced(service: ScriptedService, monkeypatch: pytest.MonkeyPatch) -> None:
    with live(create_app(service)) as url:
        assert chat(monkeypatch, url, "--prompt", "a\udcffb", "--system", "\udcff") == 0
    assert asked_of(service) == ["system: ?\nuser: a?b\nassistant:"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--model", "org/try"), "serves org/toy, not org/try; choose one with --model"),
        (
            ("--prompt", "x" * 2000),
            "the service answered 400: the prompt has 2015 tokens; the context of 256 must hold",
        ),
        (("--prompt", "refuse me"), "this template will not have it"),
    ],
)
def test_what_the_service_refuses_is_told_in_a_line(
    arguments: tuple[str, ...],
    told: str,
    service: ScriptedService,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with live(create_app(service)) as url:
        assert chat(monkeypatch, url, *arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("taskspec: ")
    assert err.count("\n") == 1
    assert told in err


def test_where_nothing_answers_the_line_says_how_to_start_a_service(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with live(Foreign(models=("a/1b", "b/2b"), wants_key=True).app) as url:
        assert chat(monkeypatch, url) == 2
        assert "API key in the environment variable OPENAI_API_KEY" in capsys.readouterr().err
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        assert chat(monkeypatch, url) == 2
        assert "serves a/1b, b/2b; choose one with --model" in capsys.readouterr().err
    assert chat(monkeypatch, url) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"taskspec: nothing answers at {url}/v1 (the connection to the service failed: ")
    assert err.endswith("): start a service with `make serve`, or give another URL\n")
    assert err.count("\n") == 1
    assert chat(monkeypatch, "127.0.0.1:8000") == 2
    assert "is not a base URL" in capsys.readouterr().err


def test_a_service_that_fails_ends_a_script_with_1_and_a_conversation_goes_on(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    service.failure, service.fails_after = RuntimeError("secret"), 2
    with live(create_app(service)) as url:
        assert chat(monkeypatch, url, "--prompt", "hello") == 1
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("the answer is forty-\n", 1)
        assert err.startswith("taskspec: the service failed while answering: ")
        service.fails_after = 0
        assert chat(monkeypatch, url, typed="one\ntwo\n") == 0
    assert capsys.readouterr().out.count("the service answered 500: ") == 2
    assert asked_of(service)[1:] == ["user: one\nassistant:", "user: two\nassistant:"]


class Terminal:
    """`taskspec chat` in a terminal: what a person types and sees."""

    def __init__(self, *arguments: str) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell's children would ignore it
        self._mine, its = pty.openpty()
        self._shown = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "serve_app.cli.main", "chat", *arguments],
            cwd=ROOT,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
            stdin=its,
            stdout=its,
            stderr=its,
            start_new_session=True,
        )
        os.close(its)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(20)
        os.close(self._mine)

    def type(self, line: str) -> None:
        os.write(self._mine, line.encode())

    def ctrl_c(self) -> None:
        os.kill(self.process.pid, signal.SIGINT)

    def until(self, text: str) -> None:
        """Read on until `text` is shown, after what was read before."""
        while text not in self._shown:
            assert select.select([self._mine], [], [], PATIENCE)[0], late(repr(text), PATIENCE, lambda: self._shown)
            self._shown += os.read(self._mine, 4096).decode()  # raises OSError once the process has ended
        self._shown = self._shown.partition(text)[2]

    def ctrl_c_ends_it(self) -> int:
        """The exit code. CPython misses a signal between writing the prompt and waiting, so a second one may be due."""
        self.ctrl_c()
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(timeout=5)
        self.ctrl_c()
        return self.process.wait(timeout=20)


def test_in_a_terminal_accepted_text_is_coloured_and_ctrl_c_stops_an_answer_then_the_chat(
    service: ScriptedService,
) -> None:
    passes: list[Any] = []

    async def stuck() -> None:
        passes.append(None)
        await asyncio.sleep(60 if len(passes) == 3 else 0)

    service.step = stuck
    with live(create_app(service)) as url, Terminal(url) as terminal:
        terminal.until("> ")
        terminal.type("one\n")
        terminal.until("the\x1b[4;32m answer is forty\x1b[0m-")
        assert service.open == 1
        terminal.ctrl_c()
        terminal.until("Stopped.")
        eventually(lambda: service.open == 0, "the answer is given up")
        terminal.until("> ")
        terminal.type("two\n")
        terminal.until("of\x1b[4;32m the story\x1b[0m")
        terminal.until("; accepted: ")
        terminal.until("> ")
        assert terminal.ctrl_c_ends_it() == 0
    stopped = "the answer is forty-"
    assert asked_of(service)[1] == f"user: one\nassistant: {stopped}\nuser: two\nassistant:"


@pytest.mark.parametrize("ending", ["/quit\n", "\x04"])
def test_a_conversation_in_a_terminal_ends_when_it_is_told_to(ending: str, service: ScriptedService) -> None:
    with live(create_app(service)) as url, Terminal(url) as terminal:
        terminal.until("> ")
        terminal.type(ending)
        assert terminal.process.wait(timeout=20) == 0


def test_ctrl_c_ends_a_script_with_130(service: ScriptedService) -> None:
    service.step = lambda: asyncio.sleep(60)
    with live(create_app(service)) as url, Terminal(url, "--prompt", "hello") as terminal:
        eventually(lambda: service.open == 1, "the answer has begun")
        terminal.ctrl_c()
        assert terminal.process.wait(timeout=20) == 130
        eventually(lambda: service.open == 0, "the answer is given up")
