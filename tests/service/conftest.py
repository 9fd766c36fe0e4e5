"""One service for all tests in this folder: real replicas in processes of their own, real HTTP on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import httpx2 as httpx
import pytest
import ray
from ray import serve
from ray.serve import RunTarget
from ray.util import list_named_actors

from core.draft_key import GENERAL
from core.tasks.classifier import TaskClassifier
from serve_app.application_names import CORE, DRAFT_CHECK, draft_key, pool_application
from serve_app.config import ServiceConfig, Traces, load_config
from serve_app.deployments.deploy import applications, bundle_applications
from serve_app.deployments.deploy.applications import core_application, targets
from serve_app.deployments.deploy.bundle_applications import bundle_targets
from serve_app.deployments.models.served_models import ServedModels, with_bundle
from serve_app.local_cluster import free_port
from serve_app.ray_private import on_loopback
from tests.eventually import PATIENCE, eventually
from tests.family.corpora import TASKS, Item, items
from tests.service import adversarial, breakable, eager_check, misled_router, unhurried_verifier
from tests.service.misled_router import ASTRAY

ADVERSARIAL = "adversarial"
LATE = "late"  # known, but its pool is not deployed when the service starts
CONCURRENCY = 8
TARGET = "TASKSPEC_TEST_TARGET"  # an environment variable: what the target has otherwise, as JSON; see `make vllm`
Body = dict[str, Any]


class Service(NamedTuple):
    """The running service, over HTTP and, to read its counters, over Serve handles; `directory` is its Ray's."""

    url: str
    served: ServedModels
    directory: Path

    @property
    def config(self) -> ServiceConfig:
        return self.served.config

    @property
    def tasks(self) -> list[str]:
        """The tasks with pools of real drafts: one of the router's, and the one that it is misled to."""
        return [task for task in self.served.drafts if task not in (GENERAL, ADVERSARIAL, LATE)]

    def answer(self, body: Body) -> Body:
        """One chat completion."""
        return self.answers([body])[0]

    def answers(self, bodies: Sequence[Body]) -> list[Body]:
        """Chat completions, a few at a time, in the order asked."""
        return asyncio.run(self._answers(bodies))

    async def _answers(self, bodies: Sequence[Body]) -> list[Body]:
        gate = asyncio.Semaphore(CONCURRENCY)
        async with self.client() as client:

            async def one(body: Body) -> Body:
                async with gate:
                    response = await client.post("/v1/chat/completions", json={"model": self.config.name} | body)
                    assert response.status_code == 200, response.text
                    answer: Body = response.json()
                    return answer

            return list(await asyncio.gather(*map(one, bodies)))

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, timeout=120)

    def verifier(self) -> Counter[str]:
        return _counts("TargetVerifier", CORE)

    def ingress(self) -> Counter[str]:
        return _counts("SpeculativeIngress", CORE)

    def drafts(self, task: str) -> Counter[str]:
        return _counts("DraftPool", self.served.pool(task))

    def pool_replicas(self, task: str) -> set[str]:
        """The names of the actors that serve the task's drafts."""
        names = {actor["name"] for actor in list_named_actors(all_namespaces=True)}
        return {name for name in names if f"::{self.served.pool(task)}#" in name}

    def ingress_log(self) -> list[str]:
        """The lines of the ingress in Serve's log, but those of its access log."""
        [log] = (self.directory / "session_latest/logs/serve").glob("replica_taskspec_SpeculativeIngress_*.log")
        return [line for line in log.read_text().splitlines() if not re.search(r"-- (GET|POST) /", line)]

    @property
    def gate(self) -> Path:
        """While this file exists, no verifier starts."""
        return gate_in(self.directory)

    @property
    def breaker(self) -> Path:
        """While this file exists, what the pool of the first real task reads into its cache is another text."""
        return breaker_in(self.directory)

    def held(self) -> Counter[str]:
        """Sessions and pages held anywhere."""
        running = serve.status().applications
        tasks = [task for task in self.served.drafts if self.served.pool(task) in running]
        everything = [self.verifier(), *map(self.drafts, tasks)]
        return +Counter({name: sum(counts[name] for counts in everything) for name in ("sessions", "pages")})

    def frees_everything(self) -> None:
        """Wait until no session and no page is held anywhere."""
        eventually(lambda: not self.held(), "no session and no page is held", seen=self.held)


