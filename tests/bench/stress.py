"""Prompts that make it hard for a router: as generated, reworded, of two domains, with another task's words around.

Enters: a number of prompts. Leaves: as many of every kind, all of them made of the same requests by code and seed. The
requests are held-out ones of the family's tasks that no retraining of the shipped bundle has seen either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, islice
from random import Random
from typing import NamedTuple

from core.tasks.rewording import reword
from core.tasks.rewording_rules import VALIDATING
from tests.bench.foreign_words import ForeignWords
from tests.bench.items import SEED
from tests.family.corpora import TASKS, Item, items

RETRAINING_HELD_OUT = 216  # prompts of every task that the retraining of the shipped bundle held out
GENERATED, REWORDED, MIXED_DOMAIN, ADVERSARIAL = "as generated", "reworded", "mixed-domain", "adversarial"
KINDS = (GENERATED, REWORDED, MIXED_DOMAIN, ADVERSARIAL)
_JOINED = ("{} {}", "{}\n\n{}", "{} And then: {}", "1. {}\n2. {}")


class Prompt(NamedTuple):
    """What is asked, the task of its request, and the request on its own; `other` is what was put beside that."""

    kind: str
    text: str
    task: str
    request: str
    other: str | None = None
    other_task: str | None = None


def prompts(per_kind: int) -> list[Prompt]:
    """`per_kind` prompts of each kind, tasks taking turns; the n-th of every kind has the n-th request."""
    requests, around = _requests(per_kind), ForeignWords()
    makers: Sequence[Callable[[Item, int], Prompt]] = (
        lambda request, _: Prompt(GENERATED, request.prompt, request.task, request.prompt),
        _reworded,
        lambda request, number: _two_domains(request, _stranger(requests, number), number),
        lambda request, number: _adversarial(request, number, around),
    )
    return [make(request, number) for make in makers for number, request in enumerate(requests)]


def fresh(task: str, count: int) -> list[Item]:
    """Held-out items that the retraining of the shipped bundle has not drawn."""
    seen = {item.prompt for item in items(task, RETRAINING_HELD_OUT, 0, "held_out")}
    found = (item for item in items(task, 2 * count, SEED, "held_out") if item.prompt not in seen)
    return list(islice(found, count))


def _requests(count: int) -> list[Item]:
    per_task = -(-count // len(TASKS))
    return list(chain.from_iterable(zip(*(fresh(task, per_task) for task in TASKS), strict=True)))[:count]


def _reworded(request: Item, number: int) -> Prompt:
    return Prompt(REWORDED, reword(request.prompt, number, VALIDATING), request.task, request.prompt)


def _stranger(requests: Sequence[Item], number: int) -> Item:
    """Another request, of another task."""
    others = [item for item in requests if item.task != requests[number].task]
    return Random(f"stranger/{number}").choice(others)


def _two_domains(request: Item, other: Item, number: int) -> Prompt:
    rng = Random(f"joined/{number}")
    pair = rng.sample((request.prompt, other.prompt), 2)
    text = rng.choice(_JOINED).format(*pair)
    return Prompt(MIXED_DOMAIN, text, request.task, request.prompt, other.prompt, other.task)


def _adversarial(request: Item, number: int, around: ForeignWords) -> Prompt:
    task = Random(f"other/{number}").choice([task for task in TASKS if task != request.task])
    said = around.put(request.prompt, task, number)
    return Prompt(ADVERSARIAL, said.text, request.task, request.prompt, said.without, task)
