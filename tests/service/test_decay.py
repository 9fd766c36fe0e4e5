"""A draft that breaks in service is told from traffic that becomes harder, and is well again once it is restarted."""

from __future__ import annotations

import httpx2 as httpx
import pytest
from ray import serve

from core.replay.decay import FEWEST, MARGIN, WINDOW, DraftRecord
from serve_app.application_names import DRAFT_CHECK
from serve_app.cli.operations import facts
from serve_app.deployments.telemetry.service_status import as_object
from serve_app.operations import service_status, set_replicas
from tests.eventually import PATIENCE, eventually
from tests.family.corpora import items
from tests.service.conftest import Body, Service, chat, token_ids

pytestmark = pytest.mark.cluster

EASY, HARD = "math", "english"
AT_ONCE = 8


def asked(task: str, corpus: str, seed: int) -> list[Body]:
    prompts = [item.prompt for item in items(corpus, AT_ONCE, seed, "held_out")]
    speculation = {"task": task, "num_speculative_tokens": 4}
    return [
        chat(prompt, seed=AT_ONCE * seed + number, max_tokens=24, temperature=0.5, speculation=speculation)
        for number, prompt in enumerate(prompts)
    ]


def record(service: Service, task: str) -> DraftRecord | None:
    report = serve.get_deployment_handle("DraftCheck", DRAFT_CHECK).report.remote().result(timeout_s=PATIENCE)
    assert service.config.draft.device == "cpu"
    found: DraftRecord | None = report.records.get(task)
    return found


class Traffic:
    """Prompts of one task, new ones each time."""

    def __init__(self, service: Service, task: str) -> None:
        self._service = service
        self._task = task
        self._number = 0

    def send(self, corpus: str) -> None:
        self._service.answers(asked(self._task, corpus, self._number))
        self._number += 1

    def comes_to(self, corpus: str, decayed: bool, answers: int) -> bool:
        self.send(corpus)
        found = record(self._service, self._task)
        return found is not None and found.answers >= answers and found.decayed == decayed


def exported(service: Service, name: str, task: str) -> list[float]:
    text = httpx.get(f"{service.url}/metrics", timeout=PATIENCE).text
    lines = [line for line in text.splitlines() if line.startswith(f"ray_taskspec_replay_{name}{{")]
    return [float(line.split()[-1]) for line in lines if f'task="{task}"' in line]


def log(service: Service) -> str:
    files = (service.directory / "session_latest/logs/serve").glob(f"replica_{DRAFT_CHECK}_*.log")
    return "".join(file.read_text() for file in files)


def test_a_draft_that_breaks_in_service_is_told_from_harder_traffic(service: Service) -> None:
    task = service.tasks[0]
    traffic = Traffic(service, task)
    for corpus in (EASY, HARD):  # the traffic drifts, and nobody is alarmed
        eventually(
            lambda corpus=corpus: traffic.comes_to(corpus, decayed=False, answers=FEWEST), f"{corpus} is replayed"
        )
        assert abs(record(service, task).gap.value) < MARGIN
    assert not any("DECAYED" in line for line in facts(service_status()))
    assert "has decayed" not in log(service)
    assert set(exported(service, "decayed", task)) <= {0.0}

    service.breaker.touch()
    bodies = asked(task, HARD, 900)
    broken = [token_ids(answer) for answer in service.answers(bodies)]
    eventually(lambda: traffic.comes_to(HARD, decayed=True, answers=FEWEST), "the broken draft has decayed")
    eventually(lambda: 1.0 in exported(service, "decayed", task), "the metric says so")
    assert max(exported(service, "gap", task)) > MARGIN
    [line] = [line for line in facts(service_status()) if "DECAYED" in line]
    assert f"taskspec scale {task}=0" in line
    assert as_object(service_status())["drafts"][task]["decayed"]
    assert f"the draft of {task} has decayed" in log(service)

    service.breaker.unlink()
    assert broken == [token_ids(answer) for answer in service.answers(bodies)]  # it costs speed, and no token
    set_replicas({task: 0})
    eventually(lambda: not service.pool_replicas(task), "the replica has ended")
    set_replicas({task: 1})
    eventually(lambda: service.pool_replicas(task), "another one serves")
    eventually(lambda: traffic.comes_to(HARD, decayed=False, answers=WINDOW), "it is well again", 3 * PATIENCE)
    eventually(lambda: set(exported(service, "decayed", task)) == {0.0}, "the metric says so, too")
