"""Records rounds for `tests.bench.policy`: the drafts on answers of the shipped target, and what passes take here."""

from __future__ import annotations

import time
from bisect import bisect
from collections.abc import Sequence
from pathlib import Path

import torch

from core.draft.token_confidence import EDGES
from core.family import TARGET_DIR
from core.model.base import Model, Rows
from core.model.causal_lm import load_model
from core.model.draft_tokens import StopRule
from core.policy.cost_model import PROFILED_ROWS, PassCosts, profile
from tests.bench import machine
from tests.bench.engines import ShippedDraft
from tests.bench.expanded import target, useless_draft
from tests.bench.items import GENERAL, Item, draft_directories, held_out
from tests.bench.policy import LENGTH, Answer, Draft, Recorded

TOKENS = 48  # of an answer
PER_TASK = 4
TRIP, CONTENTION = 0.0003, 0.01  # seconds, share per session drafted for: measured by `rounds` and `streams` (Zen 5)


def record(cache: Path) -> Recorded:
    """Some answers of each task, by their own draft, the un-adapted one and a useless one."""
    torch.set_num_threads(1)
    model = load_model(TARGET_DIR, dtype=torch.float32, num_pages=64)
    items = held_out(PER_TASK)
    directories = draft_directories() | {"useless": str(useless_draft(cache))}
    wanted = {item.slot for item in items} | {GENERAL, "useless"}
    drafts = {label: ShippedDraft(directories[label]).load() for label in wanted}
    answers = tuple(_answer(item, _greedy(model, item.tokens), drafts) for item in items)
    costs = PassCosts()
    profile(load_model(target("100m", cache), dtype=torch.bfloat16, num_pages=64), time.monotonic, costs)
    seconds = {rows: costs.seconds(rows) for rows in (*PROFILED_ROWS, 96, 128)}
    return Recorded(machine.line(), seconds, _token_seconds(drafts[GENERAL]), TRIP, CONTENTION, answers)


def _greedy(model: Model, prompt: Sequence[int]) -> tuple[int, ...]:
    """The prompt with the target's answer."""
    model.open(1)
    fed, tokens = list(prompt), list(prompt)
    for _ in range(TOKENS):
        token = int(model.forward([Rows(1, fed, 1)])[0].argmax())
        fed = [token]
        tokens.append(token)
    model.close(1)
    return tuple(tokens)


def _answer(item: Item, tokens: tuple[int, ...], drafts: dict[str, Model]) -> Answer:
    labels = {item.slot, GENERAL, "useless"}
    found = {label: _drafted(drafts[label], tokens, len(item.tokens)) for label in sorted(labels)}
    return Answer(item.task, item.slot, found)


def _drafted(model: Model, tokens: tuple[int, ...], prompt: int) -> Draft:
    accepted: list[int] = []
    margins: list[tuple[int, ...]] = []
    model.open(1)
    for position in range(prompt, len(tokens)):
        fed = tokens[model.num_cached(1) : position]
        [line] = model.draw([Rows(1, fed, 1)], LENGTH, model.vocab_size, None, StopRule.never(1))
        pairs = zip(line, tokens[position:], strict=False)
        accepted.append(next((at for at, (drafted, token) in enumerate(pairs) if drafted.token != token), LENGTH))
        accepted[-1] = min(accepted[-1], len(tokens) - position)
        margins.append(tuple(bisect(EDGES, drafted.margin) for drafted in line))
        model.rollback(1, position)
    model.close(1)
    return Draft(tuple(accepted), tuple(margins))


def _token_seconds(model: Model) -> float:
    """The least of some draws of a proposal, per token."""
    model.open(1)
    least = float("inf")
    for _ in range(200):
        length = model.num_cached(1)
        began = time.monotonic()
        [line] = model.draw([Rows(1, [5], 1)], LENGTH, model.vocab_size, None, StopRule.never(1))
        least = min(least, (time.monotonic() - began) / len(line))
        model.rollback(1, length if length > 128 else length + 1)
    model.close(1)
    return least
