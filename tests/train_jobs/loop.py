"""The whole loop with real parts in five minutes: a service that knows two of three tasks gets prompts of all three.

A watch beside it finds the drift and retrains as a Ray Job; its bundle is shadowed, gets a share of the prompts, then
all. The first bundle is made here and not by a retraining, which would take two minutes more.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from core.bundle.store import Winner, publish
from core.distill.alignment import AlignmentRecipe, align
from core.distill.dataset import distil
from core.draft_key import GENERAL
from core.family import DRAFT_DIR
from core.tasks.clustering import find_tasks
from core.tasks.embedding import PACKAGED, sentence_encoder
from core.tasks.identity import TaskCentroids
from serve_app.local_cluster import running_services
from tests.core.family_records import TERMS, TOKENIZER, answered, requests, target
from tests.family.prompts import write_general
from tests.serve_app.command import Command
from tests.serve_app.traffic import Answer, Flow, Span, Traffic, prompts
from train_jobs.config import RetrainConfig, load_config
from train_jobs.stages.router import RouterData, fit_router
from train_jobs.watch.watch import run_config
from train_jobs.work.models import model_pair

KNOWN, NEW = ("english", "chinese"), "math"
ADAPTED = "english"  # has an adapter in the first bundle
ANSWERS = 180  # that a look compares, and that are learned from
CLIENTS = 4  # at a time; one while it retrains, since more leave that little of two cores
PLACES = ("work", "bundles", "traces")
BOUND = 900.0  # seconds for all that waits for traffic, of which a quiet machine takes a quarter


class Loop(NamedTuple):
    """What happened since the traffic changed, and the configuration of the retraining that followed.

    `before` ends when the new bundle is published, `after` begins when it has every prompt. `drift` is what the watch
    knew when it began to retrain; `shadow` and `status` are what these commands told, and `left` is what
    runs or lies about once Ctrl-C has ended service and watch.
    """

    config: RetrainConfig
    first: str
    version: str
    answers: list[Answer]
    plain: dict[int, list[int]]
    before: Span
    after: Span
    drift: dict[str, Any]
    shadow: dict[str, Any]
    status: dict[str, Any]
    left: list[str]


class Wait(NamedTuple):
    """For what has to come of the traffic, until `deadline`. It fails at once if the watch ends."""

    config: RetrainConfig
    watching: Command
    deadline: float

    def until(self, flow: Flow, holds: Callable[[], object], what: str) -> None:
        def holds_while_watched() -> object:
            if self.watching.process.poll() is not None:
                raise AssertionError("".join(self.watching.process.communicate(timeout=60)))
            return holds()

        try:
            flow.eventually(holds_while_watched, what, max(0.0, self.deadline - time.monotonic()))
        except AssertionError as error:
            error.add_note(f"The watch knows {_state(self.config)}")
            raise


def run(directory: Path) -> Loop:
    """Go once around."""
    places = {name: directory / name for name in PLACES}
    service, later = directory / "service.yaml", directory / "later.yaml"
    service.write_text(yaml.safe_dump(_service(places)))
    later.write_text(yaml.safe_dump(_later(places, write_general(directory / "general.jsonl", 100))))
    config = load_config(later)
    first = first_bundle(config, directory / "made")
    serving, watching = Command(directory, "serve", "--port", "0", "--config", str(service)), None
    try:
        url = serving.match(r"base_url: (\S+)/v1")
        [at] = [("--address", one.address) for one in running_services() if one.url == url]  # others may run here
        watching = Command(directory, "retrain", "--watch", "--config", str(later), *at)
        answers, root, wait = list[Answer](), places["bundles"], Wait(config, watching, time.monotonic() + BOUND)
        with Traffic(url, "loop", prompts(KNOWN, 100, 11), CLIENTS).flowing(answers) as flow:
            wait.until(flow, (config.work / "reference.json").exists, "there is a reference")
        traffic, drifted = Traffic(url, "loop", prompts((*KNOWN, NEW), 60, 12), CLIENTS), time.monotonic()
        with traffic.flowing(answers) as flow:
            wait.until(flow, lambda: _state(config).get("running"), "drift is found")
        drift = _state(config)
        with traffic._replace(clients=1).flowing(answers) as flow:
            wait.until(flow, lambda: _candidates(root, first), "a candidate is published")
            published, [version] = time.monotonic(), _candidates(root, first)
            since = ["--since", "1h", "--most", "80", "--config", str(service), "--json"]
            shadow = json.loads(_said(directory, "bundles", "shadow", version, *since))
        with traffic.flowing(answers) as flow:
            _said(directory, "bundles", "deploy", version, "--canary", "50%", *at)
            wait.until(flow, lambda: (root / "live").read_text().startswith(version), "every prompt has it")
            swapped = time.monotonic()
            time.sleep(10)
            status = json.loads(_said(directory, "status", "--json", *at))
            after = (swapped, time.monotonic())
        asked = {one.number for one in answers if one.at >= drifted}
        plain = traffic.plain_answers(asked)
        for command in (watching, serving):
            command.processes()
            command.process.send_signal(signal.SIGINT)
            command.process.communicate(timeout=120)
        left = [*watching.left(), *serving.left()]
    finally:
        for command in (watching, serving):
            if command is not None:
                command.kill()
    return Loop(
        config=run_config(config, config.work / "0001"),
        first=first,
        version=version,
        answers=[one for one in answers if one.at >= drifted],
        plain=plain,
        before=(drifted, published),
        after=after,
        drift=drift,
        shadow=shadow,
        status=status,
        left=left,
    )


def first_bundle(config: RetrainConfig, to: Path) -> str:
    """Publish a bundle of the known tasks, of which one has an adapter; its version."""
    traces = answered([one for task in KNOWN for one in requests(task, 60, 1, "train")])
    texts = [TOKENIZER.prompt_text(trace.prompt_ids) for trace in traces]
    embeddings = sentence_encoder(PACKAGED)(texts)
    partition = find_tasks(texts, embeddings, k=len(KNOWN), max_k=len(KNOWN))
    labels = partition.labels.tolist()
    fit_router(config, RouterData(partition, traces, labels, traces[::5]), to / "router", lambda *_: None)
    TaskCentroids.of(PACKAGED, partition.names, partition.labels, embeddings).save(to / "centroids")
    adapted = partition.names[labels[KNOWN.index(ADAPTED) * 60]]
    own = [trace for trace, label in zip(traces, labels, strict=True) if partition.names[label] == adapted]
    align(
        DRAFT_DIR,
        distil(target(), own[10:], top=64, context=1024),
        own[:10],
        TERMS,
        AlignmentRecipe(steps=20, evaluate_every=20, rank=8),
        checkpoint=to / "checkpoint.pt",
        destination=to / "adapter",
        on_step=lambda _: None,
    )
    slots = dict.fromkeys(
        (*partition.names, GENERAL), Winner(directory=None, decision=GENERAL, reason="nothing is better")
    )
    slots[adapted] = Winner(directory=to / "adapter", decision="task", reason="better")
    rates = dict.fromkeys(slots, 0.2)
    return publish(
        config.bundles,
        slots,
        router=to / "router",
        centroids=to / "centroids",
        acceptance=dict.fromkeys(slots, rates),
        **model_pair(config)._asdict(),
    ).version


def _service(places: dict[str, Path]) -> dict[str, Any]:
    """Passes take long, as a larger target's do, so that drafts pay."""
    return {
        "name": "loop",
        "target": {"model": "family:target", "threads": 1, "decoder": "torch"},
        "draft": {"model": "family:draft", "num_speculative_tokens": 6},
        "bundle": str(places["bundles"]),
        "traces": {"directory": str(places["traces"]), "flush_seconds": 1},
        "rollout": {"every_s": 0.5, "canary_answers": 30, "trial_answers": 150},
    }


