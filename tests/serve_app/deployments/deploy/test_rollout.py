"""New bundles come and go in a running service: no answer fails or changes, and a worse bundle is rolled back."""

from __future__ import annotations

import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import NamedTuple

import httpx2 as httpx
import psutil  # type: ignore[import-untyped]
import pytest
import ray
from ray import serve
from safetensors.torch import load_file, save_file

from core.bundle.store import Bundle, Winner, live_version, open_live, publish
from core.draft_key import GENERAL
from core.errors import ConfigError
from core.family import BUNDLE_DIR
from core.rollout.trial import ALL, FEWEST
from serve_app.config import RolloutSettings, load_config
from serve_app.deployments.deploy import applications, deploy_service
from serve_app.deployments.models.served_models import with_bundle
from serve_app.deployments.telemetry.reports import RolloutReport
from serve_app.local_cluster import free_port
from serve_app.operations import NoService, deploy_bundle, rollout_report
from serve_app.ray_private import on_loopback
from tests.family.corpora import TASKS, items

pytestmark = [pytest.mark.cluster, pytest.mark.soak]  # two minutes, and five for the 20 bundles

CONCURRENCY = 6
PATIENCE = 300.0  # seconds for something that must come true, on a slow machine: a trial is 150 answers


class Root(NamedTuple):
    """A directory of bundles that are made of the shipped one's parts."""

    path: Path
    shipped: Bundle

    def publish(self, drafts: dict[str, Path | None], *, live: bool) -> str:
        """A bundle whose slots have these drafts; its version."""
        manifest = self.shipped.manifest
        winners = {
            task: Winner(directory=directory, decision="task", reason="for the test")
            for task, directory in drafts.items()
        }
        return publish(
            self.path,
            winners,
            router=self.shipped.router,
            target=manifest.target,
            draft=manifest.draft,
            id_map=manifest.id_map,
            controls={"base": self.shipped.control("base")},
            acceptance={task: manifest.acceptance[task] for task in drafts},
            live=live,
        ).version

    def nearly(self, directory: Path, place: Path, factor: float) -> Path:
        """An adapter as good as that in `directory`, of other bytes: its weights times this factor, about 1."""
        place.mkdir()
        for file in directory.iterdir():
            if file.suffix == ".safetensors":
                save_file({name: weight * factor for name, weight in load_file(file).items()}, place / file.name)
            else:
                (place / file.name).write_bytes(file.read_bytes())
        return place


class Running(NamedTuple):
    """The service, its bundles, and the answers that it must give."""

    url: str
    root: Root
    task: str
    own: dict[str, Path | None]
    bodies: list[dict[str, object]]
    expected: list[list[int]]

    @contextmanager
    def answering(self, lost: list[str] | None = None) -> Iterator[Callable[[], int]]:
        """Ask all the time; yields the number of answers so far. Afterwards all that arrived were the expected.

        What does not arrive is put into `lost`, or an error if there is none.
        """
        over, answers = Event(), list[tuple[int, list[int]]]()
        with ThreadPoolExecutor(1) as thread:
            asking = thread.submit(asyncio.run, ask(self.url, self.bodies, over, answers, lost=lost))
            try:
                yield lambda: len(answers)
            finally:
                over.set()
            asking.result()
        assert answers
        assert all(tokens == self.expected[number] for number, tokens in answers)

    def with_canary(self, place: Path, factor: float) -> str:
        """Give a quarter of the prompts to a bundle whose draft of the task is nearly the present one; its version."""
        own = self.own[self.task]
        assert own is not None
        before = eventually(lambda report: report.state == "steady" and judged(report)).version
        version = self.root.publish(self.own | {self.task: self.root.nearly(own, place, factor)}, live=False)
        deploy_bundle(version, 0.25, force=False)
        report = eventually(lambda report: report.candidate == version and report.state != "starting")
        assert (report.version, report.state) == (before, "canary")
        return version


async def ask(
    url: str,
    bodies: list[dict[str, object]],
    over: Event,
    answers: list[tuple[int, list[int]]],
    most: int | None = None,
    lost: list[str] | None = None,
) -> None:
    """Ask the bodies in turn, some at a time, until it is over. What is no answer goes to `lost`, if there is one."""
    turns = iter(range(most)) if most is not None else itertools.count()
    async with httpx.AsyncClient(base_url=url, timeout=120, trust_env=False) as client:

        async def client_after_client() -> None:
            for turn in turns:
                if over.is_set():
                    return
                number = turn % len(bodies)
                try:
                    response = await client.post("/v1/chat/completions", json=bodies[number])
                    assert response.status_code == 200, response.text
                except (AssertionError, httpx.TransportError) as failure:
                    if lost is None:
                        raise
                    lost.append(repr(failure))
                    await asyncio.sleep(0.2)
                else:
                    answers.append((number, response.json()["choices"][0]["token_ids"]))

        await asyncio.gather(*(client_after_client() for _ in range(CONCURRENCY)))


def eventually(holds: Callable[[RolloutReport], bool]) -> RolloutReport:
    """Wait until it holds of the rollout's report."""
    deadline, found = time.monotonic() + PATIENCE, None
    while time.monotonic() < deadline:
        with suppress(NoService):  # it was killed
            if holds(found := rollout_report()):
                return found
        time.sleep(0.2)
    raise AssertionError(found)


def judged(report: RolloutReport) -> bool:
    """Whether there is a reference."""
    return ALL in report.records and report.records[ALL].answers >= FEWEST


