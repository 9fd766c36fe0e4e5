"""A service of the shipped family with two draft pools that Serve scales, asked by as many clients as are wanted.

Its passes take 20 ms more, as a larger target's do, so that drafts pay. Its clients name the task. The caches of both
drafts can be filled with another text, and then nothing that they propose is right.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import httpx2 as httpx
import pytest
import ray
from ray import serve
from ray.serve._private.common import DeploymentID

from core.draft_key import GENERAL
from serve_app.config import Actors, Pool, load_config
from serve_app.deployments.deploy import applications, bundle_applications
from serve_app.deployments.models.served_models import ServedModels, with_bundle
from serve_app.local_cluster import free_port
from serve_app.operations import service_status
from serve_app.ray_private import controller, on_loopback
from tests.family.corpora import items
from tests.service import breakable, unhurried_verifier

KEPT, ENDED = "math", "python"  # tasks: the pool of the first keeps one replica, that of the second none
MOST = 3
SCALING: Mapping[str, Any] = {  # Serve's defaults are minutes
    "max_replicas": MOST,
    "target_ongoing_requests": 4,
    "look_back_period_s": 4.0,
    "upscale_delay_s": 2.0,
    "downscale_delay_s": 6.0,
    "metrics_interval_s": 1.0,
}
SERVES_OWN = {"policy_function": "ray.serve.autoscaling_policy:replica_queue_length_autoscaling_policy"}
POLICIES: Mapping[str, Mapping[str, Any]] = {"ours": {}, "serve": {"policy": SERVES_OWN}}
PATIENCE = 240.0  # seconds for an answer
EACH = 16  # prompts of a task
TOKENS = 320  # of an answer: drafts that cease to pay have sessions for a while
ENDLESS = {"2": -100}  # bars the end-of-sequence token
_EVERY = 0.5  # seconds between looks


class Look(NamedTuple):
    """A pool at a moment: replicas that should run, and that do."""

    target: int
    running: int


class Step(NamedTuple):
    """What was awaited: the seconds it took, None if it did not come; and meanwhile by pool the mean replicas."""

    seconds: float | None
    replicas: dict[str, float]
    drafted: dict[str, int]  # answers, by task, that a draft proposed to


class ScaledService:
    """The running service, its clients, and the tokens of every prompt's answers."""

    def __init__(self, url: str, model: str, breaker: Path) -> None:
        self._url, self._model, self._breaker = url, model, breaker
        self._prompts = {task: [item.prompt for item in items(task, EACH, seed=23)] for task in (KEPT, ENDED)}
        self._answers: dict[tuple[str, int], set[tuple[int, ...]]] = {}
        self._clients: dict[str, list[asyncio.Task[None]]] = {KEPT: [], ENDED: []}
        self._drafted: dict[str, int] = {KEPT: 0, ENDED: 0}
        self._turn = 0

    def ask(self, clients: Mapping[str, int]) -> None:
        """From now on so many clients ask all the time, by task."""
        for task, running in self._clients.items():
            number = clients.get(task, 0)
            for client in running[number:]:
                client.cancel()
            running[number:] = [asyncio.create_task(self._client(task)) for _ in range(number - len(running))]

    def spoil(self) -> None:
        """From now on nothing that a draft proposes is right."""
        self._breaker.write_text(breakable.USELESS)

    def mend(self) -> None:
        self._breaker.unlink()

    async def until(self, holds: Callable[[Mapping[str, Look]], bool], seconds: float) -> Step:
        """Wait until something holds of the pools, at most so long. A client that fails ends the wait."""
        began, looks, drafted = time.monotonic(), list[Mapping[str, Look]](), dict(self._drafted)
        reached = False
        while not reached and time.monotonic() - began < seconds:
            looks.append(await asyncio.to_thread(_look))
            reached = holds(looks[-1])
            for client in (client for running in self._clients.values() for client in running if client.done()):
                client.result()
            await asyncio.sleep(_EVERY)
        mean = {task: sum(look[task].running for look in looks) / len(looks) for task in (KEPT, ENDED)}
        more = {task: number - drafted[task] for task, number in self._drafted.items()}
        return Step(time.monotonic() - began if reached else None, mean, more)

    def recorded(self, task: str) -> Mapping[str, Sequence[Any]]:
        """What Serve's controller has of the task's replicas, by the name that they gave it."""
        name = next(part.application for part in service_status().parts if part.name == task)
        found = controller()._get_metrics_for_deployment_for_testing.remote(DeploymentID("DraftPool", name))
        return dict(ray.get(found))

    async def unequal(self) -> tuple[int, int]:
        """Of how many prompts an answer was not that of plain decoding, and the number of prompts."""
        async with self._http() as http:
            plain = {asked: await self._answer(http, *asked, {"enabled": False}) for asked in self._answers}
        return sum(tokens != {plain[asked]} for asked, tokens in self._answers.items()), len(plain)

    async def _client(self, task: str) -> None:
        async with self._http() as http:
            while True:
                self._turn += 1
                number = self._turn % EACH
                tokens = await self._answer(http, task, number, {"task": task})
                self._answers.setdefault((task, number), set()).add(tokens)

    async def _answer(
        self, http: httpx.AsyncClient, task: str, number: int, speculation: Mapping[str, Any]
    ) -> tuple[int, ...]:
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": self._prompts[task][number]}],
            "max_tokens": TOKENS,
            "logit_bias": ENDLESS,
            "seed": number,
            "temperature": number % 2,
            "speculation": speculation,
        }
        response = await http.post("/v1/chat/completions", json=body)
        assert response.status_code == httpx.codes.OK, response.text
        answer = response.json()
        self._drafted[task] += "draft" in answer["usage"]["speculation"]["sources"]
        return tuple(answer["choices"][0]["token_ids"])

    def _http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self._url, timeout=PATIENCE, trust_env=False)