def _counts(deployment: str, application: str) -> Counter[str]:
    counts: Counter[str] = (
        serve.get_deployment_handle(deployment, application).counts.remote().result(timeout_s=PATIENCE)
    )
    return counts


def _as_tested(target: RunTarget, served: ServedModels) -> RunTarget:
    """As the tests' own classes have it: passes take long, the router can be misled, one pool's model knows nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(applications, "TargetVerifier", unhurried_verifier.TargetVerifier)
        patch.setattr(applications, "DraftCheck", eager_check.DraftCheck)
        patch.setattr(bundle_applications, "TaskRouter", misled_router.TaskRouter)
        patch.setattr(bundle_applications, "DraftPool", breakable.DraftPool)
        if target.name == DRAFT_CHECK:
            return next(each for each in applications.targets(served) if each.name == DRAFT_CHECK)
        if target.name == CORE:
            return RunTarget(core_application(served), CORE, "/", external_scaler_enabled=True)
        if target.name == pool_application(draft_key(ADVERSARIAL)):
            patch.setattr(bundle_applications, "DraftPool", adversarial.DraftPool)
        return next((one for one in bundle_targets(served) if one.name == target.name), target)


def _served(traces: Path) -> ServedModels:
    """The shipped bundle with fewer pools, and two of the tests' own; the target runs as larger ones do.

    Few may wait for it, so that a burst overfills it however quickly answers end. One of the router's tasks is served
    by the control `mixed`, since every pool is a process. The task that the router is misled to is served by the
    un-adapted draft, said to be good at nothing else: so a wrong route costs much.
    """
    family = load_config("family")
    changes = json.loads(os.environ.get(TARGET, "{}"))
    target = family.target.model_copy(update={"decoder": "auto", "max_queued": CONCURRENCY} | changes)
    recorded = Traces(directory=traces, flush_seconds=0.5)
    shipped = with_bundle(family.model_copy(update={"target": target, "traces": recorded}))
    assert shipped.router is not None
    found, task = shipped.acceptance[GENERAL], TaskClassifier.load(shipped.router).tasks[0]
    drafts = {GENERAL: shipped.drafts[GENERAL], task: shipped.controls["mixed"], ASTRAY: None}
    acceptance = {GENERAL: found, task: found, ASTRAY: dict.fromkeys(found, 0.1) | {ASTRAY: 0.95}}
    return replace(shipped, drafts=drafts | {ADVERSARIAL: None, LATE: None}, acceptance=acceptance)


def gate_in(directory: Path) -> Path:
    """See `Service.gate`."""
    return directory / "gate"


def breaker_in(directory: Path) -> Path:
    """See `Service.breaker`."""
    return directory / "breaker"


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])  # replicas import the adversarial pool from here
    port = free_port("127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="ts") as directory:
        os.environ["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"] = "60"  # on a busy machine
        os.environ[unhurried_verifier.GATE] = str(gate_in(Path(directory)))
        os.environ[breakable.BREAKER] = str(breaker_in(Path(directory)))
        served = _served(Path(directory) / "traces")
        with on_loopback():
            ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, _temp_dir=directory)
        try:
            serve.start(http_options={"host": "127.0.0.1", "port": port})
            late = pool_application(draft_key(LATE))
            serve.run_many([_as_tested(target, served) for target in targets(served) if target.name != late])
            yield Service(f"http://127.0.0.1:{port}", served, Path(directory))
        finally:
            serve.shutdown()
            ray.shutdown()


def prompts(count: int, seed: int) -> list[Item]:
    """Held-out prompts of every task in turn."""
    each = -(-count // len(TASKS))
    by_task = [items(task, each, seed, split="held_out") for task in TASKS]
    return [item for row in zip(*by_task, strict=True) for item in row][:count]


def chat(prompt: str, **fields: Any) -> Body:
    return {"messages": [{"role": "user", "content": prompt}]} | fields


def token_ids(answer: Body) -> list[list[int]]:
    return [choice["token_ids"] for choice in answer["choices"]]
