"""Answers that a test writes itself, in the form of the service's stream: for what no model says when it is wanted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from playwright.sync_api import Page, Route

from tests.browser.visitor import CHAT


def answers_with(page: Page, chunks: Sequence[dict[str, Any]]) -> None:
    """Every chat of the page is answered so."""
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"

    def answer(route: Route) -> None:
        route.fulfill(status=200, content_type="text/event-stream; charset=utf-8", body=body)

    page.route(f"**{CHAT}", answer)


def text_answer(*texts: str) -> list[dict[str, Any]]:
    """One chunk for each text, of which a draft gave the first half."""
    runs = [
        chunk(
            {"content": text}, proposed=2, accepted=1, accepted_characters=len(text) // 2, source="draft", number=number
        )
        for number, text in enumerate(texts)
    ]
    runs[-1]["choices"][0]["finish_reason"] = "stop"
    return [{"choices": [], "seed": 1}, *runs, {"choices": [], "usage": usage(2 * len(texts), len(texts))}]


def call_answer(name: str, arguments: str) -> list[dict[str, Any]]:
    """A call of a tool."""
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": ""}}
    parts = [call, {"index": 0, "function": {"arguments": arguments}}]
    runs = [
        chunk({"tool_calls": [part]}, proposed=0, accepted=0, accepted_characters=0, source=None, number=number)
        for number, part in enumerate(parts)
    ]
    runs[-1]["choices"][0]["finish_reason"] = "tool_calls"
    return [{"choices": [], "seed": 1}, *runs, {"choices": [], "usage": usage(4, 0)}]


def chunk(delta: dict[str, Any], *, number: int, **speculation: Any) -> dict[str, Any]:
    told = {"task": "general", "pass": number, **speculation}
    return {
        "choices": [{"index": 0, "delta": delta, "finish_reason": None, "token_ids": [5, 6], "speculation": told}],
    }


def usage(tokens: int, accepted: int) -> dict[str, Any]:
    sources = {"draft": {"proposed": tokens, "accepted": accepted}}
    told = {"task": "general", "rerouted": 0, "rerouted_from": [], "sources": sources}
    return {"completion_tokens": tokens, "speculation": told}
