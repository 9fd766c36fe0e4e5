"""POST /v1/completions: what reaches the service, and what comes back whole."""

from __future__ import annotations

from typing import Any

import pytest

from core.sampling.params import SamplingParams
from serve_app.http.service import Speculation
from tests.serve_app.clients import http_client
from tests.serve_app.scripted import BOS_ID, EOS_ID, ScriptedService, tokens_of

ANSWER = "the answer is forty-two. END of the story"
ANSWER_IDS = [*tokens_of(ANSWER), EOS_ID]


async def complete(service: ScriptedService, **fields: Any) -> dict[str, Any]:
    async with http_client(service) as client:
        response = await client.post("/v1/completions", json={"model": "org/toy", "prompt": "the answer", **fields})
    assert response.status_code == 200, response.text
    return dict(response.json())


async def test_every_field_reaches_the_service() -> None:
    service = ScriptedService()
    fields = {"temperature": 0.5, "top_k": 7, "top_p": 0.9, "min_p": 0.1, "seed": -3, "stop": "END", "logprobs": 2}
    penalties = {"presence_penalty": 0.5, "frequency_penalty": -0.5, "logit_bias": {"5": -100, "7": 2.5}}
    await complete(service, max_tokens=9, n=2, **fields, **penalties)
    expected = SamplingParams(
        **{**fields, **penalties, "max_tokens": 9, "logit_bias": {5: -100.0, 7: 2.5}, "stop": ("END",)}
    )
    assert [request.params for request in service.asked] == [expected, expected]
    assert [request.choice for request in service.asked] == [0, 1]
    assert all(request.tokens == (BOS_ID, *tokens_of("the answer")) for request in service.asked)
    assert all(request.prompt_length == len(request.tokens) for request in service.asked)


async def test_defaults_are_openais() -> None:
    service = ScriptedService()
    await complete(service)
    params = service.asked[0].params
    assert params == SamplingParams(seed=params.seed, max_tokens=16, temperature=1.0)


async def test_a_seed_is_drawn_for_every_prompt_that_has_none() -> None:
    service = ScriptedService()
    await complete(service, prompt=["the answer"] * 8, n=2)
    seeds = [request.params.seed for request in service.asked]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert len(set(seeds)) == 8
    assert seeds[::2] == seeds[1::2]


async def test_ignored_inert_and_null_fields_change_nothing() -> None:
    service = ScriptedService()
    ignored = {"user": "me", "metadata": {"a": ["b"]}, "service_tier": "auto"}
    inert = {"echo": False, "best_of": 1, "suffix": "", "top_k": -1, "min_tokens": 0, "ignore_eos": False}
    inert |= {"repetition_penalty": 1.0, "use_beam_search": False, "stop": [], "stop_token_ids": [], "bad_words": []}
    nulls = dict.fromkeys(("temperature", "n", "logit_bias", "speculation", "seed", "logprobs", "guided_json", "own"))
    await complete(service, **ignored, **inert, **nulls)
    params = service.asked[0].params
    assert params == SamplingParams(seed=params.seed, max_tokens=16)


@pytest.mark.parametrize(
    ("asked", "expected", "cap"),
    [
        ({}, Speculation(), (None, False)),
        ({"task": "math"}, Speculation(task="math"), (None, False)),
        ({"enabled": False}, Speculation(enabled=False), (0, False)),
        ({"enabled": False, "num_speculative_tokens": 3}, Speculation(False, 3), (0, False)),
        ({"num_speculative_tokens": 3, "task": "math"}, Speculation(True, 3, "math"), (3, True)),
        ({"num_speculative_tokens": 16}, Speculation(True, 16), (16, True)),
        ({"num_speculative_tokens": 0}, Speculation(False, 0), (0, False)),
    ],
)
async def test_speculation_is_requested_with_a_cap_which_has_it_always_drafted_for(
    asked: dict[str, Any], expected: Speculation, cap: tuple[int | None, bool]
) -> None:
    service = ScriptedService()
    await complete(service, speculation=asked)
    assert service.speculation == expected
    assert (service.asked[0].num_speculative_tokens, service.asked[0].always_draft) == cap


async def test_the_answer_has_text_tokens_and_a_reason() -> None:
    body = await complete(ScriptedService(), max_tokens=200)
    assert body["id"].startswith("cmpl-")
    assert (body["object"], body["model"]) == ("text_completion", "org/toy")
    assert body["choices"] == [
        {
            "index": 0,
            "text": ANSWER,
            "logprobs": None,
            "finish_reason": "stop",
            "token_ids": ANSWER_IDS,
            "speculation": body["choices"][0]["speculation"],
        }
    ]


