"""What the demo asks, and how: a few questions at a time, each to be drawn with a seed of its own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from serve_app.chat_client import Answer, Client, Shown, Speculation

MAX_TOKENS = 400  # the longest answer the shipped corpora ask for
AT_ONCE = 1  # of many that share the target's passes drafts are asked for less, or for nothing


@dataclass(frozen=True)
class Question:
    """A prompt of a known task, and how its answer is to be drawn."""

    task: str
    prompt: str
    temperature: float
    seed: int


class DemoClient:
    """Asks one service, at most `AT_ONCE` questions at a time."""

    def __init__(self, url: str, model: str) -> None:
        self._client = Client(f"{url}/v1")
        self._model = model
        self._room = asyncio.Semaphore(AT_ONCE)

    async def __aenter__(self) -> DemoClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def ask(self, question: Question, speculation: Speculation, show: Shown | None = None) -> Answer:
        """Raises `BadAnswer`."""
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": question.prompt}],
            "temperature": question.temperature,
            "seed": question.seed,
            "max_tokens": MAX_TOKENS,
            "speculation": dict(speculation),
        }
        async with self._room:
            return await self._client.ask(body, show)
