"""What Serve's proxies do first."""

from __future__ import annotations

import httpx2 as httpx
from ray.serve._private.http_util import RequestIdMiddleware, validate_http_proxy_callback_return
from ray.serve._private.utils import call_function_from_import_path
from starlette.responses import PlainTextResponse

from serve_app.access.proxy import CALLBACK, Numbering


def test_serve_takes_the_callback() -> None:
    [middleware] = validate_http_proxy_callback_return(call_function_from_import_path(CALLBACK))
    assert middleware.cls is Numbering


async def test_serves_own_header_has_a_good_id_and_the_applications_are_nobodys_business() -> None:
    app = Numbering(RequestIdMiddleware(PlainTextResponse("served")))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client:
        for sent, echoed in (("mine", True), ("x" * 500, False)):
            [got] = (await client.get("/v1/models", headers={"x-request-id": sent})).headers.get_list("x-request-id")
            assert (got == sent) == echoed
            assert got
        assert (await client.get("/-/routes")).status_code == 404
        assert (await client.get("/-/healthz")).text == "served"
