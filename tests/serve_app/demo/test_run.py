from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from core.smollm2 import demo_prompts
from serve_app.client import AS_ROUTED, Answer, BadAnswer, Client
from serve_app.config import ServiceConfig, load_config
from serve_app.demo import run
from serve_app.demo.questions import DemoPrompt, questions
from serve_app.demo.run import Demo, report, summary
from serve_app.demo.table import DemoTable, Outcome
from serve_app.deployments.models.served_models import ServedModels
from tests.family.corpora import TASKS
from tests.serve_app.command import Command

FAMILY = ServedModels(load_config("family"))
CHAT_TASKS = ("maths", "python", "instructions", "chat", "chinese")


def answer(tokens: list[int], runs: list[int], proposed: int, accepted: int, routed: str) -> Answer:
    own_text = {"proposed": 4, "accepted": 3}
    speculation = {"task": routed, "rerouted": int(routed == "general"), "sources": {"draft": {}, "own_text": own_text}}
    return Answer(tokens, "", "stop", runs, proposed, accepted, usage={"speculation": speculation})


def outcome(task: str, runs: list[int], proposed: int, accepted: int, *, routed: str, plain: list[int]) -> Outcome:
    """`runs`, `proposed` and `accepted` are of the task's own draft; the other drafts have nothing accepted."""
    tokens = list(range(sum(runs)))
    ones = [1] * len(tokens)
    return Outcome(
        DemoPrompt(task, f"a prompt of {task}", 0.0, 1),
        answer(tokens, ones, 2, 1, routed),
        {
            "general": answer(tokens, ones, proposed, 0, "general"),
            "mixed": answer(tokens, ones, 0, 0, "control-mixed"),
            "own": answer(tokens, runs, proposed, accepted, "protons-moles"),
        },
        answer(plain, [1] * len(plain), 0, 0, "general"),
    )


@pytest.fixture
def table() -> DemoTable:
    return DemoTable(
        [
            outcome("math", [1, 5, 3], proposed=8, accepted=6, routed="dollars-people", plain=list(range(9))),
            outcome("math", [1, 1], proposed=0, accepted=0, routed="general", plain=list(range(2))),
            outcome("math", [1], proposed=0, accepted=0, routed="dollars-people", plain=[0]),
            outcome("logic", [1, 4], proposed=4, accepted=3, routed="多谢-星期", plain=[0, 1, 2, 9, 4]),
        ]
    )


