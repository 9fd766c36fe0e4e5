"""A service answers to its name and to its aliases, names the model as it was asked for, and has no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from serve_app.access.guarding import Access, guarded
from serve_app.access.key_file import add
from serve_app.access.keys import Keys
from serve_app.client import own_names
from serve_app.config import LONGEST_NAME, Aliases, Ingress
from tests.serve_app.clients import events, http_client, openai_client
from tests.serve_app.protocols.anthropic.clients import anthropic_client
from tests.serve_app.scripted import ScriptedService

OWN, ALIAS = "org/toy", "claude-for-a-test"
LISTED: list[str] = [ALIAS, "openai/gpt-4o"]
USER = {"role": "user", "content": "the answer"}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "the answer"},
    "/v1/chat/completions": {"messages": [USER]},
    "/v1/responses": {"input": "the answer"},
    "/v1/messages": {"messages": [USER], "max_tokens": 9},
}
UNSTREAMED: dict[str, dict[str, Any]] = {
    "/v1/messages/count_tokens": {"messages": [USER]},
    "/tokenize": {"prompt": "the answer"},
    "/detokenize": {"tokens": [2]},
}


def aliased(aliases: Aliases) -> ScriptedService:
    service = ScriptedService()
    service.aliases = aliases
    return service


def names_in(event: dict[str, Any]) -> set[str]:
    """The models that an event of a stream names, or the message or response in it."""
    shown = (event, event.get("message"), event.get("response"))
    return {part["model"] for part in shown if isinstance(part, dict) and "model" in part}


@pytest.mark.parametrize("aliases", [LISTED, "any"])
@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("name", [OWN, *LISTED])
async def test_the_answer_names_the_model_as_it_was_asked_for(aliases: Aliases, path: str, name: str) -> None:
    body = {"model": name, **BODIES[path]}
    async with http_client(aliased(aliases)) as client:
        whole = await client.post(path, json=body)
        streamed = await client.post(path, json={**body, "stream": True})
    assert whole.json()["model"] == name
    lines = [line.removeprefix("data: ") for line in streamed.text.split("\n") if line.startswith("data: ")]
    told = [names_in(event) for event in events("\n\n".join(lines)) if event != "[DONE]"]
    assert {found for names in told for found in names} == {name}
    assert told[0] == {name}


@pytest.mark.parametrize("path", UNSTREAMED)
async def test_tokens_are_counted_for_an_alias(path: str) -> None:
    async with http_client(aliased(LISTED)) as client:
        of_alias, of_own, unknown = [
            await client.post(path, json={"model": name, **UNSTREAMED[path]}) for name in (ALIAS, OWN, "gpt-x")
        ]
    assert (of_alias.status_code, of_alias.json()) == (200, of_own.json())
    assert unknown.status_code == 404


@pytest.mark.parametrize("path", [*BODIES, *UNSTREAMED])
@pytest.mark.parametrize("aliases", [[], LISTED])
async def test_a_name_that_is_no_alias_is_not_found(aliases: Aliases, path: str) -> None:
    service = aliased(aliases)
    async with http_client(service) as client:
        for name in ("gpt-x", "", ALIAS.upper(), f"{ALIAS} ", "any", "x" * 10_000):
            response = await client.post(path, json={"model": name, **(BODIES | UNSTREAMED)[path]})
            assert response.status_code == 404
            message = response.json()["error"]["message"]
            assert all(f"'{known}'" in message for known in [OWN, *aliases])
            assert len(message) < 300
        assert (await client.get("/v1/models/gpt-x")).status_code == 404
    assert not service.asked


@pytest.mark.parametrize("path", [*BODIES, *UNSTREAMED])
async def test_any_name_has_a_length(path: str) -> None:
    service = aliased("any")
    async with http_client(service) as client:
        for name in ("", "x" * (LONGEST_NAME + 1), "x" * 1_000_000):
            response = await client.post(path, json={"model": name, **(BODIES | UNSTREAMED)[path]})
            assert response.status_code == 400
            assert "'model' has" in response.json()["error"]["message"]
            assert f"1 to {LONGEST_NAME}" in response.json()["error"]["message"]
        assert not service.asked
        for name in ("x" * LONGEST_NAME, "名 </s>\n\x00🙂"):
            response = await client.post(path, json={"model": name, **(BODIES | UNSTREAMED)[path]})
            assert response.status_code == 200, response.text
            assert response.json().get("model", name) == name
        for name in (3, ["a"], {}):
            response = await client.post(path, json={"model": name, **(BODIES | UNSTREAMED)[path]})
            assert response.status_code == 400


async def test_the_own_name_is_listed_first_and_aliases_are_known_by_their_root() -> None:
    async with http_client(aliased(LISTED)) as client:
        cards = (await client.get("/v1/models")).json()["data"]
        assert [card["id"] for card in cards] == [OWN, *LISTED]
        for card in cards:
            assert (await client.get(f"/v1/models/{card['id']}")).json() == card == {**cards[0], "id": card["id"]}
        assert (await client.head(f"/v1/models/{ALIAS}")).status_code == 200
    assert own_names(cards) == [OWN]
    async with http_client(aliased("any")) as client:
        [card] = (await client.get("/v1/models")).json()["data"]
        assert (await client.get(f"/v1/models/{ALIAS}")).json() == {**card, "id": ALIAS}
        assert card["id"] == OWN


def test_models_of_other_servers_are_their_own_unless_another_is_their_root() -> None:
    base, renamed = {"id": "base", "root": "/models/base"}, {"id": "served", "root": "/models/base"}
    assert own_names([base, renamed, {"id": "adapter", "root": "/loras/a", "parent": "base"}, {"id": "c"}]) == [
        "base",
        "served",
        "adapter",
        "c",
    ]
    assert own_names([{"id": "alias", "root": "own"}, {"id": "own", "root": "own"}]) == ["own"]


async def test_official_clients_get_the_name_they_asked_for() -> None:
    service = aliased(LISTED)
    async with openai_client(service) as client:
        assert [model.id async for model in client.models.list()] == [OWN, *LISTED]
        assert (await client.models.retrieve("openai/gpt-4o")).id == "openai/gpt-4o"
        async with client.responses.stream(model="openai/gpt-4o", input="the answer") as stream:
            assert (await stream.get_final_response()).model == "openai/gpt-4o"
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="gpt-4", messages=[{"role": "user", "content": "the"}])
    async with anthropic_client(service) as client:
        assert [model.id async for model in client.models.list()] == [OWN, *LISTED]
        async with client.messages.stream(model=ALIAS, max_tokens=9, messages=[USER]) as stream:
            assert (await stream.get_final_message()).model == ALIAS
        with pytest.raises(anthropic.NotFoundError, match="does not exist"):
            await client.messages.create(model="claude-x", max_tokens=9, messages=[USER])


async def test_an_alias_needs_a_key_as_the_name_does(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    key = add(file, "alice")
    service = aliased("any")
    transport = httpx2.ASGITransport(guarded(service, Ingress(), Access.of(Ingress(), Keys(file, {}))))
    async with httpx2.AsyncClient(transport=transport, base_url="http://service") as client:
        for path, body in (BODIES | UNSTREAMED).items():
            assert (await client.post(path, json={"model": ALIAS, **body})).status_code == 401
            answer = await client.post(path, json={"model": ALIAS, **body}, headers={"x-api-key": key})
            assert answer.status_code == 200
        assert (await client.get(f"/v1/models/{ALIAS}")).status_code == 401
