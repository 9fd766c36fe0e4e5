"""A console whose service is made up, behind the real guards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2 as httpx

from core.errors import ConfigError
from serve_app.access.guarding import Access, guarded
from serve_app.access.keys import Keys
from serve_app.config import Ingress
from serve_app.console.lookout import Snapshot
from tests.serve_app.scripted import ScriptedService

KEYS = [{"name": name, "requests": 3} for name in ("alice", "bob")]
URL = "http://127.0.0.1:8000"
LOCAL, REMOTE = ("127.0.0.1", 5000), ("10.1.2.3", 5000)


class FakeOperator:
    """Says what a test sets, and remembers what was asked of it."""

    def __init__(self) -> None:
        self.looks = 0
        self.lasts = False
        self.failure: Exception | None = None
        self.done: list[tuple[Any, ...]] = []

    def look(self) -> Snapshot:
        self.looks += 1
        if self.failure is not None:
            raise self.failure
        return Snapshot({"at": self.looks}, KEYS, last=self.lasts)

    def deploy(self, version: str, share: float, force: bool) -> str:
        if version == "none":
            raise ConfigError("bundle none is blocked")
        self.done.append(("deploy", version, share, force))
        return f"bundle {version}: its pools are starting"

    def scale(self, replicas: dict[str, int]) -> str:
        self.done.append(("scale", replicas))
        return "scaled"


def console_client(
    operator: FakeOperator | None,
    keys: Path | None = None,
    peer: tuple[str, int] = LOCAL,
    settings: Ingress | None = None,
    **headers: str,
) -> httpx.AsyncClient:
    """A client at `peer` of a service with that file of keys."""
    settings = settings or Ingress()
    access = Access.of(settings, None if keys is None else Keys(keys, {}))
    app = guarded(ScriptedService(), settings, access, operator)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=peer)
    return httpx.AsyncClient(transport=transport, base_url=URL, headers=headers)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}
