"""What every client is asked: for a text, for one of two cities as JSON, and to call a tool."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SAY = "Say hello."
ASK = "What is the weather in Oslo? Answer in JSON."
MESSAGES: list[Any] = [{"role": "user", "content": ASK}]


class Closed(BaseModel):
    """Without further fields, in which a small model would lose itself."""

    model_config = ConfigDict(extra="forbid")


class Weather(Closed):
    """The weather of a city."""

    city: Literal["Oslo", "Rome"]
    celsius: int = Field(ge=-50, le=50)


class Place(Closed):
    """Where the weather is asked for."""

    city: Literal["Oslo", "Rome"]


TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather of a city.", "parameters": Place.model_json_schema()},
}
REPORT = '{"city": "Oslo", "celsius": 7}'


def is_object(text: str | None) -> bool:
    """Whether the text is a JSON object."""
    return isinstance(json.loads(text or ""), dict)
