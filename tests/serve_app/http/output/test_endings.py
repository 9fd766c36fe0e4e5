"""Where an answer ends, and what of its end is shown."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.text.detokenizer import TextStream
from tests.serve_app.clients import events, http_client
from tests.serve_app.scripted import BOS_ID, EOS_ID, ScriptedService, tokens_of, toy_tokenizer

ANSWER = "the answer is forty-two. END of the story"
IDS = tokens_of(ANSWER)
MANY = ["<absent>", "nothing", "of this", "is there", "but END o"]
RAW = toy_tokenizer().raw


async def complete(service: ScriptedService, **fields: Any) -> dict[str, Any]:
    body = {"model": "org/toy", "prompt": "the", "max_tokens": 200, **fields}
    async with http_client(service) as client:
        response = await client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    assert service.open == 0
    return dict(response.json())


def text_of(tokens: list[int]) -> str:
    return str(RAW.decode(tokens))


async def test_a_stop_token_ends_the_answer_as_the_end_of_sequence_does() -> None:
    stop = IDS[7]
    until = IDS[: IDS.index(stop) + 1]
    body = await complete(ScriptedService(), stop_token_ids=[stop, 300], logprobs=0)
    choice = body["choices"][0]
    assert (choice["token_ids"], choice["finish_reason"]) == (until, "stop")
    assert choice["text"] == text_of(until[:-1])
    assert body["usage"]["completion_tokens"] == len(choice["logprobs"]["tokens"]) == len(until)
    kept = await complete(ScriptedService(), stop_token_ids=[stop], include_stop_str_in_output=True)
    assert kept["choices"][0]["text"] == text_of(until)


async def test_the_service_is_left_as_soon_as_all_choices_have_ended() -> None:
    """The scripted target draws a token per pass; it is asked for no more passes than the answer has tokens."""
    passes = 0

    async def count() -> None:
        nonlocal passes
        passes += 1

    service = ScriptedService(lengths=[1])
    service.step = count
    stop = IDS[3]
    body = await complete(service, n=2, stop_token_ids=[stop])
    number = IDS.index(stop) + 1
    assert [choice["token_ids"] for choice in body["choices"]] == [IDS[:number]] * 2
    assert passes == number


@pytest.mark.parametrize("stop", [[*MANY, "END of"], ["END of", *MANY], [*MANY, "story", "END", "EN"]])
async def test_many_stop_strings(stop: list[str]) -> None:
    service = ScriptedService()
    body = await complete(service, stop=stop)
    assert body["choices"][0]["text"] == "the answer is forty-two. "
    assert body["choices"][0]["finish_reason"] == "stop"
    assert service.asked[0].params.stop == tuple(stop)


@pytest.mark.parametrize("stop", [["END"], [*MANY, "END"]])
async def test_the_stop_string_is_shown_if_asked_for(stop: list[str]) -> None:
    body = await complete(ScriptedService(), stop=stop, include_stop_str_in_output=True)
    assert body["choices"][0]["text"] == "the answer is forty-two. END"


async def test_special_tokens_of_an_answer_are_shown_if_asked_for() -> None:
    tokens = [*tokens_of("the answer"), BOS_ID, *tokens_of(" is END")]
    hidden = (await complete(ScriptedService(tokens)))["choices"][0]
    shown = (await complete(ScriptedService(tokens), skip_special_tokens=False))["choices"][0]
    assert (hidden["text"], shown["text"]) == ("the answer is END", "the answer<s> is END")
    assert hidden["token_ids"] == shown["token_ids"] == [*tokens, EOS_ID]
    ended = await complete(ScriptedService(tokens), skip_special_tokens=False, include_stop_str_in_output=True)
    assert ended["choices"][0]["text"] == "the answer<s> is END</s>"


async def test_stop_strings_are_looked_for_in_the_text_that_is_shown() -> None:
    tokens = [*tokens_of("the answer"), BOS_ID, *tokens_of(" is END")]
    for stop, skipped, shown in (
        ("answer is", "the ", "the answer<s> is END"),
        ("<s>", "the answer is END", "the answer"),
    ):
        assert (await complete(ScriptedService(tokens), stop=stop))["choices"][0]["text"] == skipped
        body = await complete(ScriptedService(tokens), stop=stop, skip_special_tokens=False)
        assert body["choices"][0]["text"] == shown


async def test_text_offsets_count_the_special_tokens_that_are_shown() -> None:
    tokens = [*tokens_of("the answer"), BOS_ID, *tokens_of(" is END")]
    body = await complete(ScriptedService(tokens), skip_special_tokens=False, logprobs=0)
    after = len(tokens_of("the answer")) + 1
    assert body["choices"][0]["logprobs"]["text_offset"][after] == len("the answer<s>")


@settings(max_examples=60)
@given(
    stop_token_ids=st.lists(st.sampled_from(sorted({*IDS})), max_size=2),
    stop=st.lists(st.sampled_from([*MANY, "END", "is f", "two. E", "story"]), unique=True, max_size=7),
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    keep=st.booleans(),
)
async def test_where_runs_are_cut_shows_nowhere(
    stop_token_ids: list[int], stop: list[str], lengths: list[int], *, keep: bool
) -> None:
    text, expected = TextStream(RAW, tuple(stop)), len(IDS) + 1
    for number, token in enumerate(IDS, start=1):
        text.push(token)
        if text.stopped or token in stop_token_ids:
            expected = number
            break
    fields = {"stop": stop, "stop_token_ids": stop_token_ids, "include_stop_str_in_output": keep}
    whole = (await complete(ScriptedService(lengths=lengths), **fields))["choices"][0]
    assert whole["token_ids"] == [*IDS, EOS_ID][:expected]
    assert whole["finish_reason"] == "stop"
    body = {"model": "org/toy", "prompt": "the", "max_tokens": 200, "stream": True, **fields}
    async with http_client(ScriptedService(lengths=lengths)) as client:
        *chunks, done = events((await client.post("/v1/completions", json=body)).text)
    assert done == "[DONE]"
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["text"]
    assert [token for chunk in chunks for token in chunk["choices"][0]["token_ids"]] == whole["token_ids"]
    counts = [chunk["choices"][0]["speculation"] for chunk in chunks]
    assert sum(count["accepted"] for count in counts) == whole["speculation"]["accepted"]
    sizes = [len(chunk["choices"][0]["token_ids"]) for chunk in chunks]
    assert all(count["accepted"] <= size for count, size in zip(counts, sizes, strict=True))
