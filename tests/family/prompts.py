"""Writes prompts of the family as the JSONL files that a configuration may name: `python -m tests.family.prompts FILE`.

A line is a request of a task, labelled with it, or without a label a text of no task, in a form that clients send.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Literal

from tests.family.corpora import TASKS, general_texts, items

_SYSTEM_PROMPTS = ("You are a helpful assistant.", "Answer briefly.", "You help people with their questions.")


def write_prompts(
    file: Path, tasks: Sequence[str], count: int, seed: int = 0, split: Literal["train", "held_out"] = "train"
) -> Path:
    """`count` prompts of each of these tasks, shuffled."""
    pool = [item for task in tasks for item in items(task, count, seed, split)]
    Random(f"{split}/{seed}").shuffle(pool)
    return _write(file, ({"instruction": item.prompt, "task": item.task} for item in pool))


def write_general(file: Path, count: int, seed: int = 0) -> Path:
    """`count` prompts of no task: the request of a general text, the text, or a piece of it."""
    return _write(file, _general(count, Random(f"general/{seed}")))


def _general(count: int, rng: Random) -> Iterable[dict[str, Any]]:
    for item in general_texts(count, rng.randrange(2**31)):
        words = item.answer.split(" ")
        start = rng.randrange(len(words))
        piece = " ".join(words[start : start + rng.randint(3, 60)])
        text, form = rng.choice((item.prompt, item.answer, piece)), rng.random()
        system = [{"role": "system", "content": rng.choice(_SYSTEM_PROMPTS)}] if form < 0.3 else []
        user = {"role": "user", "content": text}
        yield {"prompt": text} if form < 0.15 else {"messages": [*system, user]}


def _write(file: Path, lines: Iterable[dict[str, Any]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return file


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.family.prompts", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", type=int, default=1000, help="of each task, or of no task (default: %(default)s)")
    parser.add_argument("--general", action="store_true", help="prompts of no task")
    arguments = parser.parse_args(argv)
    if arguments.general:
        write_general(arguments.file, arguments.count)
    else:
        write_prompts(arguments.file, TASKS, arguments.count)


if __name__ == "__main__":
    main()
