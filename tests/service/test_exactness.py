"""The answer is the plain target's, token for token, whatever is proposed, by whom, and whoever dies meanwhile."""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
import ray
from ray import serve
from ray.serve import RunTarget

from serve_app.deployments.deploy.bundle_applications import draft_application
from serve_app.deployments.models.served_models import ServedModels
from tests.eventually import eventually
from tests.service.conftest import ADVERSARIAL, Body, Service, chat, prompts, token_ids

pytestmark = pytest.mark.cluster

PLAIN = {"enabled": False}
ANOTHER = "the last of the tasks served"
MODES: dict[str, Body] = {
    "k=1": {"num_speculative_tokens": 1},
    "k=4": {"num_speculative_tokens": 4},
    "k=7": {"num_speculative_tokens": 7},
    "another task's draft": {"task": ANOTHER, "num_speculative_tokens": 4},
    "adversarial draft": {"task": ADVERSARIAL, "num_speculative_tokens": 7},
}
SMOKE = pytest.mark.smoke
SOON = ("k=4", "another task's draft", "adversarial draft")
RESULT = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["sum", "text", "code"]},
        "value": {"type": "integer"},
        "sure": {"type": "boolean"},
    },
    "required": ["kind", "value", "sure"],
    "additionalProperties": False,
}
WAYS: list[dict[str, Any]] = [
    {},
    {"stop": ["\n", "。"]},
    {"presence_penalty": 0.7, "frequency_penalty": 0.4},
    {"top_p": 0.9, "top_k": 50},
    {"min_p": 0.05, "logit_bias": {"300": 2.0, "400": -100}},
    {"stop": [" is"], "frequency_penalty": -0.3},
    {"logprobs": True, "top_logprobs": 3},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "result", "schema": RESULT}}},
    {"repetition_penalty": 1.2, "min_tokens": 30, "stop_token_ids": [300]},
    {"guided_regex": "The (answer|result) is [0-9]+(, (and|or|but) [a-z]{2,9})*[.]", "logprobs": True},
]


def bodies(count: int, max_tokens: int, ways: Sequence[Body] = WAYS, **fields: Any) -> list[Body]:
    """Prompts of every task, temperatures 0, 0.7 and 1.0 with seeds, and every way of sampling."""
    temperatures = itertools.cycle([0.0, 0.7, 1.0])
    return [
        chat(item.prompt, seed=number, temperature=temperature, max_tokens=max_tokens) | way | fields
        for number, item, temperature, way in zip(
            range(count), prompts(count, seed=11), temperatures, itertools.cycle(ways), strict=False
        )
    ]


def with_speculation(asked: Sequence[Body], speculation: Body) -> list[Body]:
    return [body | {"speculation": speculation} for body in asked]


def proposed(answers: Sequence[Body]) -> int:
    return sum(answer["usage"]["speculation"]["proposed"] for answer in answers)


def visible(answer: Body) -> Any:
    """All of an answer a client could compare, save the identity of the call and what speculation did."""
    choices = [{name: value for name, value in choice.items() if name != "speculation"} for choice in answer["choices"]]
    usage = {name: value for name, value in answer["usage"].items() if name != "speculation"}
    return choices, usage


@pytest.fixture(scope="module")
def asked() -> list[Body]:
    return bodies(50, max_tokens=80)


@pytest.fixture(scope="module")
def plain(service: Service, asked: list[Body]) -> list[Body]:
    answers = service.answers(with_speculation(asked, PLAIN))
    assert proposed(answers) == 0
    return answers


@pytest.mark.parametrize("mode", [pytest.param(mode, marks=SMOKE if mode in SOON else ()) for mode in MODES])
def test_speculation_changes_nothing_a_client_sees(
    service: Service, asked: list[Body], plain: list[Body], mode: str
) -> None:
    speculation = MODES[mode] | ({"task": service.tasks[-1]} if MODES[mode].get("task") == ANOTHER else {})
    answers = service.answers(with_speculation(asked, speculation))
    different = [n for n, (a, b) in enumerate(zip(answers, plain, strict=True)) if visible(a) != visible(b)]
    assert different == []
    assert proposed(answers) > 0