def printed(table: DemoTable, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    report(table, FAMILY, console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize(
    ("config", "tasks", "max_tokens"),
    [
        (FAMILY.config, TASKS, 400),
        (load_config("smollm2"), CHAT_TASKS, 128),
        (load_config("llama2-13b"), CHAT_TASKS, 128),
    ],
)
def test_questions_are_the_same_every_time_and_of_every_task_at_both_temperatures(
    config: ServiceConfig, tasks: Sequence[str], max_tokens: int
) -> None:
    for per_task in (1, 2, 5):
        asked = questions(config, per_task)
        assert asked == questions(config, per_task)
        assert [question.task for question in asked] == [task for task in tasks for _ in range(per_task)]
        assert {question.temperature for question in asked} == {0.0, 1.0}
        assert len({question.seed for question in asked}) == len(asked)
        assert {question.body("model", AS_ROUTED)["max_tokens"] for question in asked} == {max_tokens}


def test_as_many_prompts_are_shipped_as_may_be_asked() -> None:
    assert len(questions(FAMILY.config, 50)) == 50 * len(TASKS)


def test_the_prompts_for_chat_models_are_six_of_each_task_and_all_different() -> None:
    prompts = demo_prompts()
    assert [prompt.task for prompt in prompts] == list(CHAT_TASKS) * 6
    assert len({prompt.prompt for prompt in prompts}) == len(prompts)
    assert None not in {prompt.prompt for prompt in prompts}


class Told:
    """Stands for the service: answers every request at once, and keeps how each was to be drafted for."""

    def __init__(self) -> None:
        self.tasks: list[object] = []

    async def __aenter__(self) -> Told:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def ask(self, body: dict[str, Any], *_: object) -> Answer:
        wanted = body["speculation"]
        self.tasks.append(wanted.get("task", "off" if wanted else "as routed"))
        return answer([1, 2], [1, 1], 1, 1, "general")


@pytest.mark.parametrize(
    ("drafts", "controls", "columns", "asked"),
    [
        (["general"], {"general": "general"}, ["general"], ["general"]),
        (["general"], {"base": "general", "mixed": "control-mixed"}, ["base", "mixed"], ["general", "control-mixed"]),
        (["general"], {"base": "control-base"}, ["base", "own"], ["control-base", "general"]),
        (["general", "math"], {"base": "general"}, ["base", "own"], ["general", "general"]),
    ],
)
def test_the_only_draft_of_a_service_is_not_asked_twice(
    monkeypatch: pytest.MonkeyPatch, drafts: list[str], controls: dict[str, str], columns: list[str], asked: list[str]
) -> None:
    """A service of several drafts has its own column whatever was routed where."""
    service = Told()
    monkeypatch.setattr(run, "Client", lambda _: service)
    served = ServedModels(load_config("smollm2"), drafts=dict.fromkeys(drafts))
    table = Demo(served, "http://service", controls, Console(file=io.StringIO()), show_answers=False).run(1)
    assert list(table.total.drafted()) == columns
    number = len(CHAT_TASKS)
    assert service.tasks == [each for each in ("as routed", *asked, "off") for _ in range(number)]
    assert "/".join(columns) in printed(table)
    assert summary(table, served).count(" tokens with ") == len(columns)


def test_figures_of_a_task_are_over_its_prompts_and_the_prefill_is_no_pass(table: DemoTable) -> None:
    math = table.as_json()["tasks"]["math"]
    assert (math["slot"], math["prompts"], math["equal"]) == ("dollars-people", 3, 3)
    assert math["routed"] == {"dollars-people": 2, "general": 1}
    assert (math["acceptance_rate"], math["tokens_per_target_pass"]) == (3 / 6, 1.0)
    assert math["drafts"] == {
        "general": {"acceptance_rate": 0.0, "tokens_per_target_pass": 1.0},
        "mixed": {"acceptance_rate": None, "tokens_per_target_pass": 1.0},
        "own": {"acceptance_rate": 6 / 8, "tokens_per_target_pass": (5 + 3 + 1) / 3},
    }


def test_a_total_counts_everything_and_one_different_answer_spoils_it(table: DemoTable) -> None:
    total = table.as_json()["total"]
    assert (total["prompts"], total["equal"], total["drafts"]["own"]["acceptance_rate"]) == (4, 3, 9 / 12)
    assert not table.all_equal


@pytest.mark.parametrize("draft", ["routed", "general", "mixed", "own"])
def test_an_answer_of_any_draft_that_differs_is_found(draft: str) -> None:
    fine = outcome("math", [1, 1], 0, 0, routed="general", plain=[0, 1])
    assert DemoTable([fine]).all_equal
    other = answer([0, 7], [1, 1], 0, 0, "general")
    spoiled = replace(fine, routed=other) if draft == "routed" else replace(fine, drafts=fine.drafts | {draft: other})
    table = DemoTable([spoiled])
    assert not table.all_equal
    assert "different from token 1: math" in printed(table)


def test_an_answer_of_one_token_has_no_figures_yet_is_compared() -> None:
    row = DemoTable([outcome("math", [1], 0, 0, routed="general", plain=[0])]).as_json()["tasks"]["math"]
    assert row["drafts"]["own"] == {"acceptance_rate": None, "tokens_per_target_pass": None}
    assert row["equal"] == 1


def test_the_printed_table_tells_where_an_answer_differs(table: DemoTable) -> None:
    shown = printed(table)
    assert "dollars-people" in shown
    assert "0.00/ -- /0.75" in shown
    assert "different from token 3: logic" in shown
    assert "NOT every answer" in shown


def test_the_table_fits_a_hundred_columns(table: DemoTable) -> None:
    rows = printed(table, width=100).splitlines()
    assert any(row.split()[:2] == ["logic", "多谢-星期"] and row.split()[-1] == "0/1" for row in rows)


def test_the_summary_says_what_each_draft_gave_and_whether_tasks_have_drafts(table: DemoTable) -> None:
    adapted = ServedModels(FAMILY.config, drafts={"general": None, "math": "a", "logic": "b"}, version="1f")
    assert "no bundle is served" in summary(table, FAMILY).lower()
    said = summary(table, adapted)
    assert "Tasks with a draft of their own: 2" in said
    assert "3.25 tokens with the task's own draft, 1.00 tokens with the mixed draft, 1.00 tokens with the gen" in said
    assert (
        "1 of 4 answers moved to another draft, and of 16 tokens looked up in their own text 12 were accepted" in said
    )


class Broken(BaseHTTPRequestHandler):
    """Answers with what its server says, which is never a whole answer."""

    def do_POST(self) -> None:
        status, body = self.server.said  # type: ignore[attr-defined]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def broken() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Broken) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (503, b'{"error": {"message": "every verifier is busy"}}', "503.*every verifier is busy"),
        (200, b'data: {"choices": []}\n\n', "broke off"),
        (200, b'data: {"error": {"message": "the service failed"}}\n\n', "the service failed"),
    ],
)
def test_an_answer_that_is_none_is_an_error(broken: ThreadingHTTPServer, status: int, body: bytes, told: str) -> None:
    broken.said = (status, body)  # type: ignore[attr-defined]

    async def ask() -> Answer:
        async with Client(f"http://127.0.0.1:{broken.server_port}/v1") as client:
            return await client.ask(DemoPrompt("math", "What is 1 + 1?", 0.0, 1).body("model", AS_ROUTED))

    with pytest.raises(BadAnswer, match=told):
        asyncio.run(ask())


@pytest.mark.cluster
@pytest.mark.soak
def test_the_demo_answers_every_task_exactly_and_leaves_nothing(tmp_path: Path) -> None:
    most = 1 + load_config("family").draft.num_speculative_tokens
    demo = Command(tmp_path, "demo", "--config", "family", "--prompts-per-task", "1", "--json")
    try:
        said: list[str] = []

        def watch() -> None:
            for line in demo.process.stderr or ():
                demo.processes()
                said.append(line)

        watching = threading.Thread(target=watch)
        watching.start()
        told = demo.stdout.read()
        watching.join()
        assert demo.process.wait(timeout=30) == 0, "".join(said)
        assert said[0].startswith("Starting taskspec-family, ")
        steps = (
            "Opening models and bundle",
            "Starting Ray",
            "Loading target",
            "Asking the prompts of math",
            "Asking all 6 prompts",
        )
        assert [each for each in steps if not any(line.startswith(each) for line in said)] == []
        found = json.loads(told)
        assert list(found["tasks"]) == list(TASKS)
        assert [task["equal"] for task in found["tasks"].values()] == [1] * len(TASKS)
        assert found["all_equal"]
        for row in (*found["tasks"].values(), found["total"]):
            assert row["drafts"].keys() == {"base", "mixed", "own"}
        per_pass = [found["total"]["drafts"][draft]["tokens_per_target_pass"] for draft in ("base", "own")]
        assert all(1 < tokens <= most for tokens in per_pass)
        assert demo.left() == []
        assert list(tmp_path.iterdir()) == []
    finally:
        demo.kill()
