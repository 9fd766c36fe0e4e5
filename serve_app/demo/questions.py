"""The questions of the demo: held-out prompts, each with its temperature and seed, and the requests that ask them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.family import held_out_prompts
from serve_app.openai.client import Speculation

MAX_TOKENS = 400  # the longest answer in the family's corpora
WARM = 1.0  # temperature of every second prompt; the others are answered at 0


@dataclass(frozen=True)
class Question:
    """A prompt of a known task, and how its answer is sampled."""

    task: str
    prompt: str
    temperature: float
    seed: int

    @property
    def manner(self) -> str:
        return f"temperature {self.temperature:g}" + (f", seed {self.seed}" if self.temperature else "")

    def body(self, model: str, speculation: Speculation) -> dict[str, Any]:
        """The chat completion request."""
        return {
            "model": model,
            "messages": [{"role": "user", "content": self.prompt}],
            "temperature": self.temperature,
            "seed": self.seed,
            "max_tokens": MAX_TOKENS,
            "speculation": dict(speculation),
        }


def questions(per_task: int) -> list[Question]:
    """`per_task` prompts of each task, the same every time."""
    by_task: dict[str, list[str]] = {}
    for prompt in held_out_prompts():
        by_task.setdefault(str(prompt.task), []).append(str(prompt.prompt))
    drawn = [(task, prompt) for task, prompts in by_task.items() for prompt in prompts[:per_task]]
    return [
        Question(task, prompt, temperature=WARM * (number % 2), seed=number)
        for number, (task, prompt) in enumerate(drawn)
    ]
