"""Anthropic's own client, unchanged, against /v1/messages."""

from __future__ import annotations

import anthropic
import pytest

from serve_app.http.owners import owner_of
from tests.serve_app.clients import http_client
from tests.serve_app.protocols.anthropic.clients import anthropic_client
from tests.serve_app.scripted import EOS_ID, ScriptedService, tokens_of

ANSWER = "the answer is forty-two. END of the story"
TOKENS = [*tokens_of(ANSWER), EOS_ID]
ASKED = {"model": "org/toy", "max_tokens": 50, "messages": [{"role": "user", "content": "the answer"}]}


async def test_an_answer_with_its_usage() -> None:
    async with anthropic_client(ScriptedService()) as client:
        message = await client.messages.create(**ASKED, system="be brief")
    assert [block.text for block in message.content] == [ANSWER]
    assert (message.role, message.stop_reason, message.stop_sequence) == ("assistant", "end_turn", None)
    assert message.usage.output_tokens == len(TOKENS)
    assert message.usage.speculation["accepted"] > 0


async def test_a_stream_says_the_same_piece_by_piece() -> None:
    async with anthropic_client(ScriptedService()) as client:
        async with client.messages.stream(**ASKED) as stream:
            deltas = [text async for text in stream.text_stream]
            final = await stream.get_final_message()
        whole = await client.messages.create(**ASKED)
    assert "".join(deltas) == ANSWER
    assert len(deltas) > 1
    assert [block.text for block in final.content] == [block.text for block in whole.content] == [ANSWER]
    assert final.stop_reason == whole.stop_reason == "end_turn"
    assert (final.usage.input_tokens, final.usage.output_tokens) == (
        whole.usage.input_tokens,
        whole.usage.output_tokens,
    )


@pytest.mark.parametrize(
    ("fields", "reason", "sequence", "text"),
    [
        ({"max_tokens": 3}, "max_tokens", None, "the answer is"),
        ({"stop_sequences": ["story", "END"]}, "stop_sequence", "END", "the answer is forty-two. "),
        ({"stop_sequences": ["xyz"]}, "end_turn", None, ANSWER),
        ({"stop_sequences": ["a", "b", "c", "d", "e", "f"]}, "stop_sequence", "e", "th"),
    ],
)
async def test_why_an_answer_ended(fields: dict[str, object], reason: str, sequence: str | None, text: str) -> None:
    async with anthropic_client(ScriptedService()) as client:
        whole = await client.messages.create(**{**ASKED, **fields})
        async with client.messages.stream(**{**ASKED, **fields}) as stream:
            final = await stream.get_final_message()
    for message in (whole, final):
        assert (message.stop_reason, message.stop_sequence) == (reason, sequence)
        assert "".join(block.text for block in message.content) == text


@pytest.mark.parametrize("most", [300, 32_000, 10**30])
async def test_a_limit_above_what_the_context_leaves_is_lowered_to_it(most: int) -> None:
    service = ScriptedService([2] * 500)
    async with anthropic_client(service) as client:
        whole = await client.messages.create(**{**ASKED, "max_tokens": most}, timeout=60)
        async with client.messages.stream(**{**ASKED, "max_tokens": most}, timeout=60) as stream:
            final = await stream.get_final_message()
        counted = await client.messages.count_tokens(model="org/toy", messages=ASKED["messages"])
    for message in (whole, final):
        assert message.stop_reason == "max_tokens"
        assert message.usage.input_tokens + message.usage.output_tokens == service.context
        assert message.usage.input_tokens == counted.input_tokens


async def test_a_prompt_that_leaves_no_room_is_refused_in_the_words_by_which_agents_know_it() -> None:
    service = ScriptedService()
    async with anthropic_client(service) as client:
        for text in ("word " * 300, "word " * 300_000):
            asked = {"model": "org/toy", "max_tokens": 9, "messages": [{"role": "user", "content": text}]}
            with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: .*messages.* context of 256"):
                await client.messages.create(**asked)
    assert not service.asked


async def test_an_answer_that_said_nothing_is_sent_back_as_it_came() -> None:
    service = ScriptedService([EOS_ID])
    async with anthropic_client(service) as client:
        first = await client.messages.create(**ASKED)
        assert first.content == []
        begun = [*ASKED["messages"], {"role": "assistant", "content": first.content}]
        await client.messages.create(**{**ASKED, "messages": begun})
        await client.messages.create(**{**ASKED, "messages": [*begun, *ASKED["messages"]]})
    prompts = [service.tokenizer.raw.decode(request.tokens) for request in service.asked[1:]]
    assert prompts == ["user: the answer\nassistant: ", "user: the answer\nassistant: \nuser: the answer\nassistant:"]


async def test_an_answer_can_be_sent_back_and_its_beginning_written() -> None:
    service = ScriptedService()
    async with anthropic_client(service) as client:
        first = await client.messages.create(**ASKED)
        history = [*ASKED["messages"], {"role": "assistant", "content": first.content}]
        await client.messages.create(**{**ASKED, "messages": [*history, {"role": "user", "content": "again"}]})
    prompt = service.tokenizer.raw.decode(service.asked[-1].tokens)
    assert f"user: the answer\nassistant: {ANSWER}\nuser: again\nassistant:" in prompt


async def test_the_tokens_of_a_prompt_are_those_that_its_answer_reports() -> None:
    async with anthropic_client(ScriptedService()) as client:
        count = await client.messages.count_tokens(model="org/toy", messages=ASKED["messages"], system="be brief")
        message = await client.messages.create(**ASKED, system="be brief")
    assert count.input_tokens == message.usage.input_tokens


async def test_own_fields_go_in_the_extra_body() -> None:
    service = ScriptedService()
    async with anthropic_client(service) as client:
        extra = {"seed": 7, "top_k": 5, "speculation": {"task": "math", "num_speculative_tokens": 3}}
        message = await client.messages.create(**ASKED, extra_body=extra)
    (asked,) = service.asked
    assert (asked.params.seed, asked.params.top_k, asked.num_speculative_tokens) == (7, 5, 3)
    assert message.usage.speculation["task"] == "math"


async def test_the_key_says_whose_answers_may_be_proposed_as_that_of_other_protocols_does() -> None:
    service = ScriptedService()
    async with anthropic_client(service, api_key="secret") as client:
        await client.messages.create(**ASKED)
    async with http_client(service) as client:
        await client.post("/v1/messages", json=ASKED, headers={"authorization": "Bearer secret"})
        await client.post("/v1/messages", json=ASKED)
    owner = owner_of({"authorization": "Bearer secret"}, service.owner_salt)
    assert [request.owner for request in service.asked] == [owner, owner, None]
    assert owner is not None


async def test_errors_are_the_clients_own() -> None:
    service = ScriptedService()
    async with anthropic_client(service) as client:
        with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
            await client.messages.create(**{**ASKED, "max_tokens": 0})
        with pytest.raises(anthropic.NotFoundError, match="does not exist"):
            await client.messages.create(**{**ASKED, "model": "claude-x"})
        service.failure = RuntimeError()
        with pytest.raises(anthropic.InternalServerError, match="failed while answering"):
            await client.messages.create(**ASKED)


@pytest.mark.parametrize("fails_after", [1, 3])
async def test_a_stream_that_breaks_raises(fails_after: int) -> None:
    service = ScriptedService()
    service.failure, service.fails_after = RuntimeError(), fails_after
    async with anthropic_client(service) as client:
        stream = await client.messages.create(**ASKED, stream=True)
        with pytest.raises(anthropic.APIStatusError, match="failed while answering"):
            [event async for event in stream]
    assert service.open == 0
