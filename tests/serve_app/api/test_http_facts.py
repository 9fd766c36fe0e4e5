"""GET /health, /healthz, /version, /v1/models and the OpenAPI page, and HEAD of them."""

from __future__ import annotations

import re
from importlib.metadata import version

import pytest

from serve_app.http.schema.requests import ChatRequest, CompletionRequest
from tests.serve_app.clients import http_client
from tests.serve_app.scripted import ScriptedService


@pytest.mark.parametrize("path", ["/health", "/healthz"])
async def test_health_follows_the_service(path: str) -> None:
    service = ScriptedService()
    async with http_client(service) as client:
        well = await client.get(path)
        service.is_healthy = False
        ill = await client.get(path)
    assert (well.status_code, well.json()) == (200, {"status": "ok"})
    assert (ill.status_code, ill.json()) == (503, {"status": "unavailable"})


async def test_the_model_tells_its_numerics() -> None:
    async with http_client(ScriptedService()) as client:
        models = (await client.get("/v1/models")).json()
        model = (await client.get("/v1/models/org/toy")).json()
    assert models == {"object": "list", "data": [model]}
    assert (model["object"], model["numerics"], model["tasks"]) == ("model", "exact", ["general", "math", "python"])


async def test_the_models_page_tells_what_serves_now() -> None:
    service = ScriptedService()
    async with http_client(service) as client:
        service.tasks = ("general", "cooking")  # as after a rollout
        assert (await client.get("/v1/models")).json()["data"][0]["tasks"] == ["general", "cooking"]


async def test_the_version_is_the_packages() -> None:
    async with http_client(ScriptedService()) as client:
        assert (await client.get("/version")).json() == {"version": version("taskspec")}


@pytest.mark.parametrize("path", ["/health", "/healthz", "/version", "/v1/models", "/v1/models/org/toy", "/docs"])
@pytest.mark.parametrize("healthy", [True, False])
async def test_head_is_get_without_the_body(path: str, *, healthy: bool) -> None:
    service = ScriptedService()
    service.is_healthy = healthy
    async with http_client(service) as client:
        got, head = await client.get(path), await client.head(path)
    assert head.status_code == got.status_code
    assert (head.headers, head.content) == (got.headers, b"")
    assert got.content


async def test_head_of_what_takes_no_get_is_refused() -> None:
    async with http_client(ScriptedService()) as client:
        assert (await client.head("/v1/completions")).status_code == 405
        assert (await client.head("/nothing")).status_code == 404


async def test_every_field_is_documented_with_its_limits() -> None:
    async with http_client(ScriptedService()) as client:
        page = (await client.get("/openapi.json")).json()
    schemas = page["components"]["schemas"]
    for model in (CompletionRequest, ChatRequest):
        fields = schemas[model.__name__]["properties"]
        assert fields.keys() == {*model.model_fields, *model.ignored}
        assert all("description" in field or "anyOf" in field for field in fields.values())
        assert fields["temperature"]["maximum"] == 2
    assert "422" not in page["paths"]["/v1/completions"]["post"]["responses"]


async def test_the_front_page_says_what_this_is_and_links_to_pages_that_there_are() -> None:
    service = ScriptedService()
    service.model_name = "<b>toy</b>"
    async with http_client(service) as client:
        page = await client.get("/")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert "&lt;b&gt;toy&lt;/b&gt;" in page.text
        assert "<b>" not in page.text
        links = re.findall(r'href="([^"]+)"', page.text)
        assert links == ["docs", "v1/models", "health", "metrics"]
        for link in links:
            assert (await client.get(f"/{link}")).status_code == 200
        assert (await client.head("/")).status_code == 200


async def test_metrics_are_prometheus_text_or_unavailable() -> None:
    service = ScriptedService()
    async with http_client(service) as client:
        told = await client.get("/metrics")
        service.is_healthy = False
        untold = await client.get("/metrics")
    assert told.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert told.text == "ray_taskspec_verifier_tokens_total 1.0\n"
    assert untold.status_code == 503
    assert "no node tells its metrics" in untold.json()["error"]["message"]