@contextmanager
def scaled_service(policy: str) -> Iterator[ScaledService]:
    """On a Ray of its own, on loopback; all of it ends with the block."""
    port = free_port("127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="ts") as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))  # replicas import the tests' deployments from here
        patch.setenv("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60")  # on a busy machine
        patch.setenv(unhurried_verifier.GATE, str(Path(directory) / "gate"))
        patch.setenv(breakable.BREAKER, str(Path(directory) / "breaker"))
        patch.setattr(applications, "TargetVerifier", unhurried_verifier.TargetVerifier)
        patch.setattr(bundle_applications, "DraftPool", breakable.DraftPool)
        served = _served(policy)
        with on_loopback():
            ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, _temp_dir=directory)
        try:
            serve.start(http_options={"host": "127.0.0.1", "port": port})
            serve.run_many(applications.targets(served))
            yield ScaledService(f"http://127.0.0.1:{port}", served.config.name, Path(directory) / "breaker")
        finally:
            serve.shutdown()
            ray.shutdown()


def _served(policy: str) -> ServedModels:
    family = load_config("family")
    target = family.target.model_copy(update={"decoder": "auto"})

    def pool(fewest: int) -> Pool:
        return Pool(actors=Actors(autoscaling={**SCALING, "min_replicas": fewest, **POLICIES[policy]}))

    shipped = with_bundle(family.model_copy(update={"target": target}))
    config = shipped.config.model_copy(update={"pools": {KEPT: pool(1), ENDED: pool(0)}})
    mixed = shipped.controls["mixed"]
    drafts = {GENERAL: shipped.drafts[GENERAL], KEPT: mixed, ENDED: _of(shipped.drafts, ENDED)}
    return replace(shipped, config=config, router=None, drafts=drafts)


def _of(drafts: Mapping[str, str | None], task: str) -> str | None:
    """The draft of the task that the bundle names after it."""
    return next(directory for name, directory in drafts.items() if name.startswith(task))


def _look() -> Mapping[str, Look]:
    parts: Sequence[Any] = service_status().parts
    return {part.name: Look(part.target, part.running) for part in parts if part.name in (KEPT, ENDED)}
