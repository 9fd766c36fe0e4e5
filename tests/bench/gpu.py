"""Everything a GPU is asked about, in one call; where there is none, the same at tiny geometry.

    python -m tests.bench.gpu --device cuda --target 13b --out tests/bench/results/gpu
    python -m tests.bench.gpu --device cpu --target tiny --turns 1 --per-task 1 --max-tokens 8

Needs torch, transformers and peft, no Ray. Prints, and writes as JSON and Markdown: the target's pass by its number of
tokens beside transformers' and beside weight bytes / measured bandwidth; a token of a draft at LLaMA-68M's geometry;
one stream end to end, plain, speculative and transformers' two ways, tokens compared. The target is the shipped one
expanded to LLaMA-2-13B's geometry: the cost is real, the answers are those of 5 million parameters. It has to stay
under 10 minutes, and has not been run on a GPU so far.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.progress import Progress

from core.verify_engine import VerifyConfig
from tests.bench import decode, machine, step
from tests.bench.engines import Engines, processes
from tests.bench.expanded import GEOMETRIES, draft_68m, target
from tests.bench.hugging_face import HuggingFace
from tests.bench.items import GENERAL, draft_directories, held_out
from tests.bench.output import save

TOKENS = (1, 2, 4, 5, 8, 16)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--target", choices=GEOMETRIES, default="13b")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--per-task", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--length", type=int, default=6, help="most tokens proposed for a pass")
    parser.add_argument("--cache", type=Path, default=Path(".cache/bench"))
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/gpu"))
    chosen = parser.parse_args(argv)
    directory = target(chosen.target, chosen.cache)
    with Progress() as progress:
        shown = progress.add_task("passes of target and draft", total=2)
        passes = step.measure(directory, chosen.turns, TOKENS, chosen.device)
        progress.advance(shown)
        draft = step.measure(draft_68m(chosen.cache), chosen.turns, (1,), chosen.device)
        progress.advance(shown)
        places = _decoded(directory, chosen, progress)
    parts = {"target's pass": step.table(passes), "draft's token": step.table(draft), "decoding": decode.table(places)}
    text = "\n\n".join(f"{name}\n\n{table}" for name, table in parts.items())
    text += f"\n\n{chosen.target} target in bf16 on {_name(chosen.device)}, {machine.line()}\n"
    found = {"target": step.as_json(passes), "draft": step.as_json(draft), "decode": decode.as_json(places)}
    save(chosen, "gpu", text, {"name": _name(chosen.device), **found})


def _decoded(directory: Path, chosen: argparse.Namespace, progress: Progress) -> list[decode.Place]:
    """One stream, every contender in turn; transformers and our engines hold a target each."""
    items, drafts = held_out(chosen.per_task), draft_directories()
    used = {label: drafts[label] for label in {GENERAL, decode.MIXED, *(item.slot for item in items)}}
    config = VerifyConfig(max_sessions=4, num_speculative_tokens=chosen.length)
    with (
        HuggingFace(directory, used, chosen.length, torch.get_num_threads(), chosen.device) as theirs,
        Engines(directory, processes(used, chosen.device), config, chosen.device) as engines,
    ):
        contenders = decode.in_process(engines, theirs, chosen.max_tokens)
        return [decode.measure(chosen.device, contenders, items, t, progress) for t in (0.0, 1.0)]


def _name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


if __name__ == "__main__":
    main()
