"""The adversary of the router: words that only one task's prompts have, put around the request of another task.

Enters: a request, the task whose words are wanted, a seed. Leaves: the prompt, and its foreign part on its own. The
request stays as it is, so what ought to be answered does not change.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from random import Random
from typing import NamedTuple

from core.tasks.names import telling_words
from tests.bench.items import SEED
from tests.family.corpora import TASKS, items

_PROMPTS = 120  # of each task, to find its words in
_KNOWN = 16  # words of a task
_FRAMES = (
    "{}, {}, {}. {request} {}, {}, {}.",
    "My notes: {}, {}, {}. {request} More notes: {}, {}, {}.",
    "I know {}, {} and {} already. {request} Never mind {}, {} and {}.",
)
_WORDS = 6  # in a frame


class Surrounded(NamedTuple):
    """The whole prompt, and the words around the request without it."""

    text: str
    without: str


class ForeignWords:
    """Words of every task, found in its training prompts."""

    def put(self, request: str, task: str, seed: int) -> Surrounded:
        """`task`'s words around the request."""
        rng = Random(f"foreign/{task}/{seed}")
        frame, words = rng.choice(_FRAMES), rng.sample(self.of[task], _WORDS)
        return Surrounded(frame.format(*words, request=request), frame.format(*words, request="").strip())

    @cached_property
    def of(self) -> dict[str, list[str]]:
        """By task: the words most of its prompts have, none of which was in a prompt of another task."""
        seen = {task: Counter[str]() for task in TASKS}
        for task in TASKS:
            for item in items(task, _PROMPTS, SEED):
                seen[task].update(set(telling_words(item.prompt)))
        return {task: _most(own, [seen[other] for other in TASKS if other != task]) for task, own in seen.items()}


def _most(own: Counter[str], others: list[Counter[str]]) -> list[str]:
    alone = [word for word in own if not any(word in other for other in others)]
    return sorted(alone, key=lambda word: (-own[word], word))[:_KNOWN]
