"""A verifier replica dies while it answers: clients see a pause, and otherwise what they would have seen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
import ray
from ray.util import list_named_actors

from tests.eventually import eventually
from tests.service.conftest import Body, Service, chat, prompts
from tests.service.test_exactness import PLAIN, visible

pytestmark = [pytest.mark.cluster, pytest.mark.smoke]

ENDLESS = {"2": -100}  # bars the end-of-sequence token
LONG: dict[str, Any] = {"max_tokens": 500, "logit_bias": ENDLESS}
WAYS: list[Body] = [
    LONG | {"temperature": 1.0, "logprobs": True, "top_logprobs": 2},
    LONG | {"temperature": 0.7, "presence_penalty": 0.7, "frequency_penalty": 0.4},
    LONG | {"temperature": 1.0, "stop": ["never said \x00"]},
    {"max_tokens": 240, "temperature": 1.0, "n": 3},  # choices that have ended are not asked for again
]


def bodies() -> list[Body]:
    return [
        chat(item.prompt, seed=number) | way
        for number, (item, way) in enumerate(zip(prompts(len(WAYS), seed=17), WAYS, strict=True))
    ]


def test_verifier_killed_mid_answer_changes_nothing(service: Service) -> None:
    """Four whole answers and a streamed one are under way; none is lost, none of it comes twice."""
    asked = bodies()
    plain = service.answers([body | {"speculation": PLAIN} for body in asked])
    before = service.ingress()
    answers, streamed = asyncio.run(answers_while_killing(service, asked, kill_replica))
    made = service.ingress() - before
    assert made["verifier_calls"] > made["generations"] == len(asked) + 1
    assert [visible(answer) for answer in answers] == [visible(answer) for answer in plain]
    assert streamed == (
        plain[1]["choices"][0]["message"]["content"],
        plain[1]["choices"][0]["finish_reason"],
        plain[1]["usage"]["completion_tokens"],
    )
    service.frees_everything()


def kill_replica() -> None:
    ray.kill(ray.get_actor(verifier_replica(), namespace="serve"))


async def answers_while_killing(
    service: Service, asked: list[Body], kill: Callable[[], None]
) -> tuple[list[Body], tuple[str, str, int]]:
    """Whole answers, and the second of them streamed; the verifier is killed when all are under way."""
    tokens = (await asyncio.to_thread(service.verifier))["tokens"]

    def all_under_way() -> bool:
        counts = service.verifier()
        endless = len(asked)  # one of them streamed as well; the last one's choices may have ended
        return counts["sessions"] >= endless and counts["tokens"] - tokens >= 30 * len(asked)

    async with service.client() as client:

        async def whole(body: Body) -> Body:
            response = await client.post("/v1/chat/completions", json={"model": service.config.name} | body)
            assert response.status_code == 200, response.text
            answer: Body = response.json()
            return answer

        answering = asyncio.gather(*map(whole, asked), _streamed(service, asked[1]))
        await asyncio.to_thread(eventually, lambda: answering.done() or all_under_way(), "all answers are under way")
        assert not answering.done(), "the answers must outlive their verifier"
        before = verifier_replica()
        kill()
        *answers, streamed = await answering
        assert verifier_replica() != before
        return answers, streamed


async def _streamed(service: Service, body: Body) -> tuple[str, str, int]:
    """Text, finish reason and count of tokens of a streamed answer."""
    fields = {"model": service.config.name, "stream": True, "stream_options": {"include_usage": True}}
    async with service.client() as client:
        response = await client.post("/v1/chat/completions", json=body | fields)
    blocks = [block for block in response.text.split("\n\n") if block and not block.startswith(":")]
    events = [block.removeprefix("data: ") for block in blocks]
    assert events.count("[DONE]") == 1, events[-1]
    *chunks, closing = [json.loads(event) for event in events[:-1]]
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
    [reason] = [c["choices"][0]["finish_reason"] for c in chunks if c["choices"][0]["finish_reason"]]
    return text, reason, closing["usage"]["completion_tokens"]


def verifier_replica() -> str:
    names = [actor["name"] for actor in list_named_actors(all_namespaces=True) if "#TargetVerifier#" in actor["name"]]
    assert len(names) == 1
    return str(names[0])
