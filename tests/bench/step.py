"""What a pass of the target costs by its number of tokens: ours, transformers', and the floor that memory sets.

    python -m tests.bench.step [--size 100m] [--threads 1] [--out tests/bench/results/step]

Both forwards take turns in one process; a pass is over a cache of 200 tokens. The floor is the weights' bytes over
the bandwidth measured between the turns by reading as many bytes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel

from core.model.base import Rows
from core.model.causal_lm import CausalLM, load_model
from tests.bench import machine
from tests.bench.expanded import GEOMETRIES, target
from tests.bench.output import save
from tests.bench.paired import Durations

CACHED = 200
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)
OURS, THEIRS, FLOOR = "ours", "transformers", "floor"


def measure(directory: Path, turns: int, sizes: Sequence[int] = SIZES, device: str = "cpu") -> dict[int, Durations]:
    """Seconds of a pass, by its number of tokens; items of the `Durations` are turns."""
    ours = load_model(directory, dtype=torch.bfloat16, num_pages=16, device=device)
    theirs = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16).eval().to(device)
    num_bytes = 2 * sum(parameter.numel() for parameter in theirs.parameters())
    stream = torch.ones(num_bytes // 4, device=device)
    found = {size: Durations() for size in sizes}
    our_pass, their_pass = _ours(ours), _theirs(theirs)
    with torch.inference_mode():
        for size in sizes:
            our_pass(size), their_pass(size)
        for turn in range(turns):
            for size in sizes:
                found[size].add(OURS, turn, _seconds(lambda size=size: our_pass(size)))
                found[size].add(THEIRS, turn, _seconds(lambda size=size: their_pass(size)))
                found[size].add(FLOOR, turn, _seconds(stream.sum))
    return found


def _seconds(work: Callable[[], object]) -> float:
    _settle()
    began = time.perf_counter()
    work()
    _settle()
    return time.perf_counter() - began


def _settle() -> None:
    """Wait for what a GPU still does."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _ours(model: CausalLM) -> Callable[[int], None]:
    model.open(0)
    model.forward([Rows(0, range(5, 5 + CACHED), 0)])

    def one_pass(size: int) -> None:
        model.forward([Rows(0, range(9, 9 + size), size)])
        model.rollback(0, CACHED)

    return one_pass


def _theirs(model: PreTrainedModel) -> Callable[[int], None]:
    cache = DynamicCache(config=model.config)
    with torch.inference_mode():
        model(torch.arange(5, 5 + CACHED, device=model.device)[None], past_key_values=cache)

    def one_pass(size: int) -> None:
        model(torch.arange(9, 9 + size, device=model.device)[None], past_key_values=cache)
        cache.crop(-size)

    return one_pass


def table(found: dict[int, Durations]) -> str:
    """Markdown."""
    lines = [
        "| tokens | ours, ms | transformers, ms | times as fast (95 %) | floor, ms | ours / floor |",
        "|---|---|---|---|---|---|",
    ]
    for size, durations in found.items():
        (ours, *_), (theirs, *_), (floor, *_) = (durations.quartiles(name) for name in (OURS, THEIRS, FLOOR))
        ratio = durations.ratio(OURS, THEIRS)
        lines.append(
            f"| {size} | {ours * 1e3:.1f} | {theirs * 1e3:.1f} | {ratio} | {floor * 1e3:.1f} | {ours / floor:.1f} |"
        )
    return "\n".join(lines)


def as_json(found: dict[int, Durations]) -> dict[str, object]:
    return {
        str(size): {name: durations.quartiles(name) for name in durations.contenders}
        | {"ratio": durations.ratio(OURS, THEIRS)._asdict()}
        for size, durations in found.items()
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.step", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=GEOMETRIES, default="100m", help="parameters of the expanded target")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--cache", type=Path, default=Path(".cache/bench"), help="where expanded targets are kept")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/step"))
    chosen = parser.parse_args(argv)
    torch.set_num_threads(chosen.threads)
    found = measure(target(chosen.size, chosen.cache), chosen.turns)
    text = f"{table(found)}\n\n{chosen.size} target in bf16, {chosen.threads} thread(s), {machine.line()}\n"
    save(chosen, "step", text, {"passes": as_json(found)})


if __name__ == "__main__":
    main()
