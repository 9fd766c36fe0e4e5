"""Where task drafts pay, on a real model."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from tests.bench.narrow_tasks import TASKS
from tests.bench.task_drafts_answers import Answers, Sizes
from train_jobs.retrain.pipeline import exclusive


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.task_drafts", description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--prompts", type=Path)
    parser.add_argument("--target", default="smollm2:target")
    chosen = parser.parse_args(argv)
    torch.set_num_threads(1)
    with exclusive(chosen.work):
        answers = Answers(chosen.work / "answers", chosen.target, chosen.prompts, Sizes())
        missing, began = answers.missing(TASKS), time.monotonic()
        print(f"{len(missing)} shards of answers to make", flush=True)
        for done, shard in enumerate(missing, 1):
            answers.make(shard, lambda _: None)
            each = (time.monotonic() - began) / done
            print(f"{shard.name}: {each:.0f} s each, {each * (len(missing) - done) / 60:.0f} min left", flush=True)


if __name__ == "__main__":
    main()
