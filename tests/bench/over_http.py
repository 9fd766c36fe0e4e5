"""The same target and drafts behind HTTP: the whole service on a Ray of its own, asked as a client asks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from core.draft_key import GENERAL as SERVED_GENERAL
from serve_app.client import OFF, Client
from serve_app.config import load_config
from serve_app.deployments.models.served_models import ServedModels, with_bundle, with_controls
from serve_app.hosting import local_service
from serve_app.local_cluster import free_port
from tests.bench.engines import Answered
from tests.bench.items import GENERAL_SLOT, Item

LOOPBACK = "127.0.0.1"


class Service:
    """Asks a running service one question at a time, always on the same loop and connection."""

    def __init__(self, url: str, model: str, pools: dict[str, str], max_tokens: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = Client(f"{url}/v1")
        self._model = model
        self._pools = pools
        self._max_tokens = max_tokens

    def answer(self, item: Item, draft: str | None, temperature: float) -> Answered:
        """`draft` is the label of one; None switches speculation off."""
        speculation = OFF if draft is None else {"task": self._pools.get(draft, draft)}
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": item.prompt}],
            "temperature": temperature,
            "seed": item.number,
            "max_tokens": self._max_tokens,
            "speculation": dict(speculation),
        }
        began = time.perf_counter()
        answer = self._loop.run_until_complete(self._client.ask(body))
        seconds, first = time.perf_counter() - began, answer.arrivals[0] - began
        return Answered(tuple(answer.tokens), seconds, first, len(answer.runs) - 1, answer.proposed, answer.accepted)


@contextmanager
def service(target: Path, length: int, max_tokens: int, threads: int) -> Iterator[Service]:
    """The family's service with another target of the same answers."""
    served, pools = as_served(target, length, threads)
    with local_service(served, LOOPBACK, free_port(LOOPBACK), Console(stderr=True)) as running:
        yield Service(running.url, served.config.name, pools, max_tokens)


def as_served(target: Path, length: int, threads: int) -> tuple[ServedModels, dict[str, str]]:
    """What that service is made of, and the pool of each draft by its label."""
    bundled = with_bundle(load_config("family"))
    served, pools = with_controls(bundled, [*bundled.controls])
    verifier = served.config.target.model_copy(update={"model": str(target), "threads": threads, "decoder": "auto"})
    draft = served.config.draft.model_copy(update={"num_speculative_tokens": length})
    config = served.config.model_copy(update={"target": verifier, "draft": draft})
    shared = {GENERAL_SLOT, *bundled.acceptance} - served.drafts.keys()  # tasks that the general slot serves best
    return replace(served, config=config), pools | dict.fromkeys(shared, SERVED_GENERAL)
