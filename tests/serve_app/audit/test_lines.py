"""Requests and answers of a server, read from a file and held to plain decoding of a real target."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from core.audit.audit import AnswerVerdict, audit
from core.errors import ConfigError
from serve_app.audit.lines import read
from serve_app.audit.offline import offline_service
from serve_app.audit.recorded import Recording
from serve_app.config import load_config
from tests.core.family_records import TOKENIZER, target
from tests.serve_app.clients import http_client
from tests.serve_app.engine_service import EngineService, engine_service
from tests.serve_app.test_real_calls import TOOLS

Line = dict[str, Any]
CONFIG = load_config("family")
PROMPT = "What is 17 + 25?"
SCHEMA = {"type": "object", "properties": {"age": {"type": "integer"}, "name": {"type": "string"}}, "required": ["age"]}
CHAT: list[Line] = [
    {"temperature": 0},
    {"seed": 3, "n": 3},
    {"seed": 3, "stop": ["4", "the"], "logprobs": True, "top_logprobs": 2},
    {"seed": 3, "stop": ["4", "the"], "include_stop_str_in_output": True},
    {"seed": 4, "temperature": 1.5, "top_p": 0.9, "presence_penalty": 0.5, "min_tokens": 4},
    {"seed": 5, "response_format": {"type": "json_schema", "json_schema": {"name": "who", "schema": SCHEMA}}},
    {"seed": 6, "max_tokens": 4},
    {"seed": 6, "max_tokens": 30, "ignore_eos": True, "skip_special_tokens": False},
    {"seed": 7, "tools": TOOLS, "tool_choice": "required", "max_tokens": 120},
    {"seed": 8, "tools": TOOLS, "tool_choice": "auto"},
]
COMPLETIONS: list[Line] = [
    {"prompt": PROMPT, "temperature": 0},
    {"prompt": [PROMPT, "Sort: 3, 1, 2"], "seed": 1, "n": 2, "max_tokens": 12},
    {"prompt": PROMPT, "seed": 2, "echo": True, "logprobs": 1},
    {"prompt": PROMPT, "seed": 2, "stop": " ", "max_tokens": 30},
]


@pytest.fixture(scope="module")
def service() -> Iterator[EngineService]:
    with engine_service("family:target", "hermes") as running:
        yield running


async def _answered(service: EngineService) -> list[Line]:
    lines = list[Line]()
    async with http_client(service) as client:
        for kind, bodies in (("chat/completions", CHAT), ("completions", COMPLETIONS)):
            for fields in bodies:
                chat = {"messages": [{"role": "user", "content": PROMPT}]} if kind.startswith("chat") else {}
                request = {"model": "org/toy", "max_tokens": 24, **chat, **fields}
                answer = await client.post(f"/v1/{kind}", json=request)
                assert answer.status_code == 200, answer.text
                lines.append({"request": request | {"return_token_ids": True}, "answer": answer.json()})
    return lines


@pytest.fixture(scope="module")
def answered(service: EngineService) -> list[Line]:
    """What the service answers in float32; see `recorded`."""
    return asyncio.run(_answered(service))


@pytest.fixture
def lines(answered: list[Line]) -> list[Line]:
    return deepcopy(answered)


def as_text(line: Line) -> Line:
    """As a server tells it that has no token ids."""
    for choice in line["answer"]["choices"]:
        del choice["token_ids"]
    return line


def recording(tmp_path: Path, lines: list[Any]) -> Recording:
    file = tmp_path / "answers.jsonl"
    file.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return read(file, offline_service(CONFIG))


def verdicts(recorded: Recording) -> dict[str, AnswerVerdict]:
    found = audit(target(), TOKENIZER, [answer.question for answer in recorded.answers])
    return {recorded.answers[index].name: verdict for index, verdict in found}


def wrong(judged: dict[str, AnswerVerdict]) -> set[str]:
    return {name for name, verdict in judged.items() if verdict.kind == "different"}


def test_what_a_service_answered_is_its_targets_own(tmp_path: Path, lines: list[Line]) -> None:
    """The service computes in float32, and the audit in bfloat16: so there may be near-ties."""
    recorded = recording(tmp_path, lines)
    assert not recorded.lacks
    judged = verdicts(recorded)
    assert len(judged) == sum(len(line["answer"]["choices"]) for line in lines)
    assert not wrong(judged)
    assert "equal" in {verdict.kind for verdict in judged.values()}


def test_answers_without_token_ids_are_compared_by_text(tmp_path: Path, lines: list[Line]) -> None:
    recorded = recording(tmp_path, [as_text(line) for line in lines])
    assert {lack.reason for lack in recorded.lacks} == {"it has no token ids, and its text begins with the prompt"}
    judged = verdicts(recorded)
    assert not {name for name in wrong(judged) if "calls" not in judged[name].complaint}
    assert not wrong(judged)


@pytest.mark.parametrize("text", [False, True])
def test_a_changed_answer_is_found_by_token_ids_and_by_text(tmp_path: Path, lines: list[Line], text: bool) -> None:
    line = as_text(lines[0]) if text else lines[0]
    choice = line["answer"]["choices"][0]
    if text:
        content = choice["message"]["content"]
        choice["message"]["content"] = f"{content[:5]}§{content[6:]}"
    else:
        choice["token_ids"][2] = 5
    [verdict] = verdicts(recording(tmp_path, [line])).values()
    assert verdict.kind == "different"
    assert verdict.differences
    assert verdict.differences[0].position <= 5


def test_a_text_that_ends_early_or_late_is_found(tmp_path: Path, lines: list[Line]) -> None:
    for change in (lambda text: text[:-1], lambda text: text + "."):
        line = as_text(deepcopy(lines[0]))
        message = line["answer"]["choices"][0]["message"]
        message["content"] = change(message["content"])
        assert wrong(verdicts(recording(tmp_path, [line])))


def streamed(answer: Line) -> list[Line]:
    """A chat completion as chunks, two tokens and three characters each, one call a chunk."""
    chunks: list[Line] = [{"choices": [], "seed": answer.get("seed")}]
    for choice in answer["choices"]:
        message, index = choice["message"], choice["index"]
        ids = choice["token_ids"]
        parts = [{"delta": {}, "token_ids": ids[at : at + 2]} for at in range(0, len(ids), 2)]
        for name in ("reasoning_content", "content"):
            text = message.get(name) or ""
            parts += [{"delta": {name: text[at : at + 3]}} for at in range(0, len(text), 3)]
        calls = enumerate(message.get("tool_calls") or ())
        parts += [{"delta": {"tool_calls": [{"index": at, **call}]}} for at, call in calls]
        parts.append({"delta": {}, "finish_reason": choice["finish_reason"]})
        chunks += [{"choices": [{"index": index, **part}]} for part in parts]
    return chunks


@pytest.mark.parametrize("text", [False, True])
def test_streams_are_audited_as_the_answers_that_they_make_up(tmp_path: Path, lines: list[Line], text: bool) -> None:
    chats = [line for line in lines if "messages" in line["request"]]
    for line in chats:
        line["answer"] = streamed(line["answer"])
        for chunk in line["answer"] if text else ():
            for choice in chunk["choices"]:
                choice.pop("token_ids", None)
    judged = verdicts(recording(tmp_path, chats))
    assert len(judged) == sum(line["request"].get("n", 1) for line in chats)
    assert not wrong(judged)
    del chats[0]["answer"][3:]  # a stream that was cut
    [verdict] = verdicts(recording(tmp_path, chats[:1])).values()
    assert verdict.kind != "different"
    failed = {"request": chats[0]["request"], "answer": [{"error": {"message": "no verifier"}}]}
    assert [lack.reason for lack in recording(tmp_path, [failed]).lacks] == ["an error and no answer"]


def test_a_changed_call_is_found(tmp_path: Path, lines: list[Line]) -> None:
    line = as_text(lines[8])
    [call, *_] = line["answer"]["choices"][0]["message"]["tool_calls"]
    assert not wrong(verdicts(recording(tmp_path, [line])))
    call["function"]["name"] = "later"
    assert wrong(verdicts(recording(tmp_path, [line])))


@pytest.mark.parametrize("text", [False, True])
def test_a_cut_answer_is_audited_as_the_beginning_that_it_is(tmp_path: Path, lines: list[Line], text: bool) -> None:
    line = as_text(lines[0]) if text else lines[0]
    choice = line["answer"]["choices"][0]
    choice["finish_reason"] = None
    if text:
        choice["message"]["content"] = choice["message"]["content"][:7]
    else:
        choice["token_ids"] = choice["token_ids"][:4]
    [verdict] = verdicts(recording(tmp_path, [line])).values()
    assert verdict.kind != "different"
    assert 0 < len(verdict.tokens) < len(TOKENIZER.raw.encode(PROMPT * 2).ids)


async def test_a_continued_answer_is_audited_with_its_beginning(
    tmp_path: Path, service: EngineService, lines: list[Line]
) -> None:
    [choice], request = lines[0]["answer"]["choices"], {**lines[0]["request"], "seed": 1}
    del request["return_token_ids"]
    continued = list[Line]()
    async with http_client(service) as client:
        for received in (choice["token_ids"][:5], choice["message"]["content"][:9]):
            body = {**request, "continue_from": received}
            answer = await client.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200, answer.text
            continued.append({"request": body, "answer": answer.json()})
    recorded = await asyncio.to_thread(recording, tmp_path, continued)
    judged = verdicts(recorded)
    assert len(judged) == 2
    assert not wrong(judged)
    assert {len(verdict.tokens) for verdict in judged.values()} == {len(choice["token_ids"])}
    continued[0]["request"]["continue_from"] = choice["token_ids"][:4]
    assert wrong(verdicts(await asyncio.to_thread(recording, tmp_path, continued[:1])))


def test_what_cannot_be_audited_is_told_and_what_is_missing_counts(tmp_path: Path, lines: list[Line]) -> None:
    unseeded = deepcopy(lines[1])
    del unseeded["request"]["seed"], unseeded["answer"]["seed"]
    told = deepcopy(unseeded)
    told["answer"]["seed"] = lines[1]["request"]["seed"]
    lost = deepcopy(lines[1])
    del lost["answer"]["choices"][1]
    failed = {"request": lines[0]["request"], "answer": {"error": {"message": "no verifier"}}}
    recorded = recording(tmp_path, [unseeded, told, lost, failed])
    assert [(lack.name, lack.missing) for lack in recorded.lacks] == [
        ("line 1", False),
        ("line 3, choice 1", True),
        ("line 4", False),
    ]
    assert len(recorded.answers) == 5
    assert not wrong(verdicts(recorded))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: it is no JSON"),
        ("[]", "line 2: it must be an object with 'request' and 'answer'"),
        ({"answer": {}}, "line 2: 'request' is required"),
        ({"request": {}, "answer": "yes"}, "line 2: 'answer' must be an object"),
        (
            {"request": {"model": "m", "prompt": "x", "temperature": 0}, "answer": [{}, {"choices": [{"text": 1}]}]},
            "line 2: 'answer[1].choices[0].text': ",
        ),
        ({"request": {"model": "m"}, "answer": {"choices": []}}, "line 2: 'request' has neither 'messages' nor"),
        (
            {"request": {"model": "m", "prompt": "x", "temperature": 9}, "answer": {"choices": []}},
            "line 2: 'request.temperature': ",
        ),
        (
            {"request": {"model": "m", "prompt": "x", "typical_p": 1}, "answer": {"choices": []}},
            "line 2: 'request.typical_p': unknown field 'typical_p'",
        ),
        (
            {"request": {"model": "m", "prompt": "x", "temperature": 0, "max_tokens": 5000}, "answer": {"choices": []}},
            "line 2: 'request.max_tokens': 2 tokens of prompt and max_tokens",
        ),
        (
            {"request": {"model": "m", "prompt": "x", "temperature": 0}, "answer": {"choices": [{"token_ids": ["a"]}]}},
            "line 2: 'answer.choices[0].token_ids[0]': ",
        ),
        ({"request": {"model": "m", "prompt": "x"}, "answer": {}}, "line 2: 'answer.choices' is required"),
        (
            {"request": {"model": "m", "prompt": "x", "temperature": 0}, "answer": {"choices": [{}]}},
            "neither 'token_ids' nor 'text'",
        ),
        (
            {"request": {"model": "m", "prompt": "x", "seed": 1}, "answer": {"choices": [{"index": 4, "text": ""}]}},
            "has an index 4 that was not asked for",
        ),
    ],
)
def test_a_line_that_cannot_be_read_is_named_with_its_field(
    tmp_path: Path, lines: list[Line], line: object, message: str
) -> None:
    with pytest.raises(ConfigError, match=r"answers\.jsonl") as refused:
        recording(tmp_path, [lines[0], line])
    assert message in str(refused.value)
