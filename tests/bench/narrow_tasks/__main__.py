"""Writes the prompts of every task that can be made here, a JSONL file each; see the package."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.bench.narrow_tasks import TASKS, write_prompts


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.narrow_tasks", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--prompts", type=Path, help="where the sets of prompts lie that some tasks read")
    parser.add_argument("--count", type=int, default=360, help="prompts of each task")
    chosen = parser.parse_args()
    chosen.directory.mkdir(parents=True, exist_ok=True)
    for task in TASKS:
        if task.inputs is None or chosen.prompts is not None:
            write_prompts(task, chosen.directory / f"{task.name}.jsonl", chosen.count, chosen.prompts)


if __name__ == "__main__":
    main()
