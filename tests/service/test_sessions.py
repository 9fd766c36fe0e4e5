"""What a generation costs the service, and that nothing of it is left when it ends or its client goes."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from ray import serve

from serve_app.application_names import draft_key, pool_application
from serve_app.deployments.deploy.bundle_applications import draft_application
from tests.eventually import eventually
from tests.service.conftest import ADVERSARIAL, CONCURRENCY, LATE, Body, Service, chat, prompts, token_ids

pytestmark = [pytest.mark.cluster, pytest.mark.smoke]

ENDLESS = {"2": -100}  # bars the end-of-sequence token
MANY = 16  # choices: as many as there may be


def serve_calls(service: Service) -> int:
    counts = service.ingress()
    return counts["verifier_calls"] + counts["router_calls"] + wired(counts)


def wired(counts: Counter[str]) -> int:
    """Sessions of which it was decided whether they get a draft: on a busy machine none may pay."""
    return counts["draft_calls"] + counts["drafts_declined"]


@pytest.mark.parametrize("k", [pytest.param(1, marks=pytest.mark.soak), 7])
def test_a_generation_makes_the_same_few_serve_calls_however_many_rounds(service: Service, k: int) -> None:
    calls = []
    service.answer(chat("Write about the sea.", max_tokens=100))  # a router that was never asked is slow
    for max_tokens in (150, 500):
        before = serve_calls(service)
        body = chat("Write about the sea.", max_tokens=max_tokens, seed=1, logit_bias=ENDLESS)
        answer = service.answer(body | {"speculation": {"num_speculative_tokens": k}})
        assert answer["usage"]["completion_tokens"] == max_tokens
        calls.append(serve_calls(service) - before)
    assert calls[0] == calls[1] <= 4


def test_clients_that_go_away_leave_nothing_behind(service: Service) -> None:
    """200 clients hang up at a random moment, streaming or not, with one choice or three."""
    asyncio.run(_hang_up(service, 200))
    service.frees_everything()
    steps = service.verifier()["steps"]
    assert service.held() == {}
    assert service.verifier()["steps"] == steps, "a pass ran for nobody"


async def _hang_up(service: Service, times: int) -> None:
    chance = random.Random(5)
    texts = [item.prompt for item in prompts(times, seed=3)]
    asked = [(text, chance.random(), chance.choice([1, 1, 3]), chance.random()) for text in texts]
    gate = asyncio.Semaphore(CONCURRENCY)
    async with service.client() as client:

        async def one(prompt: str, patience: float, n: int, streaming: float) -> None:
            body = chat(prompt, n=n, max_tokens=400, logit_bias=ENDLESS, stream=streaming < 0.7)
            async with gate:
                try:
                    async with asyncio.timeout(patience * 0.4):
                        await client.post("/v1/chat/completions", json={"model": service.config.name} | body)
                except TimeoutError:
                    pass

        await asyncio.gather(*(one(*each) for each in asked))


def test_n_choices_equal_the_same_choices_asked_for_alone(service: Service) -> None:
    body = chat("Tell me something about water.", seed=9, temperature=1.0, max_tokens=60)
    three = service.answer(body | {"n": 3})["choices"]
    one = service.answer(body)["choices"]
    assert three[0]["token_ids"] == one[0]["token_ids"]
    assert len({tuple(choice["token_ids"]) for choice in three}) == 3


def opened(service: Service, speculation: Body, choices: int = MANY, max_tokens: int = 20) -> int:
    """Draft sessions that so many choices of a prompt lead to.

    In 100 passes the estimate of a useless draft that costs nothing fades so far that it is worth one request again.
    The answers are sampled: what repeats itself is proposed without drafts.
    """
    before = service.ingress()
    text = {"max_tokens": max_tokens, "temperature": 1.5, "logit_bias": ENDLESS}
    service.answer(chat("Write about the sea.", n=choices, speculation=speculation, **text))
    after = service.ingress()
    assert wired(after) - wired(before) == choices
    return after["draft_calls"] - before["draft_calls"]


def test_all_choices_of_a_prompt_get_a_draft_at_their_first_call_or_none_where_it_does_not_pay(
    service: Service,
) -> None:
    assert opened(service, {}, max_tokens=150) in (MANY, 0)


@pytest.mark.soak
def test_a_draft_that_never_pays_is_soon_opened_for_no_session(service: Service) -> None:
    useless = {"task": ADVERSARIAL}
    text = {"max_tokens": 400, "temperature": 1.5, "logit_bias": ENDLESS}
    service.answer(chat("Write about the sea.", seed=1, speculation=useless, **text))
    eventually(lambda: opened(service, useless) == 0, "the useless draft is opened for nobody")


@pytest.mark.soak
def test_a_pool_that_is_not_there_costs_nothing_but_speed_and_drafts_once_it_is(service: Service) -> None:
    body = chat("Tell me something about water.", seed=3, max_tokens=200, logit_bias=ENDLESS)
    asked = body | {"speculation": {"task": LATE}}
    without = service.answer(asked)
    assert "draft" not in without["usage"]["speculation"]["sources"]
    service.frees_everything()
    serve.run(draft_application(service.served, LATE), name=pool_application(draft_key(LATE)), route_prefix=None)
    assert opened(service, {"task": LATE}, 1) == 1  # nothing is known yet that speaks against it

    def drafted() -> bool:
        """Whether an answer, the same in any case, had proposals; where they do not pay one in some has."""
        with_it = service.answer(asked)
        assert token_ids(with_it) == token_ids(without)
        return "draft" in with_it["usage"]["speculation"]["sources"]

    eventually(drafted, f"the pool {LATE} drafts")
    serve.delete(pool_application(draft_key(LATE)))
    assert token_ids(service.answer(asked)) == token_ids(without)
