"""Whatever a body has that the service's own OpenAPI document allows, or does not, is answered: with a 2xx or a 4xx."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, NamedTuple

import requests
import schemathesis
from conftest import Service
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode

CASES, FEWER_CASES = 20_000, 400
SHARES = {  # of the cases; what has no parameters is asked once
    "/v1/completions": 0.2,
    "/v1/chat/completions": 0.2,
    "/v1/responses": 0.2,
    "/v1/messages": 0.2,
    "/v1/messages/count_tokens": 0.06,
    "/tokenize": 0.06,
    "/detokenize": 0.06,
    "/v1/models/{model}": 0.02,
}
NEGATIVE = 0.15  # of these, the share that breaks the document on purpose
LEAST_SUCCESSES = 0.2
MOST_TOKENS = 8
BATCH = 250
TIMEOUT = 120  # seconds
LIMITS = {
    "/v1/completions": ("max_tokens", "max_completion_tokens"),
    "/v1/chat/completions": ("max_completion_tokens", "max_tokens"),
    "/v1/responses": ("max_output_tokens",),
    "/v1/messages": ("max_tokens",),
}
OF_TEMPLATES = ("add_generation_prompt", "continue_final_message", "special_tokens_in_content", "chat_template_kwargs")
OF_ASSISTANTS = ("tool_calls", "reasoning", "reasoning_content")


class Outcome(NamedTuple):
    """The statuses that there were, and the requests that the service failed on."""

    statuses: Counter[int]
    failures: list[str]

    @property
    def cases(self) -> int:
        return self.statuses.total()

    @property
    def successes(self) -> float:
        return sum(count for status, count in self.statuses.items() if status < 300) / self.cases


def mended(body: Any, path: str, model: str, ids: int) -> Any:
    """The body with what a schema cannot say put right in three of four, and with few tokens to generate."""
    if not isinstance(body, dict):
        return body
    if "model" in body:
        body["model"] = model
    limits = LIMITS.get(path, ())
    for name in limits:
        if isinstance(body.get(name), int | float):  # 6.0 is 6
            body[name] = min(body[name], MOST_TOKENS)
    if limits and all(body.get(name) is None for name in limits):
        body[limits[0]] = MOST_TOKENS
    if len(json.dumps(body)) % 4 == 0:
        return body
    for name in body.keys() & {"prompt", "tokens"}:
        body[name] = _valid_ids(body[name], ids)
    if isinstance(body.get("messages"), list):
        body |= {"messages": [_coherent(message) for message in body["messages"]], "prompt": None}
    elif not body.keys() & {"input", "tokens"} or body.get("prompt"):
        body = {"prompt": "the answer"} | {name: body[name] for name in body if name not in OF_TEMPLATES}
    return {name: value for name, value in body.items() if value is not None}


def _valid_ids(value: Any, ids: int) -> Any:
    if isinstance(value, list):
        return [_valid_ids(entry, ids) for entry in value]
    return value % ids if isinstance(value, int) else value


def _coherent(message: Any) -> Any:
    """Without what only other roles have."""
    if not isinstance(message, dict):
        return message
    role = message.get("role")
    kept = {key: value for key, value in message.items() if role == "assistant" or key not in OF_ASSISTANTS}
    content = message.get("content")
    if isinstance(content, list):
        content = [part for part in content if isinstance(part, dict) and part.get("type") == "text"]
    kept["content"] = content or "the answer"
    kept.pop("tool_call_id", None)
    return kept | ({"tool_call_id": "call_1"} if role == "tool" else {})


def outcome(service: Service, cases: int, ids: int) -> Outcome:
    """That of about so many cases, one after another."""
    schema = schemathesis.openapi.from_url(f"{service.url}/openapi.json")

    @schema.hook("map_body")
    def repair(context: Any, body: Any) -> Any:
        return mended(body, context.operation.path, service.model, ids)

    found = Outcome(Counter(), [])
    with requests.Session() as session:
        for result in schema.get_all_operations():
            operation = result.ok()
            asked = SHARES.get(operation.path, 0) * cases
            broken = NEGATIVE * asked if operation.method == "post" else 0
            before = found.statuses.copy()
            _try(operation, GenerationMode.POSITIVE, max(1, math.ceil(asked - broken)), session, found)
            if broken:
                _try(operation, GenerationMode.NEGATIVE, math.ceil(broken), session, found)
            print(f"{operation.label}: {dict(found.statuses - before)}")  # noqa: T201
    return found


def _try(operation: Any, mode: GenerationMode, cases: int, session: requests.Session, found: Outcome) -> None:
    """So many cases of one operation, the same each time."""

    def attempt(case: Any) -> None:
        response = case.call(session=session, timeout=TIMEOUT)
        found.statuses[response.status_code] += 1
        if response.status_code >= 500 or "server_error" in response.text:
            found.failures.append(case.as_curl_command())
        elif response.status_code >= 400:
            assert response.json()["error"]["message"]

    for begin in range(0, cases, BATCH):  # hypothesis remembers all cases of a run, and gets slower
        settled = settings(
            max_examples=min(BATCH, cases - begin),
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        settled(seed(begin)(given(operation.as_strategy(generation_mode=mode))(attempt)))()


def check(found: Outcome) -> None:
    print(f"{found.cases} cases, {found.successes:.0%} 2xx, {len(found.failures)} server errors")  # noqa: T201
    assert not found.failures, "\n".join(found.failures[:5])
    assert found.successes >= LEAST_SUCCESSES


def test_no_body_makes_the_api_fail(scripted: Service) -> None:
    found = outcome(scripted, CASES, ids=320)
    assert found.cases >= CASES
    check(found)


def test_no_body_makes_a_real_service_fail(service: Service) -> None:
    check(outcome(service, FEWER_CASES, ids=49152))
