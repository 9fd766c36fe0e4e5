"""GET /healthz, /v1/models and the OpenAPI page."""

from __future__ import annotations

from serve_app.openai.requests import ChatRequest, CompletionRequest
from tests.serve_app.clients import http_client
from tests.serve_app.scripted import ScriptedService


async def test_health_follows_the_service() -> None:
    service = ScriptedService()
    async with http_client(service) as client:
        well = await client.get("/healthz")
        service.is_healthy = False
        ill = await client.get("/healthz")
    assert (well.status_code, well.json()) == (200, {"status": "ok"})
    assert (ill.status_code, ill.json()) == (503, {"status": "unavailable"})


async def test_the_model_tells_its_numerics() -> None:
    async with http_client(ScriptedService()) as client:
        models = (await client.get("/v1/models")).json()
        model = (await client.get("/v1/models/org/toy")).json()
    assert models == {"object": "list", "data": [model]}
    assert (model["object"], model["numerics"], model["tasks"]) == ("model", "exact", ["general", "math", "python"])


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
