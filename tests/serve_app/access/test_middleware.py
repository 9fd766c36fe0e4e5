"""The application behind keys, limits, CORS, request ids and the access log: real HTTP messages, a scripted target."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import openai
import pytest

from serve_app.access.guarding import Access, guarded
from serve_app.access.key_file import add
from serve_app.access.keys import Keys
from serve_app.access.middleware import MAX_HEADER_BYTES, OPEN, access_log
from serve_app.access.request_ids import LONGEST
from serve_app.access_config import Cors, Limits
from serve_app.config import Ingress
from serve_app.http.handled import Handled
from serve_app.http.service import Overloaded, full_queue
from tests.serve_app.clients import Connection
from tests.serve_app.live import live
from tests.serve_app.scripted import ScriptedService

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
ASKED: dict[str, Any] = {"model": "org/toy", "messages": [{"role": "user", "content": "the answer"}]}
APP = "https://app.example.org"


def client_of(service: ScriptedService, settings: Ingress, keys: Keys | None = None) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(guarded(service, settings, Access.of(settings, keys)), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://service")


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """The lines of the access log."""
    written: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.append(record.getMessage())

    handler, before = Handler(), access_log.level
    access_log.addHandler(handler)
    access_log.setLevel(logging.INFO)
    yield written
    access_log.removeHandler(handler)
    access_log.setLevel(before)


async def test_without_a_key_nothing_but_health_answers(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    key = add(file, "alice")
    service = ScriptedService()
    async with client_of(service, Ingress(), Keys(file, {})) as client:
        page = (await client.get("/openapi.json", headers=bearer(key))).json()
        paths = [path.replace("{model}", "org/toy") for path in page["paths"]]
        assert {CHAT, "/metrics", "/version", "/tokenize"} <= set(paths)
        unlisted = ["/", "/docs", "/redoc", "/openapi.json", "/v1/embeddings", "/nothing", "/health/", "//health"]
        for path in [*paths, *unlisted]:
            for method in ("GET", "HEAD", "POST", "OPTIONS", "DELETE"):
                response = await client.request(method, path, json=ASKED if method == "POST" else None)
                if path in OPEN:
                    assert response.status_code != 401
                    continue
                assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer"), path
                if method != "HEAD":
                    error = response.json()["error"]
                    assert error["type"] == "authentication_error"
                    assert path.startswith(MESSAGES) or error["code"] == "invalid_api_key"
        assert service.asked == []
        for path in OPEN:
            assert (await client.get(path)).status_code == 200
        for headers in (bearer(key), {"x-api-key": key}):
            assert (await client.post(CHAT, json=ASKED, headers=headers)).status_code == 200
            assert (await client.get("/docs", headers=headers)).status_code == 200


async def test_the_openapi_page_asks_for_the_key_where_the_service_does(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    headers = bearer(add(file, "alice"))
    async with client_of(ScriptedService(), Ingress(), Keys(file, {})) as client:
        page = (await client.get("/openapi.json", headers=headers)).json()
    [(name, scheme)] = page["components"]["securitySchemes"].items()
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    asking = {path for path, methods in page["paths"].items() for one in methods.values() if "security" in one}
    assert asking == set(page["paths"]) - OPEN
    assert page["paths"][CHAT]["post"]["security"] == [{name: []}]
    async with client_of(ScriptedService(), Ingress()) as client:
        page = (await client.get("/openapi.json")).json()
    assert "securitySchemes" not in page["components"]
    assert not [path for path, methods in page["paths"].items() for one in methods.values() if "security" in one]


async def test_no_log_and_no_error_has_a_key(
    tmp_path: Path, lines: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys"
    good = add(file, "alice")
    bad = good[:-4] + "zzzz"
    sent = [{"Authorization": value.format(key)} for key in (good, bad) for value in ("Bearer {}", "Basic {}", "{}")]
    sent += [{"x-api-key": key} for key in (good, bad)] + [{"Authorization": f"Bearer {good} {bad}"}]
    service = ScriptedService()
    bodies: list[dict[str, Any]] = [ASKED, {**ASKED, "temperature": "hot"}, {**ASKED, "stream": True}]
    with caplog.at_level(logging.DEBUG):
        async with client_of(service, Ingress(), Keys(file, {})) as client:
            asked = [(body, headers) for body in bodies for headers in sent]
            answers = [await client.post(CHAT, json=body, headers=headers) for body, headers in asked]
            service.failure = RuntimeError("broken")
            answers.append(await client.post(CHAT, json=ASKED, headers=bearer(good)))
    assert {answer.status_code for answer in answers} == {200, 400, 401, 500}
    told = "".join(answer.text + str(answer.headers) for answer in answers) + "".join(lines) + caplog.text
    assert len(lines) == len(answers)
    assert "alice" in told
    for key in (good, bad):
        assert key not in told
        assert key.removeprefix("tsk-")[:16] not in told


async def test_a_request_id_is_echoed_if_it_is_good_and_made_otherwise_and_logged(lines: list[str]) -> None:
    service = ScriptedService()
    sent = ["mine-1", "a;b~!", "x" * LONGEST, "x" * (LONGEST + 1), "naïve", "a b", "", None]
    async with client_of(service, Ingress()) as client:
        for given in sent:
            headers = [] if given is None else [(b"x-request-id", given.encode())]
            for path, status in (("/v1/models", 200), ("/nothing", 404), (CHAT, 405)):
                response = await client.get(path, headers=headers)
                assert response.status_code == status
                [got] = response.headers.get_list("x-request-id")
                good = given in sent[:3]
                assert (got == given) if good else (len(got) == 36 and got != given)
                assert lines[-1].startswith(f"GET {path} {status} ")
                assert lines[-1].endswith(f" ms {got} -")
        two = await client.get("/health", headers=[(b"x-request-id", b"one"), (b"x-request-id", b"two")])
        assert two.headers["x-request-id"] not in ("one", "two")


async def test_a_failure_has_its_status_its_request_id_and_its_line(lines: list[str]) -> None:
    service = ScriptedService()
    service.failure = RuntimeError("broken")
    async with client_of(service, Ingress()) as client:
        response = await client.post(CHAT, json=ASKED, headers={"x-request-id": "mine"})
    assert (response.status_code, response.json()["error"]["type"]) == (500, "server_error")
    assert response.headers.get_list("x-request-id") == ["mine"]
    assert [line.split()[2] for line in lines] == ["500"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, MESSAGES, "/v1/responses"])
async def test_the_log_has_the_place_of_a_failure_and_nothing_of_what_it_says(
    caplog: pytest.LogCaptureFixture, path: str, *, stream: bool
) -> None:
    service = ScriptedService()
    service.failure, service.fails_after = ValueError("the prompt of Jane Doe"), 1 if stream else 0
    body = {**ASKED, "max_tokens": 9} if path != "/v1/responses" else {"model": "org/toy", "input": "the answer"}
    transport = httpx.ASGITransport(
        guarded(service, Ingress(), Access.of(Ingress(), None))
    )  # what the server would get, and log, is raised
    with caplog.at_level(logging.DEBUG):
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            answer = await client.post(path, json={**body, "stream": stream})
    assert answer.status_code == (200 if stream else 500)
    assert "failed while answering" in answer.text
    assert "Jane" not in caplog.text + answer.text
    assert re.search(r"ValueError at serve_app\.http\.\w+:\d+", caplog.text), caplog.text


async def test_a_web_page_may_read_that_the_service_failed() -> None:
    service = ScriptedService()
    service.failure = RuntimeError("broken")
    async with client_of(service, Ingress(cors=Cors(origins=[APP]))) as client:
        answer = await client.post(CHAT, json=ASKED, headers={"Origin": APP})
        large = await client.get("/v1/models", headers={"Origin": APP, "x-large": "x" * MAX_HEADER_BYTES})
    for refused, status in ((answer, 500), (large, 431)):
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (status, APP)
        assert refused.headers["x-request-id"]


async def test_every_refusal_of_anthropics_paths_has_anthropics_form(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    key = {"x-api-key": add(file, "alice")}
    service = ScriptedService()
    settings = Ingress(limits=Limits(requests_per_minute=3))
    body = {**ASKED, "max_tokens": 9}
    async with client_of(service, settings, Keys(file, {})) as client:
        asked = [
            (await client.post(MESSAGES, json=body), 401, "authentication_error"),
            (await client.get(MESSAGES, headers=key), 405, "invalid_request_error"),
            (await client.get(f"{MESSAGES}/batches", headers=key), 404, "not_found_error"),
            (await client.post(MESSAGES, json={}, headers=key), 400, "invalid_request_error"),
            (await client.get(MESSAGES, headers={"x": "x" * MAX_HEADER_BYTES}), 431, "invalid_request_error"),
        ]
        service.failure = RuntimeError("broken")
        asked += [
            (await client.post(MESSAGES, json=body, headers=key), 500, "api_error"),
            (await client.post(f"{MESSAGES}/count_tokens", json=ASKED, headers=key), 200, None),
            (await client.post(MESSAGES, json=body, headers=key), 429, "rate_limit_error"),
        ]
        other = await client.get("/v1/messages_of_others", headers=key)
    assert other.json().keys() == {"error"}
    assert asked[0][0].headers["www-authenticate"] == "Bearer"
    assert asked[-1][0].headers["retry-after"]
    for answer, status, kind in asked:
        assert answer.status_code == status, answer.text
        if kind is not None:
            assert answer.json().keys() == {"type", "error"}
            assert answer.json()["error"]["type"] == kind


async def test_a_client_that_leaves_has_its_line_and_frees_its_place(lines: list[str]) -> None:
    service, forever = ScriptedService(), asyncio.Event()
    service.step = forever.wait
    settings = Ingress(limits=Limits(concurrency=1))
    app = guarded(service, settings, Access.of(settings, None))
    for _ in range(2):
        connection = Connection(app, CHAT, ASKED)
        async with asyncio.timeout(60):
            while not service.open:  # noqa: ASYNC110 - the service has no event for it
                await asyncio.sleep(0)
        connection.hang_up()
        await connection.ended()
        assert service.open == 0
    assert [line.split()[2] for line in lines] == ["499", "499"]


async def test_requests_are_counted_by_key_method_and_status_and_sheds_apart(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    alice, bob = bearer(add(file, "alice")), bearer(add(file, "bob"))
    service, settings = ScriptedService(), Ingress(limits=Limits(requests_per_minute=3))
    access = Access.of(settings, Keys(file, {}))
    app = guarded(service, settings, access)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        for key in (alice, alice, bob, {}):
            await client.post(CHAT, json=ASKED, headers=key)
        for failure in (full_queue(2), Overloaded("no verifier is running")):
            service.failure = failure
            await client.post(CHAT, json=ASKED, headers=bob)
        for _ in range(2):
            await client.post(CHAT, json={}, headers=alice)
        for method in ("GET", "BREW", "STEEP"):
            await client.request(method, "/v1/models", headers=alice)
    assert access.history.handled == {
        Handled("alice", "POST", 200, shed=False): 2,
        Handled("bob", "POST", 200, shed=False): 1,
        Handled("-", "POST", 401, shed=False): 1,
        Handled("bob", "POST", 503, shed=True): 1,
        Handled("bob", "POST", 503, shed=False): 1,
        Handled("alice", "POST", 400, shed=False): 1,
        Handled("alice", "POST", 429, shed=False): 1,
        Handled("alice", "GET", 200, shed=False): 1,
        Handled("alice", "other", 405, shed=False): 2,
    }


async def test_a_path_cannot_break_a_line_of_the_log(lines: list[str]) -> None:
    async with client_of(ScriptedService(), Ingress()) as client:
        await client.get("/a%0AGET%20/b%1b[31m")
        await client.get("/v1/models?api_key=secret")
        await client.get("/" + "x" * 5000)
    assert len(lines) == 3
    assert all("\n" not in line and "\x1b" not in line and "secret" not in line for line in lines)
    assert max(map(len, lines)) < 400


async def test_limits_are_told_in_every_answer_and_a_request_beyond_them_waits(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    alice, bob = add(file, "alice"), add(file, "bob")
    settings = Ingress(limits=Limits(requests_per_minute=3, tokens_per_minute=1000))
    async with client_of(ScriptedService(), settings, Keys(file, {})) as client:
        answers = [await client.post(CHAT, json=ASKED, headers=bearer(alice)) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        refused = answers[-1]
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert 1 <= int(refused.headers["retry-after"]) <= 20
        assert [answer.headers["x-ratelimit-remaining-requests"] for answer in answers] == ["2", "1", "0", "0"]
        spent, left = 0, 1000
        for answer in answers[:3]:
            spent += answer.json()["usage"]["total_tokens"]
            left = int(answer.headers["x-ratelimit-remaining-tokens"])
            assert 0 <= left - (1000 - spent) <= 100  # what has flowed back since; a minute brings 1000
            assert answer.headers["x-ratelimit-limit-tokens"] == "1000"
            assert answer.headers["x-ratelimit-reset-tokens"]
        assert left < 1000
        assert (await client.post(CHAT, json=ASKED, headers=bearer(bob))).status_code == 200
        facts = await client.get("/v1/models", headers=bearer(alice))
        assert (facts.status_code, facts.headers["x-ratelimit-remaining-requests"]) == (200, "0")
        assert "x-ratelimit-limit-requests" not in (await client.get("/health")).headers


async def test_a_stream_is_charged_to_its_end_and_holds_its_place_until_then() -> None:
    service = ScriptedService()
    gate = asyncio.Semaphore(1)
    service.step = gate.acquire
    settings = Ingress(limits=Limits(concurrency=1, tokens_per_minute=10))
    app = guarded(service, settings, Access.of(settings, None))
    stream = Connection(app, CHAT, {**ASKED, "stream": True})
    await stream.until("data: ")
    assert "[DONE]" not in stream.text
    second = Connection(app, CHAT, ASKED)
    await second.task
    assert second.sent[0]["status"] == 429
    assert "at a time" in second.text or "tokens per minute" in second.text
    for _ in range(100):
        gate.release()
    await stream.task
    assert "[DONE]" in stream.text
    third = Connection(app, CHAT, ASKED)
    await third.task
    assert third.sent[0]["status"] == 429
    assert "over the limit of 10 tokens per minute" in third.text


async def test_clients_without_keys_share_one_limit() -> None:
    async with client_of(ScriptedService(), Ingress(limits=Limits(requests_per_minute=1))) as client:
        answers = [await client.post(CHAT, json=ASKED, headers=bearer(key)) for key in ("one", "two")]
    assert [answer.status_code for answer in answers] == [200, 429]


async def test_browsers_are_let_in_from_the_origins_that_are_named_only(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    key = add(file, "alice")
    asking = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    service = ScriptedService()
    async with client_of(service, Ingress(cors=Cors(origins=[APP])), Keys(file, {})) as client:
        preflight = await client.options(CHAT, headers={"Origin": APP, **asking})
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == APP
        assert "authorization" in preflight.headers["access-control-allow-headers"]
        assert "POST" in preflight.headers["access-control-allow-methods"]
        foreign = await client.options(CHAT, headers={"Origin": "https://evil.example", **asking})
        assert "access-control-allow-origin" not in foreign.headers
        for headers, status in ((bearer(key), 200), ({}, 401)):
            answer = await client.post(CHAT, json=ASKED, headers={"Origin": APP, **headers})
            assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (status, APP)
            assert "x-request-id" in answer.headers["access-control-expose-headers"]
    async with client_of(service, Ingress()) as client:
        assert (await client.options(CHAT, headers={"Origin": APP, **asking})).status_code == 405
        answer = await client.post(CHAT, json=ASKED, headers={"Origin": APP})
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_bodies_and_headers_over_the_limits_are_refused_by_a_real_server() -> None:
    body = json.dumps(ASKED).encode()
    with (
        live(guarded(ScriptedService(), Ingress(max_body_bytes=2000), Access.of(Ingress(), None))) as url,
        httpx.Client() as client,
    ):

        def post(content: Any, **headers: str) -> httpx.Response:
            return client.post(url + CHAT, content=content, headers={"Content-Type": "application/json", **headers})

        assert post(body).status_code == 200
        for large in (b" " * 2001 + body, iter([b" " * 500] * 5 + [body])):  # the latter without a Content-Length
            refused = post(large)
            assert (refused.status_code, refused.json()["error"]["type"]) == (413, "invalid_request_error")
            assert "2000 bytes" in refused.json()["error"]["message"]
            assert refused.headers["x-request-id"]
        assert post(body).status_code == 200


async def test_headers_over_the_limit_are_refused() -> None:
    service = ScriptedService()
    async with client_of(service, Ingress()) as client:
        refused = await client.post(CHAT, json=ASKED, headers={"x-large": "x" * MAX_HEADER_BYTES})
        assert (refused.status_code, refused.json()["error"]["type"]) == (431, "invalid_request_error")
        assert service.asked == []
        assert (await client.post(CHAT, json=ASKED, headers={"x-large": "x" * 60_000})).status_code == 200


async def test_openais_client_understands_the_refusals(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    key = add(file, "alice")
    settings, keys = Ingress(limits=Limits(requests_per_minute=1)), Keys(file, {})
    async with client_of(ScriptedService(), settings, keys) as http:

        def asking(api_key: str) -> openai.AsyncOpenAI:
            return openai.AsyncOpenAI(api_key=api_key, base_url="http://service/v1", max_retries=0, http_client=http)

        with pytest.raises(openai.AuthenticationError):
            await asking("wrong").chat.completions.create(**ASKED)
        answer = await asking(key).chat.completions.with_raw_response.create(**ASKED)
        assert answer.parse().choices[0].message.content
        assert answer.request_id
        with pytest.raises(openai.RateLimitError) as refused:
            await asking(key).chat.completions.create(**ASKED)
        assert refused.value.response.headers["retry-after"]
