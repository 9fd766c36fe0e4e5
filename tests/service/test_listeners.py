"""A service on loopback is reached from nowhere else: not its HTTP port alone, all that its processes listen on."""

from __future__ import annotations

import httpx2 as httpx
import psutil
import pytest

from tests.serve_app.listeners import listeners
from tests.service.conftest import Service, chat

pytestmark = pytest.mark.cluster

PARTS = ("gcs_server", "raylet", "ServeController", "ProxyActor", "TargetVerifier", "SpeculativeIngress", "DraftPool")


def test_every_process_of_a_service_listens_on_loopback_only(service: Service) -> None:
    service.answer(chat("What is 3 + 4?", max_tokens=4, seed=1))
    found = listeners(psutil.Process().children(recursive=True))
    assert [one for one in found if not one.on_loopback] == []
    assert [part for part in PARTS if not any(part in one.process for one in found)] == []
    assert httpx.URL(service.url).port in {one.port for one in found}
