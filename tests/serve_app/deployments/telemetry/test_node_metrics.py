"""The metrics of several nodes as one text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse

from serve_app.deployments.telemetry import node_metrics
from serve_app.deployments.telemetry.node_metrics import cluster_metrics, merged
from serve_app.http.service import Overloaded
from serve_app.local_cluster import free_port
from tests.serve_app.live import live


def exported(node: str) -> str:
    return f"""# HELP ray_node_cpu_count Cores
# TYPE ray_node_cpu_count gauge
ray_node_cpu_count{{node="{node}"}} 2.0
# HELP ray_taskspec_verifier_tokens_total
# TYPE ray_taskspec_verifier_tokens_total counter
ray_taskspec_verifier_tokens_total{{node="{node}"}} 5.0
# HELP ray_serve_taskspec_like not ours
# TYPE ray_serve_taskspec_like gauge
ray_serve_taskspec_like{{of="ray_taskspec_"}} 1.0
# HELP ray_taskspec_answer_seconds how long
# TYPE ray_taskspec_answer_seconds histogram
ray_taskspec_answer_seconds_bucket{{le="+Inf",node="{node}"}} 1.0
ray_taskspec_answer_seconds_count{{node="{node}"}} 1.0
# HELP ray_vllm_num_requests_running of this service and of another on the same node
# TYPE ray_vllm_num_requests_running gauge
ray_vllm_num_requests_running{{application="taskspec",node="{node}"}} 2.0
ray_vllm_num_requests_running{{application="llm",node="{node}"}} 3.0
ray_vllm_num_requests_running{{node="{node}"}} 4.0
"""


def test_only_this_services_series_are_kept_those_of_a_name_together() -> None:
    assert merged([exported("a"), "", exported("b")]) == (
        "# HELP ray_taskspec_verifier_tokens_total\n"
        "# TYPE ray_taskspec_verifier_tokens_total counter\n"
        'ray_taskspec_verifier_tokens_total{node="a"} 5.0\n'
        'ray_taskspec_verifier_tokens_total{node="b"} 5.0\n'
        "# HELP ray_taskspec_answer_seconds how long\n"
        "# TYPE ray_taskspec_answer_seconds histogram\n"
        'ray_taskspec_answer_seconds_bucket{le="+Inf",node="a"} 1.0\n'
        'ray_taskspec_answer_seconds_count{node="a"} 1.0\n'
        'ray_taskspec_answer_seconds_bucket{le="+Inf",node="b"} 1.0\n'
        'ray_taskspec_answer_seconds_count{node="b"} 1.0\n'
        "# HELP ray_vllm_num_requests_running of this service and of another on the same node\n"
        "# TYPE ray_vllm_num_requests_running gauge\n"
        'ray_vllm_num_requests_running{application="taskspec",node="a"} 2.0\n'
        'ray_vllm_num_requests_running{application="taskspec",node="b"} 2.0\n'
    )


@contextmanager
def node(text: str, status: int = 200) -> Iterator[str]:
    app = FastAPI()
    app.add_api_route("/metrics", lambda: PlainTextResponse(text, status))
    with live(app) as url:
        yield url.removeprefix("http://")


async def test_nodes_that_do_not_answer_are_named_and_hold_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = f"127.0.0.1:{free_port('127.0.0.1')}"
    with node(exported("a")) as well, node("", 500) as ill:
        monkeypatch.setattr(node_metrics, "_addresses", lambda: [nobody, well, ill])
        text = await cluster_metrics()
    assert text == merged([exported("a")]) + f"# {nobody} does not answer\n# {ill} does not answer\n"


async def test_if_no_node_answers_it_is_told_where_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = f"127.0.0.1:{free_port('127.0.0.1')}"
    monkeypatch.setattr(node_metrics, "_addresses", lambda: [nobody])
    with pytest.raises(Overloaded, match=nobody) as refused:
        await cluster_metrics()
    assert refused.value.status == 503