@SMOKE
@pytest.mark.parametrize("speculation", [{}, MODES["adversarial draft"]])
def test_a_cut_answer_goes_on_as_it_would_have(
    service: Service, asked: list[Body], plain: list[Body], speculation: Body
) -> None:
    """Every answer, cut at another place, from its tokens; what came before is not sent again."""
    cuts = [len(ids) * number // len(asked) for number, [ids] in enumerate(map(token_ids, plain))]
    continued = [
        body | {"continue_from": token_ids(answer)[0][:cut]}
        for body, answer, cut in zip(asked, plain, cuts, strict=True)
    ]
    answers = service.answers(with_speculation(continued, speculation))
    for answer, whole, cut in zip(answers, plain, cuts, strict=True):
        assert token_ids(answer)[0] == token_ids(whole)[0][cut:]
        assert whole["choices"][0]["message"]["content"].endswith(answer["choices"][0]["message"]["content"])
        assert answer["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
        assert answer["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    sources = [answer["usage"]["speculation"]["sources"].get("prediction", {}) for answer in answers]
    # How much is proposed for a pass is the policy's to say, by what passes cost at that moment.
    assert sum(counts.get("accepted", 0) for counts in sources) > sum(cuts) / 8


@SMOKE
def test_answers_held_to_a_schema_are_valid(asked: list[Body], plain: list[Body]) -> None:
    held = [answer["choices"][0] for body, answer in zip(asked, plain, strict=True) if "response_format" in body]
    whole = [json.loads(choice["message"]["content"]) for choice in held if choice["finish_reason"] == "stop"]
    assert len(whole) >= 3
    for value in whole:
        jsonschema.validate(value, RESULT)


NAMED = "a</s>b <|user|>"  # an end of sequence and a special token
CONST = {"const": NAMED}
FORM = {"type": "json_schema", "name": "named", "schema": CONST}
HELD: list[tuple[str, Body, str, str]] = [
    ("chat/completions", {"guided_json": CONST}, "choices[0].message.content", json.dumps(NAMED)),
    ("chat/completions", {"guided_choice": [NAMED]}, "choices[0].message.content", NAMED),
    ("completions", {"prompt": "Say:", "guided_regex": re.escape(NAMED)}, "choices[0].text", NAMED),
    ("responses", {"text": {"format": FORM}}, "output[0].content[0].text", json.dumps(NAMED)),
    ("messages", {"output_config": {"format": FORM}}, "content[0].text", json.dumps(NAMED)),
]


@pytest.mark.parametrize("speculation", [PLAIN, {}, {"num_speculative_tokens": 1}, {"num_speculative_tokens": 7}])
async def test_the_name_of_a_special_token_is_text_in_every_protocol(service: Service, speculation: Body) -> None:
    told = {"messages": [{"role": "user", "content": "Say:"}], "max_tokens": 60}
    always: dict[str, Body] = {"chat/completions": told, "messages": told, "responses": {"input": "Say:"}}
    async with service.client() as client:
        for endpoint, fields, where, expected in HELD:
            body = {"model": service.config.name, "speculation": speculation} | always.get(endpoint, {}) | fields
            response = await client.post(f"/v1/{endpoint}", json=body)
            assert response.status_code == 200, response.text
            found = response.json()
            for step in re.findall(r"\w+", where):
                found = found[int(step) if step.isdigit() else step]
            assert found == expected, endpoint


@pytest.mark.soak
def test_draft_killed_mid_answer_changes_nothing(service: Service) -> None:
    """Ten long answers in two waves; in each the replica that drafts for them dies once it has proposed."""
    free = [way for way in WAYS if way.keys().isdisjoint({"response_format", "guided_regex", "stop_token_ids"})]
    long = [body | {"stop": None} for body in bodies(10, max_tokens=240, ways=free, logit_bias={"2": -100})]
    plain = service.answers(with_speculation(long, PLAIN))
    for wave in (slice(0, 5), slice(5, 10)):
        answers = _answers_while_killing(service, service.tasks[0], long[wave])
        assert proposed(answers) > 0
        assert [token_ids(answer) for answer in answers] == [token_ids(answer) for answer in plain[wave]]


@pytest.mark.soak
def test_an_adapter_swapped_between_two_runs_changes_nothing(
    service: Service, asked: list[Body], plain: list[Body]
) -> None:
    """The application of one pool runs again with another adapter; the other pools are left alone."""
    task, served = service.tasks[0], service.served
    known = {*served.controls.values(), *served.drafts.values()} - {None, served.drafts[task]}
    speculating = with_speculation(asked[:24], {"task": task, "num_speculative_tokens": 4})  # whether it pays or not
    replicas = {name: _draft_replica(service, name) for name in service.tasks}
    before = service.drafts(task)["drafted"]
    first = service.answers(speculating)
    drafted = [service.drafts(task)["drafted"] - before]
    try:
        _run_pool(replace(served, drafts=served.drafts | {task: min(map(str, known))}), task, served.pool(task))
        second = service.answers(speculating)
        drafted.append(service.drafts(task)["drafted"])  # the new replica's, which began at 0
        changed = [name for name in service.tasks if _draft_replica(service, name) != replicas[name]]
    finally:
        _run_pool(served, task, served.pool(task))
    assert [visible(answer) for answer in first] == [visible(answer) for answer in plain[:24]]
    assert [visible(answer) for answer in second] == [visible(answer) for answer in plain[:24]]
    assert min(drafted) > 0  # by either adapter
    assert changed == [task]


def _run_pool(served: ServedModels, task: str, name: str) -> None:
    """Run the pool that this service has for the task, in the application of this name."""
    serve.run_many([RunTarget(draft_application(served, task), name, None, external_scaler_enabled=True)])


def _answers_while_killing(service: Service, task: str, asked: Sequence[Body]) -> list[Body]:
    def all_drafted_for() -> bool:
        """All drafts that will be opened are, and have drafted much, or anything half-way where that does not pay."""
        counts, spared = service.drafts(task), service.ingress()["drafts_declined"] - before["drafts_declined"]
        half_way = service.verifier()["tokens"] - before["tokens"] >= sum(body["max_tokens"] for body in asked) / 2
        drafted = counts["drafted"] - before["drafted"]
        return counts["sessions"] + spared == len(asked) and drafted >= (1 if half_way else 10 * counts["sessions"])

    answers: list[Body] = []
    before = service.drafts(task) + service.ingress() + service.verifier()
    speculating = with_speculation(asked, {"task": task})
    asking = threading.Thread(target=lambda: answers.extend(service.answers(speculating)))
    asking.start()
    eventually(all_drafted_for, "every answer has a draft that drafts, or none")
    killed = _draft_replica(service, task)
    ray.kill(ray.get_actor(killed, namespace="serve"))
    assert asking.is_alive(), "the answers must outlive their draft"
    asking.join(120)
    assert not asking.is_alive()
    eventually(lambda: _draft_replica(service, task) not in ("", killed), f"another replica drafts for {task}")
    return answers


def _draft_replica(service: Service, task: str) -> str:
    """Name of the actor that serves the task's drafts, empty while there is none."""
    return next(iter(service.pool_replicas(task)), "")
