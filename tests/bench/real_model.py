"""Decoding a real model, SmolLM2-135M-Instruct: ours over HTTP, transformers and llama.cpp, in turns on one machine.

    python -m tests.bench.real_model [--retraining train_jobs/configs/smollm2.yaml] [--streams 1 4 8 16]

Every prompt is answered by all contenders in turn, each time in another order. Ours are the service of a configuration
over HTTP, without speculation and as it decides: with its draft and what it looks up in the text. transformers
generates in bfloat16, plainly, assisted by the same draft, and by its prompt lookup. llama.cpp decodes the 4-bit file,
if llama-cpp-python is installed. All of ours must give the same tokens; where they do not, it says so and fails. With
more than one stream only ours are measured, by what `taskspec bench` is made of.

The prompts are those of the test split of the retraining that made the draft: nothing was trained or chosen on them.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from core.errors import TaskSpecError
from serve_app.terminal.progress import step


def options() -> argparse.ArgumentParser:
    cores = len(os.sched_getaffinity(0))
    about = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m tests.bench.real_model", description=about)
    retraining = Path("train_jobs/configs/smollm2.yaml")
    parser.add_argument("--retraining", type=Path, default=retraining, help="its `collect.files` have the prompts")
    parser.add_argument("--config", default="smollm2", help="of the service: a shipped name or a YAML file")
    parser.add_argument("--per-task", type=int, default=4, help="prompts of each file")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("--streams", type=int, nargs="+", default=[1], help="above 1: ours alone, under load")
    parser.add_argument("--their-threads", type=int, default=cores, help="of transformers and llama.cpp")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/real_model"))
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    chosen, console = options().parse_args(argv), Console(stderr=True)
    with step(console, "Loading torch and Ray"):  # takes seconds, and again in every process if it were done above
        from tests.bench.real_model_run import run
    try:
        run(chosen, console)
    except TaskSpecError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
