"""Generated texts: six task corpora with computed answers, one file each, and a general corpus.

To add a task corpus: a file with a `CORPUS` (see `grammar`), listed in `TASKS` and `_CORPORA` here. The same seed gives
the same items, and a prompt's split depends on the prompt alone.
"""

from __future__ import annotations

import hashlib
from random import Random
from typing import Literal

from tests.family.corpora import chemistry, chinese, english, general, logic, math, python
from tests.family.corpora.grammar import Item
from tests.family.corpora.ramble import WordChain

__all__ = ["TASKS", "Item", "general_texts", "items", "rambling_texts"]

TASKS: tuple[str, ...] = ("math", "chemistry", "english", "chinese", "logic", "python")
_CORPORA = {module.CORPUS.task: module.CORPUS for module in (math, chemistry, english, chinese, logic, python)}
_HELD_OUT_SHARE = 16
_TRIES_PER_ITEM = 400
_CHAINED_ITEMS_PER_TASK = 3_000


def _is_held_out(prompt: str) -> bool:
    return hashlib.sha256(prompt.encode()).digest()[0] % _HELD_OUT_SHARE == 0


def items(task: str, count: int, seed: int, split: Literal["train", "held_out"] = "train") -> list[Item]:
    """`count` items of a task with distinct prompts; the two splits share no prompt, whatever the seeds.

    Raises KeyError for an unknown task and ValueError when the generator cannot make that many distinct prompts.
    """
    corpus, rng = _CORPORA[task], Random(f"{task}/{split}/{seed}")
    found: dict[str, Item] = {}
    for _ in range(count * _TRIES_PER_ITEM):
        if len(found) == count:
            break
        item = corpus.draw(rng)
        if _is_held_out(item.prompt) == (split == "held_out"):
            found.setdefault(item.prompt, item)
    if len(found) < count:
        raise ValueError(f"{task} has no {count} distinct {split} prompts")
    return list(found.values())


def general_texts(count: int, seed: int) -> list[Item]:
    """`count` general items (task "general"): a vague request and a text without the tasks' templates.

    Prompts repeat, answers rarely do.
    """
    rng = Random(f"general/{seed}")
    return [general.CORPUS.draw(rng, long_share=0.12) for _ in range(count)]


def rambling_texts(count: int, seed: int) -> list[Item]:
    """`count` general items with the tasks' words in the order of a word chain; see `ramble`."""
    rng = Random(f"ramble/{seed}")
    per_task = min(_CHAINED_ITEMS_PER_TASK, count)
    known = [item for task in TASKS for item in items(task, per_task, seed)]
    asking, answering = WordChain(item.prompt for item in known), WordChain(item.answer for item in known)
    return [Item("general", "ramble", asking.ramble(rng), answering.ramble(rng)) for _ in range(count)]