def pools() -> set[str]:
    return {name for name in serve.status().applications if name.startswith("draft-")}


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """A service of the family that follows its directory; one task has a draft of its own."""
    shipped = open_live(BUNDLE_DIR).bundle
    assert shipped is not None
    assert shipped.router is not None
    manifest = shipped.manifest
    general = shipped.directory(GENERAL)
    [task, *_] = [task for task in manifest.slots if shipped.directory(task) != general]
    port = free_port("127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="ts") as directory:
        root = Root(Path(directory) / "bundles", shipped)
        own = {GENERAL: general, task: shipped.directory(task)}
        root.publish(own, live=True)
        rollout = RolloutSettings(every_s=0.5, canary_answers=40, trial_answers=150)
        config = load_config("family").model_copy(update={"bundle": str(root.path), "rollout": rollout})
        with on_loopback():
            ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, _temp_dir=directory)
        try:
            for _ in deploy_service.run(applications.targets(with_bundle(config)), "127.0.0.1", port):
                pass
            url = f"http://127.0.0.1:{port}"
            prompts = [item.prompt for task in TASKS for item in items(task, 4, 7, split="held_out")]
            bodies: list[dict[str, object]] = [
                {
                    "model": config.name,
                    "messages": [{"role": "user", "content": prompt}],
                    "max_tokens": 48,
                    "seed": number,
                    "temperature": number % 2,
                }
                for number, prompt in enumerate(prompts)
            ]
            plain = [body | {"speculation": {"enabled": False}} for body in bodies]
            answers = list[tuple[int, list[int]]]()
            asyncio.run(ask(url, plain, Event(), answers, most=len(plain)))
            yield Running(url, root, task, own, bodies, [tokens for _, tokens in sorted(answers)])
        finally:
            serve.shutdown()
            ray.shutdown()


def test_what_training_publishes_is_taken_up_while_answers_stream(running: Running, tmp_path: Path) -> None:
    """Its new draft takes over, and the one before ends."""
    before, own = pools(), running.own[running.task]
    assert own is not None
    with running.answering() as answered:
        first = eventually(judged).version
        assert first is not None
        version = running.root.publish(
            running.own | {running.task: running.root.nearly(own, tmp_path / "own", 1.02)}, live=True
        )
        report = eventually(lambda report: report.version == version)
        assert (report.candidate, report.state, ALL in report.references) == (None, "trial", True)
        served = answered()
        eventually(lambda report: report.state == "steady" and not before <= pools())
        assert answered() > served
        after = pools()
        deploy_bundle(first, 0.0, force=False)  # by hand to what was live before
        report = eventually(lambda report: report.version == first and judged(report))
        assert (report.state, report.references) == ("steady", {})
    assert len(before - after) == len(after - before) == 1  # the other is the same draft


def test_a_worse_bundle_is_rolled_back_and_blocked(running: Running) -> None:
    """Prompts of most tasks get the draft that has learnt nothing of the target."""
    with running.answering() as answered:
        good = eventually(lambda report: report.state == "steady" and judged(report)).version
        worse = running.root.publish(running.own | {GENERAL: None}, live=False)
        deploy_bundle(worse, 0.0, force=False)
        eventually(lambda report: report.version == worse)
        began = answered()
        report = eventually(lambda report: (report.version, report.state) == (good, "steady"))
        took = answered() - began
        assert took < 300
        sys.stdout.write(f"{took} answers until it had rolled back: {report.last}\n")
        assert worse in report.blocked
        assert "was rolled back" in report.last
        assert live_version(running.root.path) == good
        with pytest.raises(ConfigError, match="is blocked: drafts had"):
            deploy_bundle(worse, 0.0, force=False)


def test_a_canary_gets_its_share_and_then_every_prompt_whatever_is_killed(running: Running, tmp_path: Path) -> None:
    """The rollout is lost, then Serve's controller, then a draft pool."""
    with running.answering():
        version = running.with_canary(tmp_path / "own", 0.98)
        for victim in ("Rollout", "ServeController", "DraftPool"):
            kill(victim)
        eventually(lambda report: report.version == version)
    assert live_version(running.root.path) == version


def test_a_canary_outlives_the_ingress(running: Running, tmp_path: Path) -> None:
    """There is one: what it was answering is lost with it, and nothing else."""
    lost = list[str]()
    with running.answering(lost) as answered:
        version = running.with_canary(tmp_path / "own", 1.01)
        kill("SpeculativeIngress")
        served = answered()
        eventually(lambda report: report.version == version)
        assert answered() > served
    assert live_version(running.root.path) == version
    assert 1 <= len(lost) <= CONCURRENCY, lost


def test_of_20_bundles_that_are_as_good_none_is_rolled_back(running: Running, tmp_path: Path) -> None:
    """Each is on trial for 150 answers, and the reference of the next."""
    own = running.own[running.task]
    assert own is not None
    with running.answering():
        eventually(judged)
        for number in range(20):
            draft = running.root.nearly(own, tmp_path / str(number), 0.95 + 0.005 * number)
            version = running.root.publish(running.own | {running.task: draft}, live=False)
            deploy_bundle(version, 0.0, force=False)
            eventually(lambda report, version=version: (report.version, report.state) == (version, "steady"))  # type: ignore[misc]
            assert version not in rollout_report().blocked


def kill(part: str) -> None:
    """SIGKILL for a process of this part of the service: a worker of the Ray that this process started."""
    workers = psutil.Process().children(recursive=True)
    next(worker for worker in workers if worker.name().startswith("ray::") and part in worker.name()).kill()