def _later(places: dict[str, Path], general: Path) -> dict[str, Any]:
    answers = {"reference": ANSWERS, "recent": ANSWERS, "min_answers": ANSWERS}
    return {
        "target": {"model": "family:target"},
        "draft": "family:draft",
        "work": str(places["work"]),
        "bundles": str(places["bundles"]),
        "collect": {"traces": str(places["traces"]), "most": ANSWERS},
        "partition": {"embedder": PACKAGED, "max_k": 4},
        "align": {"base_steps": 0, "ranks": [8], "steps": 30, "evaluate_every": 30, "budget": 1024},
        "router": {"general": str(general), "steps": 60, "batch": 32, "longest": 24},
        "publish": {"live": False},
        "watch": {"every_s": 1} | answers,
    }


def _state(config: RetrainConfig) -> dict[str, Any]:
    """What the watch knows; nothing before its first look has ended."""
    file = config.work / "watch.json"
    state: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return state


def _candidates(root: Path, live: str) -> list[str]:
    return [file.stem for file in (root / "manifests").glob("*.json") if file.stem != live]


def _said(directory: Path, *words: str) -> str:
    """What a command prints; it succeeds."""
    command = Command(directory, *words)
    try:
        out, err = command.process.communicate(timeout=300)
        assert command.process.returncode == 0, err
        return out
    finally:
        command.kill()
