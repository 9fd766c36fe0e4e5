"""The questions of the demo: prompts that suit the model, each with its temperature and seed, and their requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.family import held_out_prompts
from core.smollm2 import demo_prompts
from core.text.prompts import Prompt
from serve_app.client import Speculation
from serve_app.config import ServiceConfig

FAMILY_MAX_TOKENS = 400  # the longest answer in the family's corpora
MAX_TOKENS = 128  # of any other model
WARM = 1.0  # temperature of every second prompt; the others are answered at 0


@dataclass(frozen=True)
class DemoPrompt:
    """A prompt of a known task, and how its answer is sampled."""

    task: str
    prompt: str
    temperature: float
    seed: int
    max_tokens: int = MAX_TOKENS

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
            "max_tokens": self.max_tokens,
            "speculation": dict(speculation),
        }


def questions(config: ServiceConfig, per_task: int) -> list[DemoPrompt]:
    """At most `per_task` prompts of each task, the same every time."""
    prompts, max_tokens = _prompts(config)
    by_task: dict[str, list[str]] = {}
    for prompt in prompts:
        by_task.setdefault(str(prompt.task), []).append(str(prompt.prompt))
    chosen = [(task, prompt) for task, prompts in by_task.items() for prompt in prompts[:per_task]]
    return [
        DemoPrompt(task, prompt, temperature=WARM * (number % 2), seed=number, max_tokens=max_tokens)
        for number, (task, prompt) in enumerate(chosen)
    ]


def _prompts(config: ServiceConfig) -> tuple[list[Prompt], int]:
    """Prompts for the target, and the most tokens of an answer: the shipped family knows only its own six tasks."""
    if config.target.model == "family:target":
        return held_out_prompts(), FAMILY_MAX_TOKENS
    return demo_prompts(), MAX_TOKENS
