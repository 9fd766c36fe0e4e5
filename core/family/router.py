"""The one command that trains the family's router on the task labels its generators know.

In: the shipped tokenizer and the corpora. Out: `models/router`, for `core.classifier`.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Literal

import torch

from core.classifier import GENERAL, TaskClassifier
from core.classifier_training import Example, Recipe, accuracy, train_classifier
from core.family import ROUTER_DIR, TARGET_DIR
from core.family.corpora import TASKS, general_texts, items
from core.family.tokenizer import VOCAB_SIZE
from core.tokenizer import Tokenizer, load_tokenizer

PROMPTS_PER_TASK = 1500
HELD_OUT_PER_TASK = 100
_SYSTEM_PROMPTS = ("You are a helpful assistant.", "Answer briefly.", "You help people with their questions.")
_log = logging.getLogger(__name__)

Split = Literal["train", "held_out"]


def prompts(per_task: int, seed: int, split: Split, tokenizer: Tokenizer) -> list[Example]:
    """Prompts of every task as clients send them, and twice as many general texts as a task has prompts.

    General text of a split comes from a seed of its own. The order is random.
    """
    rng = Random(f"router/{split}/{seed}")
    texts = [(item.prompt, task) for task in TASKS for item in items(task, per_task, seed, split)]
    texts += [(text, GENERAL) for text in _general(2 * per_task, f"{split}/{seed}")]
    rng.shuffle(texts)
    return [(_as_sent(text, rng, tokenizer), task) for text, task in texts]


def _general(count: int, seed: str) -> list[str]:
    """General texts that a client might send as a prompt: the request, the text, or a piece of it."""
    rng = Random(f"general/{seed}")
    found = []
    for item in general_texts(count, rng.randrange(2**31)):
        words = item.answer.split(" ")
        start = rng.randrange(len(words))
        piece = " ".join(words[start : start + rng.randint(3, 60)])
        found.append(rng.choice((item.prompt, item.answer, piece)))
    return found


def _as_sent(text: str, rng: Random, tokenizer: Tokenizer) -> list[int]:
    """Token ids of a prompt: mostly one chat message, at times under a system prompt, at times bare."""
    form = rng.random()
    if form < 0.15:
        return tokenizer.encode_text(text)
    system = [{"role": "system", "content": rng.choice(_SYSTEM_PROMPTS)}] if form < 0.3 else []
    return tokenizer.encode_chat([*system, {"role": "user", "content": text}])


def train_router(seed: int = 0, recipe: Recipe | None = None) -> TaskClassifier:
    """Train and calibrate the family's router; two to three minutes on one core."""
    tokenizer = load_tokenizer(TARGET_DIR)
    held_out = prompts(HELD_OUT_PER_TASK, seed, "held_out", tokenizer)
    classifier = train_classifier(prompts(PROMPTS_PER_TASK, seed, "train", tokenizer), held_out, VOCAB_SIZE, recipe)
    for name, wanted in (("tasks", set(TASKS)), (GENERAL, {GENERAL})):
        kept = [example for example in held_out if example[1] in wanted]
        _log.info("held-out %s: %.3f of %d right", name, accuracy(classifier, kept), len(kept))
    return classifier


def main(argv: Sequence[str] | None = None) -> None:
    """Train the router and write it."""
    parser = argparse.ArgumentParser(prog="python -m core.family.router", description=__doc__)
    parser.add_argument("--to", type=Path, default=ROUTER_DIR, help="where it is written (default: the shipped one)")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)  # so that it repeats
    train_router().save(arguments.to)
    _log.info("written to %s", arguments.to)


if __name__ == "__main__":
    main()
