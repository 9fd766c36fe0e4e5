"""Ways to speak to the HTTP face in one process: an HTTP client, the official one, and a bare connection."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import openai
from fastapi import FastAPI

from serve_app.api.app import create_app
from serve_app.http.service import Service
from tests.eventually import PATIENCE, eventually_async

JSON = {"content-type": "application/json"}
# An offer of HTTP/2, as Java's client makes it.
H2C = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"


def http_client(service: Service) -> httpx2.AsyncClient:
    # As behind a real server, what the application raises after its 500 is not the client's to see.
    transport = httpx2.ASGITransport(create_app(service), raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url="http://service")


def openai_client(service: Service) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        api_key="none", base_url="http://service/v1", max_retries=0, http_client=http_client(service)
    )


def events(body: str) -> list[Any]:
    """The JSON of every server-sent event, "[DONE]" as it stands."""
    lines = [block.removeprefix("data: ") for block in body.split("\n\n") if block]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


async def raw_post(port: int, path: str, body: bytes, headers: str = "", version: str = "1.1") -> tuple[str, str]:
    """Head (in small letters) and body of the answer to a request that is written as it stands."""
    head = f"POST {path} HTTP/{version}\r\nHost: service\r\nContent-Type: application/json\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"{head}Content-Length: {len(body)}\r\n{headers}\r\n".encode() + body)
        async with asyncio.timeout(PATIENCE):
            answer_head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            if "content-length: " in answer_head:
                size = int(answer_head.partition("content-length: ")[2].partition("\r\n")[0])
                return answer_head, (await reader.readexactly(size)).decode()
            return answer_head, (await reader.read()).decode()
    finally:
        writer.close()


class Connection:
    """One request over bare ASGI, so that a test sees each message as it is sent, and can hang up."""

    def __init__(self, app: FastAPI, path: str, body: dict[str, Any], spec_version: str = "2.3") -> None:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": spec_version},
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in JSON.items()],
        }
        self.sent: list[Any] = []
        self._incoming: asyncio.Queue[Any] = asyncio.Queue()
        self._incoming.put_nowait({"type": "http.request", "body": json.dumps(body).encode(), "more_body": False})
        self._gone = False
        self._raises = spec_version == "2.4"  # from then on servers tell of a lost connection so
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    @property
    def text(self) -> str:
        return b"".join(message.get("body", b"") for message in self.sent).decode()

    def hang_up(self) -> None:
        self._gone = True
        self._incoming.put_nowait({"type": "http.disconnect"})

    async def until(self, text: str) -> None:
        """Wait until `text` has been sent."""
        await eventually_async(lambda: text in self.text or self.task.done(), repr(text), seen=lambda: self.text)
        assert text in self.text, f"it ended without {text!r}: {self.text}"

    async def ended(self) -> None:
        """Wait until the application has done with it."""
        await asyncio.wait_for(self.task, PATIENCE)

    async def _receive(self) -> Any:
        return await self._incoming.get()

    async def _send(self, message: Any) -> None:
        if not self._gone:
            self.sent.append(message)
        elif self._raises:
            raise OSError("the connection is gone")
