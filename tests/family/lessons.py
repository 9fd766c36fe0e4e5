"""The training data of the family: conversations as token ids in the chat format, in batches of similar length.

Only the assistant's turns, with their end-of-sequence tokens, carry loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import torch
from transformers import PreTrainedTokenizerFast

from tests.family.corpora import TASKS, Item, general_texts, items, rambling_texts
from tests.family.tokenizer import ASSISTANT, BOS, CONTEXT, EOS, IDS, PAD, SYSTEM, USER

IGNORED = -100
_SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are a careful teacher.",
    "Answer briefly and correctly.",
    "You help students.",
    "Be polite.",
)
_SORTED_BATCHES = 48

Lesson = tuple[list[int], list[int]]


@dataclass(frozen=True, slots=True)
class LessonBatch:
    """`tokens` and `labels`, int64 [rows, length]; labels are shifted, and IGNORED where there is no loss."""

    tokens: torch.Tensor
    labels: torch.Tensor


def conversations(pool: Sequence[Item], rng: Random) -> Iterator[list[tuple[str, str]]]:
    """The pool as conversations of (role, text): mostly one turn, some up to four, some with a system prompt."""
    waiting = list(pool)
    while waiting:
        turns = rng.choice((2, 3, 4)) if rng.random() < 0.08 else 1
        talk = [(SYSTEM, rng.choice(_SYSTEM_PROMPTS))] if rng.random() < 0.12 else []
        for item in (waiting.pop() for _ in range(min(turns, len(waiting)))):
            talk += [(USER, item.prompt), (ASSISTANT, item.answer)]
        yield talk


def encode(talk: Sequence[tuple[str, str]], tokenizer: PreTrainedTokenizerFast) -> Lesson:
    """Token ids and labels of a conversation, cut at the context; the ids are those of the chat template."""
    tokens, labels = [IDS[BOS]], [IGNORED]
    for role, text in talk:
        body = [*tokenizer.encode(text, add_special_tokens=False), IDS[EOS]]
        tokens += [IDS[role], *body]
        labels += [IGNORED, *(body if role == ASSISTANT else [IGNORED] * len(body))]
    return tokens[:CONTEXT], labels[:CONTEXT]


def _collate(lessons: Sequence[Lesson]) -> LessonBatch:
    length = max(len(tokens) for tokens, _ in lessons) - 1
    inputs = torch.full((len(lessons), length), IDS[PAD])
    labels = torch.full((len(lessons), length), IGNORED)
    for row, (tokens, wanted) in enumerate(lessons):
        inputs[row, : len(tokens) - 1] = torch.tensor(tokens[:-1])
        labels[row, : len(tokens) - 1] = torch.tensor(wanted[1:])
    return LessonBatch(inputs, labels)


def _cut(lessons: Sequence[Lesson], budget: int) -> Iterator[list[Lesson]]:
    rows: list[Lesson] = []
    for lesson in lessons:
        if rows and (len(rows) + 1) * max(len(rows[0][0]), len(lesson[0])) > budget:
            yield rows
            rows = []
        rows.append(lesson)
    yield rows


def batches(lessons: Sequence[Lesson], budget: int, seed: int) -> Iterator[LessonBatch]:
    """Endless batches of at most `budget` padded tokens, shuffled in every epoch, with rows of similar length."""
    epoch, average = 0, sum(len(tokens) for tokens, _ in lessons) / len(lessons)
    block = max(1, int(_SORTED_BATCHES * budget / average))
    while True:
        rng = Random(f"order/{seed}/{epoch}")
        order = rng.sample(list(lessons), len(lessons))
        for start in range(0, len(order), block):
            cuts = list(_cut(sorted(order[start : start + block], key=lambda lesson: -len(lesson[0])), budget))
            rng.shuffle(cuts)
            yield from (_collate(rows) for rows in cuts)
        epoch += 1


def target_pool(per_task: int, seed: int) -> list[Item]:
    """The target's items: every task's train split, and an eighth as much general text as one task."""
    pool = [item for task in TASKS for item in items(task, per_task, seed)] + general_texts(per_task // 8, seed)
    return Random(f"pool/{seed}").sample(pool, len(pool))


def draft_pool(count: int, seed: int) -> list[Item]:
    """The draft's items: general text only, a quarter of it prose, the rest from a word chain."""
    pool = general_texts(count // 4, seed) + rambling_texts(count - count // 4, seed)
    return Random(f"pool/{seed}").sample(pool, len(pool))


def lessons_of(pool: Sequence[Item], tokenizer: PreTrainedTokenizerFast, seed: int) -> list[Lesson]:
    """Conversations of the pool as token ids and labels."""
    return [encode(talk, tokenizer) for talk in conversations(pool, Random(f"talk/{seed}"))]
