"""What the endpoints of the console tell whom, and who may act: real HTTP messages, a service that is made up."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from serve_app.access.key_file import add
from serve_app.access_config import Cors, Limits
from serve_app.config import Ingress
from serve_app.console import routes
from serve_app.console.lookout import MOST_LOOKERS
from serve_app.operations import NoService
from tests.serve_app.clients import events
from tests.serve_app.console.consoles import REMOTE, URL, FakeOperator, bearer, console_client

VERSION = "0123456789abcdef"
DEPLOY, SCALE = "/console/deploy", "/console/scale"
ACTIONS: list[tuple[str, dict[str, Any]]] = [(DEPLOY, {"version": VERSION}), (SCALE, {"replicas": {"general": 2}})]
LOGGER = "serve_app.console.actions"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys"


async def test_the_status_is_of_the_viewer_and_has_other_clients_for_admins_only(keys: Path) -> None:
    admin, user = add(keys, "alice", admin=True), add(keys, "bob")
    async with console_client(FakeOperator(), keys) as client:
        assert (await client.get("/console/status")).status_code == 401
        whole = (await client.get("/console/status", headers=bearer(admin))).json()
        own = (await client.get("/console/status", headers=bearer(user))).json()
    assert [key["name"] for key in whole["keys"]] == ["alice", "bob"]
    assert [key["name"] for key in own["keys"]] == ["bob"]
    assert whole["viewer"] == {"name": "alice", "acts": True, "why": ""}
    assert (own["viewer"]["name"], own["viewer"]["acts"]) == ("bob", False)
    assert "taskspec keys add" in own["viewer"]["why"]


async def test_events_are_the_status_again_and_again_until_the_replica_goes() -> None:
    operator = FakeOperator()
    operator.lasts = True
    async with console_client(operator) as client:
        stream = await client.get("/console/events")
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert [event["at"] for event in events(stream.text)] == [1]
        operator.lasts = False
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(routes, "SECONDS_OPEN", 1.1)
            told = events((await client.get("/console/events")).text)
    assert [event["at"] for event in told] == [2, 3]
    assert told[0].keys() == {"at", "viewer", "keys"}


async def test_a_service_that_cannot_be_looked_at_is_unavailable_and_too_many_lookers_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = FakeOperator()
    operator.failure = NoService("no service runs on that Ray cluster")
    async with console_client(operator) as client:
        for path in ("/console/status", "/console/events"):
            answer = await client.get(path)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert "no service runs" in answer.json()["error"]["message"]
        monkeypatch.setattr("serve_app.console.lookout.MOST_LOOKERS", 0)
        answer = await client.get("/console/events")
    assert (answer.status_code, MOST_LOOKERS > 9) == (503, True)


@pytest.mark.parametrize(("path", "body"), ACTIONS)
async def test_an_admin_acts_and_others_are_refused_with_a_line_each(
    keys: Path, caplog: pytest.LogCaptureFixture, path: str, body: dict[str, Any]
) -> None:
    admin, user = add(keys, "alice", admin=True), add(keys, "bob")
    operator = FakeOperator()
    with caplog.at_level(logging.INFO, LOGGER):
        async with console_client(operator, keys, REMOTE) as client:
            refused = await client.post(path, json=body, headers=bearer(user))
            unknown = await client.post(path, json=body)
            assert operator.done == []
            done = await client.post(path, json=body, headers=bearer(admin))
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "admin_key_needed")
    assert unknown.status_code == 401
    assert (done.status_code, len(operator.done)) == (200, 1)
    first, second = (record.getMessage() for record in caplog.records if record.name == LOGGER)
    assert first == f"{path} by bob: refused, admin_key_needed"
    assert "by alice: " in second
    assert second.endswith(done.json()["done"])
    assert not any(key in caplog.text for key in (admin, user))


async def test_what_is_asked_for_is_what_is_done(keys: Path) -> None:
    headers, operator = bearer(add(keys, "alice", admin=True)), FakeOperator()
    async with console_client(operator, keys) as client:
        for body in ({"share": 0.1}, {"share": None, "force": True}, {}):
            answer = await client.post(DEPLOY, json={"version": VERSION, **body}, headers=headers)
            assert answer.json() == {"done": f"bundle {VERSION}: its pools are starting"}
        await client.post(SCALE, json={"replicas": {"general": 0, "math": 2}}, headers=headers)
        impossible = await client.post(DEPLOY, json={"version": "none"}, headers=headers)
    assert operator.done == [
        ("deploy", VERSION, 0.1, False),
        ("deploy", VERSION, 0.0, True),
        ("deploy", VERSION, 0.0, False),
        ("scale", {"general": 0, "math": 2}),
    ]
    assert (impossible.status_code, impossible.json()["error"]["code"]) == (409, "not_possible")
    assert impossible.json()["error"]["message"] == "bundle none is blocked"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (DEPLOY, {}),
        (DEPLOY, {"version": "../../etc"}),
        (DEPLOY, {"version": VERSION + "\n"}),
        (DEPLOY, {"version": VERSION, "share": 1}),
        (DEPLOY, {"version": VERSION, "share": 0}),
        (DEPLOY, {"version": VERSION, "canary": 0.1}),
        (SCALE, {"replicas": {}}),
        (SCALE, {"replicas": {"general": -1}}),
        (SCALE, {"replicas": {"general": 1.5}}),
        (SCALE, {"replicas": {"x" * 300: 1}}),
        (SCALE, {"replicas": {str(number): 1 for number in range(100)}}),
    ],
)
async def test_a_wrong_body_is_refused_by_its_field(path: str, body: dict[str, Any]) -> None:
    operator = FakeOperator()
    async with console_client(operator) as client:
        answer = await client.post(path, json=body)
        no_json = await client.post(path, content=json.dumps(body), headers={"Content-Type": "text/plain"})
    assert (answer.status_code, no_json.status_code, operator.done) == (400, 415, [])
    assert answer.json()["error"]["param"]


OWN = {"Origin": URL}


@pytest.mark.parametrize(
    ("peer", "headers", "code"),
    [
        (None, {}, None),
        (None, OWN, None),
        (None, {**OWN, "Sec-Fetch-Site": "same-origin"}, None),
        (None, {"Host": "localhost:8000", "Origin": "http://LOCALHOST:8000"}, None),
        (None, {"Host": "[::1]:8000", "Origin": "http://[::1]:8000"}, None),
        (REMOTE, OWN, "loopback_only"),
        (("testserver", 1), OWN, "loopback_only"),
        (None, {"X-Forwarded-For": "127.0.0.1"}, "loopback_only"),
        (None, {"Forwarded": "for=10.0.0.1"}, "loopback_only"),
        (None, {"Host": "rebound.example.org:8000", "Origin": "http://rebound.example.org:8000"}, "loopback_only"),
        (None, {"Host": "[broken", "Origin": "http://[broken"}, "wrong_origin"),
        (None, {"Origin": "http://evil.example.org"}, "wrong_origin"),
        (None, {"Origin": "http://127.0.0.1:8001"}, "wrong_origin"),
        (None, {"Origin": "null"}, "wrong_origin"),
        (None, {"Sec-Fetch-Site": "cross-site"}, "wrong_origin"),
        (None, {**OWN, "Sec-Fetch-Site": "same-site"}, "wrong_origin"),
    ],
)
async def test_without_keys_only_this_machine_acts_and_no_page_of_another_origin(
    peer: tuple[str, int] | None, headers: dict[str, str], code: str | None
) -> None:
    operator = FakeOperator()
    async with console_client(operator, peer=peer or ("127.0.0.1", 1)) as client:
        for path, body in ACTIONS:
            answer = await client.post(path, json=body, headers=headers)
            assert answer.status_code == (403 if code else 200)
            assert code is None or answer.json()["error"]["code"] == code
        seen = (await client.get("/console/status", headers=headers)).json()["viewer"]
    assert len(operator.done) == (0 if code else len(ACTIONS))
    assert code == "wrong_origin" or seen["acts"] == (code is None)


async def test_a_page_of_another_origin_does_not_act_with_the_key_of_an_admin_either(keys: Path) -> None:
    headers, operator = bearer(add(keys, "alice", admin=True)), FakeOperator()
    async with console_client(operator, keys, REMOTE) as client:
        answer = await client.post(
            DEPLOY, json={"version": VERSION}, headers={**headers, "Origin": "https://evil.example.org"}
        )
        assert (await client.post(DEPLOY, json={"version": VERSION}, headers={**headers, **OWN})).status_code == 200
    assert (answer.status_code, len(operator.done)) == (403, 1)


async def test_pages_of_other_origins_get_nothing_of_the_console_where_they_get_the_api() -> None:
    origin = "https://app.example.org"
    settings = Ingress(cors=Cors(origins=["*"]), limits=Limits(concurrency=3))
    ask = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    async with console_client(FakeOperator(), settings=settings) as client:
        assert "access-control-allow-origin" in (await client.options("/v1/chat/completions", headers=ask)).headers
        for path in (DEPLOY, "/console/status", "/console/static/page.js"):
            for method in ("OPTIONS", "GET"):
                answer = await client.request(method, path, headers=ask)
                assert not [name for name in answer.headers if name.startswith("access-control")], path


async def test_without_an_operator_there_is_nothing_to_look_at() -> None:
    async with console_client(None) as client:
        assert (await client.get("/console/status")).status_code == 404
        assert (await client.post(SCALE, json={})).status_code == 404
