"""The whole service over a target of two ranks: drafts change nothing, and a rank that dies only takes time."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator

import psutil
import pytest

from tests.service.conftest import TARGET, Service
from tests.service.conftest import service as _service
from tests.service.test_exactness import MODES, PLAIN, bodies, proposed, visible, with_speculation
from tests.service.test_verifier_killed import answers_while_killing
from tests.service.test_verifier_killed import bodies as long_bodies

pytestmark = pytest.mark.cluster
service = _service
RANKS = {"decoder": "vllm", "vllm": {"tensor_parallel_size": 2, "enforce_eager": True}}


@pytest.fixture(scope="session", autouse=True)
def two_ranks() -> Iterator[None]:
    os.environ[TARGET] = json.dumps(RANKS)
    yield
    del os.environ[TARGET]


def other_ranks() -> list[psutil.Process]:
    """Of the verifiers of all services on this machine."""
    verifiers = [process for process in psutil.process_iter(["cmdline"]) if "TargetVerifier" in _command(process)]
    return [child for one in verifiers for child in one.children(recursive=True) if "spawn_main" in _command(child)]


def test_drafts_change_nothing_a_client_sees(service: Service) -> None:
    asked = bodies(20, max_tokens=60)
    plain = service.answers(with_speculation(asked, PLAIN))
    answers = service.answers(with_speculation(asked, MODES["k=4"]))
    assert len(other_ranks()) == 1
    assert proposed(answers) > 0
    assert list(map(visible, answers)) == list(map(visible, plain))


def test_a_rank_killed_mid_answer_changes_nothing(service: Service) -> None:
    asked = long_bodies()
    plain = service.answers([body | {"speculation": PLAIN} for body in asked])

    def kill_rank() -> None:
        [rank] = other_ranks()
        rank.send_signal(signal.SIGKILL)

    answers, streamed = asyncio.run(answers_while_killing(service, asked, kill_rank))
    assert list(map(visible, answers)) == list(map(visible, plain))
    assert streamed[0] == plain[1]["choices"][0]["message"]["content"]
    service.frees_everything()


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has ended
        return ""