async def test_max_tokens_cuts_the_answer() -> None:
    body = await complete(ScriptedService(), max_tokens=4)
    choice = body["choices"][0]
    assert choice["token_ids"] == ANSWER_IDS[:4]
    assert choice["text"] == ScriptedService.tokenizer.raw.decode(ANSWER_IDS[:4])
    assert choice["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 4


async def test_a_stop_string_ends_text_tokens_and_usage_together() -> None:
    body = await complete(ScriptedService(), max_tokens=200, stop=["of the", "END o"], logprobs=0)
    choice = body["choices"][0]
    assert choice["text"] == "the answer is forty-two. "
    assert choice["finish_reason"] == "stop"
    decode = ScriptedService.tokenizer.raw.decode
    shortest = next(n for n in range(len(ANSWER_IDS)) if "END o" in decode(ANSWER_IDS[:n]))
    assert choice["token_ids"] == ANSWER_IDS[:shortest]
    assert len(choice["logprobs"]["tokens"]) == body["usage"]["completion_tokens"] == shortest


async def test_choices_are_numbered_prompt_by_prompt() -> None:
    service = ScriptedService()
    prompts = [[BOS_ID, 9], [BOS_ID, 10, 11], [BOS_ID]]
    body = await complete(service, prompt=prompts, n=2)
    assert [choice["index"] for choice in body["choices"]] == list(range(6))
    assert [list(request.tokens) for request in service.asked] == [prompt for prompt in prompts for _ in range(2)]
    assert [request.choice for request in service.asked] == [0, 1] * 3
    assert body["usage"]["prompt_tokens"] == 6


async def test_no_more_choices_are_asked_at_once_than_the_service_takes() -> None:
    service = ScriptedService()
    body = await complete(service, prompt=["the"] * 9, n=2)
    assert len(body["choices"]) == 18
    assert service.most_open == service.max_choices
    assert service.open == 0


THE_ANSWER = [BOS_ID, *tokens_of("the answer")]


@pytest.mark.parametrize("prompt", ["the answer", ["the answer"], THE_ANSWER, [THE_ANSWER]])
async def test_a_prompt_is_text_or_tokens_alone_or_in_a_list(prompt: Any) -> None:
    service = ScriptedService()
    await complete(service, prompt=prompt)
    assert [list(request.tokens) for request in service.asked] == [THE_ANSWER]


async def test_usage_counts_passes_without_the_prefill() -> None:
    # prefill 1, then 3 of 3 proposed, 2 of 2, 1 of 1, 2 of 2, plain 1; the last token of a proposal is always wrong
    service = ScriptedService(tokens=[10] * 20, lengths=(3, 2, 1))
    body = await complete(service, max_tokens=10, speculation={"task": "python"})
    assert body["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 10,
        "total_tokens": 13,
        "speculation": {
            "task": "python",
            "rerouted": 0,
            "rerouted_from": [],
            "proposed": 8,
            "accepted": 4,
            "acceptance_rate": 4 / 8,
            "tokens_per_target_pass": 9 / 5,
            "sources": {"draft": {"proposed": 8, "accepted": 4}},
        },
    }
    assert body["choices"][0]["speculation"] == {"proposed": 8, "accepted": 4}


async def test_rates_are_null_where_there_was_nothing_to_count() -> None:
    body = await complete(ScriptedService(), max_tokens=1)
    speculation = body["usage"]["speculation"]
    assert (speculation["acceptance_rate"], speculation["tokens_per_target_pass"]) == (None, None)
    assert speculation["sources"] == {}


@pytest.mark.parametrize(("fields", "kept"), [({}, True), ({"store": None}, True), ({"store": False}, False)])
async def test_an_answer_is_remembered_unless_the_client_objects(fields: dict[str, Any], kept: bool) -> None:
    service = ScriptedService()
    await complete(service, **fields)
    assert [request.store for request in service.asked] == [kept]


async def test_a_client_is_known_by_a_digest_of_its_key() -> None:
    service = ScriptedService()
    keys = ["Bearer sk-ann", "bearer  sk-ann ", "Bearer sk-bob", "Basic sk-ann", "Bearer ", None]
    async with http_client(service) as client:
        for key in keys:
            headers = {} if key is None else {"authorization": key}
            await client.post("/v1/completions", json={"model": "org/toy", "prompt": "the answer"}, headers=headers)
    ann, again, bob, *nobody = [request.owner for request in service.asked]
    assert ann == again != bob
    assert nobody == [None, None, None]
    assert "sk-" not in repr(service.asked)


async def test_a_top_p_of_nothing_takes_the_likeliest_token() -> None:
    service = ScriptedService()
    await complete(service, top_p=0, temperature=1.5)
    assert (service.asked[0].params.temperature, service.asked[0].params.top_p) == (0.0, 1.0)


async def test_special_tokens_in_a_prompt_are_tokens() -> None:
    service = ScriptedService()
    await complete(service, prompt="the answer</s>")
    assert list(service.asked[0].tokens) == [*THE_ANSWER, EOS_ID]


@pytest.mark.parametrize(("prompt", "expected"), [("the answer", THE_ANSWER[1:]), (THE_ANSWER, THE_ANSWER)])
async def test_who_writes_bos_into_the_prompt_can_leave_out_the_tokenizers(prompt: Any, expected: list[int]) -> None:
    service = ScriptedService()
    await complete(service, prompt=prompt, add_special_tokens=False)
    assert list(service.asked[0].tokens) == expected
