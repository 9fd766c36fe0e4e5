"""What the engines and the ingress count can be read off a node as Prometheus reads it."""

from __future__ import annotations

import re
from functools import partial

import httpx2 as httpx
import pytest
import ray

from serve_app.application_names import CORE, draft_key
from serve_app.deployments.telemetry.vllm_names import ANSWER_HISTOGRAMS, ENGINE_COUNTS
from tests.eventually import PATIENCE, eventually
from tests.service.conftest import Service, chat

pytestmark = pytest.mark.cluster

ENDLESS = {"2": -100}  # bars the end-of-sequence token: a draft may need some of the answer to join


def exported(name: str, application: str, **tags: str) -> list[float]:
    """The value of every replica that has told any, and of every combination of other tags than those given."""
    [node] = ray.nodes()
    text = httpx.get(f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics", timeout=PATIENCE).text
    wanted = {"application": application} | tags
    lines = re.findall(rf"^ray_{name}{{([^}}]*)}} (\S+)$", text, re.MULTILINE)
    return [float(value) for labels, value in lines if wanted.items() <= set(re.findall(r'(\w+)="([^"]*)"', labels))]


def reaches(name: str, application: str, least: float, **tags: str) -> None:
    """Ray reports every ten seconds."""
    values = partial(exported, name, application, **tags)
    eventually(lambda: sum(values()) >= least, f"{name} {tags} reaches {least}", seen=values)


@pytest.mark.soak
def test_what_engines_and_the_ingress_count_is_exported(service: Service) -> None:
    task = service.tasks[0]
    service.answer(
        chat("What is 3 + 4?", max_tokens=20, seed=1) | {"speculation": {"task": task, "num_speculative_tokens": 4}}
    )
    counts, drafted = service.verifier(), service.drafts(task)["drafted"]
    assert counts["tokens"] > 0
    assert drafted > 0
    for name in ("tokens", "steps", "stepping_us"):
        reaches(f"taskspec_verifier_{name}_total", CORE, counts[name])
    reaches("taskspec_ingress_generations_total", CORE, service.ingress()["generations"])
    reaches("taskspec_traces_written_total", CORE, 1)
    pool = service.served.pool(task)
    reaches("taskspec_draft_drafted_total", pool, drafted)
    eventually(lambda: exported("taskspec_draft_sessions", pool) == [0.0], "the pool has no session")


def test_tokens_and_times_of_answers_are_exported_by_task_version_and_source(service: Service) -> None:
    task, version = service.tasks[0], service.served.version
    assert version is not None
    answer = service.answer(
        chat("Write about the sea.", max_tokens=200, logit_bias=ENDLESS, seed=2)
        | {"speculation": {"task": task, "num_speculative_tokens": 4}}
    )
    usage = answer["usage"]
    drafted = usage["speculation"]["sources"]["draft"]
    assert drafted["accepted"] > 0
    of_task = {"task": draft_key(task).task, "version": version}

    def told(name: str, least: float, **tags: str) -> None:
        reaches(f"taskspec_answer_{name}", CORE, least, **of_task, **tags)

    told("proposed_total", drafted["proposed"], source="draft")
    told("accepted_total", drafted["accepted"], source="draft")
    told("tokens_total", drafted["accepted"] + 1, source="draft")
    for seconds in ("time_to_first_token_seconds", "time_per_token_seconds", "seconds"):
        told(f"{seconds}_count", 1)
        told(f"{seconds}_bucket", 1, le="+Inf")
        assert sum(exported(f"taskspec_answer_{seconds}_sum", CORE, **of_task)) > 0
    assert exported("taskspec_answer_tokens_total", CORE, **of_task | {"version": "another"}) == []


def test_engines_and_answers_are_told_under_the_names_of_vllm(service: Service) -> None:
    answer = service.answer(
        chat("Write about the hills.", max_tokens=200, logit_bias=ENDLESS, seed=3)
        | {"speculation": {"task": service.tasks[0], "num_speculative_tokens": 4}}
    )
    [choice], counts = answer["choices"], service.verifier()
    assert answer["usage"]["speculation"]["sources"]["draft"]["accepted"] > 0

    def told(name: str, least: float = 1, **tags: str) -> None:
        reaches(f"vllm_{name}", CORE, least, model_name=service.config.name, engine="0", **tags)

    told("request_success_total", finished_reason=choice["finish_reason"])
    for name in ANSWER_HISTOGRAMS:
        told(f"{name}_bucket", le="+Inf")
        told(f"{name}_count")
    for name, count in ENGINE_COUNTS.items():
        told(f"{name}_total", counts[count])
    told("spec_decode_num_drafts_total")
    told("spec_decode_num_accepted_tokens_per_pos_total", position="0")
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert set(exported(f"vllm_{name}", CORE, model_name=service.config.name)) == {0.0}
    reaches("taskspec_http_responses_total", CORE, 1, key_name="-", method="POST", status="200")
    assert exported("taskspec_verifier_free_pages", CORE)[0] > 0
