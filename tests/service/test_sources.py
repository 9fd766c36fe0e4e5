"""Proposals without a draft in a real service: a prediction, and earlier answers of the same client."""

from __future__ import annotations

from typing import Any

import pytest

from tests.service.conftest import Body, Service, chat, prompts, token_ids

pytestmark = [pytest.mark.cluster, pytest.mark.smoke]

[ITEM] = prompts(1, seed=23)
ASKED = chat(ITEM.prompt, seed=5, max_tokens=60, temperature=1.0, logit_bias={"2": -100})


async def _sent(service: Service, body: Body, key: str) -> Body:
    async with service.client() as client:
        headers = {"authorization": f"Bearer {key}"}
        response = await client.post(
            "/v1/chat/completions", json={"model": service.config.name} | body, headers=headers
        )
    assert response.status_code == 200, response.text
    answer: Body = response.json()
    return answer


def sources(answer: Body) -> dict[str, Any]:
    found: dict[str, Any] = answer["usage"]["speculation"]["sources"]
    return found


def test_a_prediction_is_proposed_and_the_answer_is_the_same(service: Service) -> None:
    plain = service.answer(ASKED | {"speculation": {"enabled": False}})
    content = plain["choices"][0]["message"]["content"]
    foreseen = service.answer(ASKED | {"prediction": {"type": "content", "content": content}})
    assert token_ids(foreseen) == token_ids(plain)
    details = foreseen["usage"]["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] == sources(foreseen)["prediction"]["accepted"] > 0
    assert service.verifier()["accepted_prediction"] >= details["accepted_prediction_tokens"]


async def test_earlier_answers_are_proposed_to_the_client_that_got_them(service: Service) -> None:
    first = await _sent(service, ASKED, "sk-ann")
    again, other = [await _sent(service, ASKED, key) for key in ("sk-ann", "sk-bob")]
    assert token_ids(first) == token_ids(again) == token_ids(other)
    assert "answers" in sources(again)
    assert "answers" not in sources(other)
