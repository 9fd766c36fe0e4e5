"""The official `openai` client, unchanged, against the running service."""

from __future__ import annotations

import pytest
from openai import BadRequestError, NotFoundError, OpenAI

from tests.service.conftest import Service

pytestmark = [pytest.mark.cluster, pytest.mark.smoke]

ASK = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "What is 12 plus 30?"}]


@pytest.fixture(scope="module")
def client(service: Service) -> OpenAI:
    return OpenAI(base_url=f"{service.url}/v1", api_key="unused", max_retries=0)


def test_model_is_listed(service: Service, client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [service.config.name]


def test_streamed_chat_equals_the_whole_one(service: Service, client: OpenAI) -> None:
    fields = {"model": service.config.name, "messages": ASK, "max_tokens": 60, "seed": 4}
    whole = client.chat.completions.create(**fields)
    stream = client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == whole.choices[0].finish_reason


def test_two_choices_stop_strings_and_logprobs(service: Service, client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=service.config.name, messages=ASK, n=2, stop=["\n"], logprobs=True, top_logprobs=2, seed=1, max_tokens=40
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    for choice in answer.choices:
        assert "\n" not in choice.message.content
        assert len(choice.logprobs.content) <= 40
        assert all(2 <= len(token.top_logprobs) <= 3 for token in choice.logprobs.content)


def test_same_seed_same_answer_other_seed_another(service: Service, client: OpenAI) -> None:
    def ask(seed: int) -> str:
        return (
            client.completions.create(
                model=service.config.name, prompt="The river", max_tokens=40, seed=seed, temperature=1.0
            )
            .choices[0]
            .text
        )

    assert ask(1) == ask(1)
    assert ask(1) != ask(2)


def test_bad_input_raises_the_clients_own_errors(service: Service, client: OpenAI) -> None:
    with pytest.raises(NotFoundError, match="nothing-of-the-kind"):
        client.chat.completions.create(model="nothing-of-the-kind", messages=ASK)
    with pytest.raises(BadRequestError, match="temperature"):
        client.chat.completions.create(model=service.config.name, messages=ASK, temperature=-1)
