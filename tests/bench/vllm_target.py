"""A target in vLLM: whether its answers depend on drafts, and what they gain, beside vLLM's own drafts and our decoder.

    make vllm && build/vllm/bin/python -m tests.bench.vllm_target [--asked 100] [--per-task 3] [--streams 8]

First so many prompts are answered over HTTP, eight at a time, at temperatures 0, 0.7 and 1 in turn: without drafts, as
the service decides, with 1 and with 6 tokens drafted for every pass, and while the draft's replica is killed every 20
seconds. Then all contenders answer prompts in turns, one at a time: vLLM in a process of its own, plainly and with
its n-gram drafts, TaskSpec over vLLM, and TaskSpec with its own decoder. Last, both services answer many streams.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from core.errors import TaskSpecError
from serve_app.terminal.progress import step


def options() -> argparse.ArgumentParser:
    about = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m tests.bench.vllm_target", description=about)
    retraining = Path("train_jobs/configs/smollm2.yaml")
    parser.add_argument("--retraining", type=Path, default=retraining, help="its `collect.files` have the prompts")
    parser.add_argument("--config", default="smollm2", help="of the service: a shipped name or a YAML file")
    parser.add_argument("--asked", type=int, default=100, help="prompts whose answers are compared")
    parser.add_argument("--per-task", type=int, default=3, help="prompts of each file that are timed")
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("--streams", type=int, nargs="*", default=[8])
    parser.add_argument("--threads", type=int, default=1, help="of each target")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/vllm_target"))
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    chosen, console = options().parse_args(argv), Console(stderr=True)
    with step(console, "Loading torch and Ray"):
        from tests.bench.vllm_target_run import run
    try:
        run(chosen, console)
    except TaskSpecError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
