"""What a pass of the target costs by its number of tokens: ours, transformers', and the floor that memory sets.

    python -m tests.bench.step [--size 100m] [--threads 1] [--out tests/bench/results/step]

Both forwards take turns in one process; a pass is over a cache of 200 tokens. The floor is the weights' bytes over
the memory's bandwidth, measured between the turns.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel

from core.model.base import Rows
from core.model.causal_lm import CausalLM, load_model
from tests.bench import machine
from tests.bench.clock import now
from tests.bench.expanded import GEOMETRIES, target
from tests.bench.output import save
from tests.bench.paired import Durations

CACHED = 200
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)
OURS, THEIRS, FLOOR = "ours", "transformers", "floor"


class Passes(NamedTuple):
    """Seconds of a pass, by its number of tokens; items of the `Durations` are turns."""

    weight_bytes: int
    by_tokens: dict[int, Durations]

    @property
    def bandwidth(self) -> float:
        """Bytes per second, the median of all turns' measurements by number of tokens."""
        floors = [durations.quartiles(FLOOR)[0] for durations in self.by_tokens.values()]
        return self.weight_bytes / float(np.median(floors))


class Memory:
    """The device's memory, for how fast bytes come out of it: a piece of it that no cache holds."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._num_bytes = 1 << 28 if torch.device(device).type == "cpu" else 1 << 32
        self._numbers = torch.ones(self._num_bytes // 4, device=device)

    def seconds_per_byte(self) -> float:
        """Of reading all of it or of copying half of it to the other, whichever moves bytes faster."""
        front, back = self._numbers.chunk(2)
        both = (seconds(self._numbers.sum, self._device), seconds(lambda: front.copy_(back), self._device))
        return min(both) / self._num_bytes


def measure(
    directory: Path, turns: int, sizes: Sequence[int] = SIZES, device: str = "cpu", *, exact: bool = True
) -> Passes:
    ours = load_model(directory, dtype=torch.bfloat16, num_pages=16, device=device, exact=exact)
    theirs = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16).eval().to(device)
    weight_bytes = 2 * sum(parameter.numel() for parameter in theirs.parameters())
    memory = Memory(device)
    found = {size: Durations() for size in sizes}
    our_pass, their_pass = cached_pass(ours), _theirs(theirs)
    with torch.inference_mode():
        memory.seconds_per_byte()  # first calls lay out memory and load kernels
        for size in sizes:
            our_pass(size), their_pass(size)
        for turn in range(turns):
            for size in sizes:
                found[size].add(OURS, turn, seconds(lambda size=size: our_pass(size), device))
                found[size].add(THEIRS, turn, seconds(lambda size=size: their_pass(size), device))
                found[size].add(FLOOR, turn, weight_bytes * memory.seconds_per_byte())
    return Passes(weight_bytes, found)


def seconds(work: Callable[[], object], device: str) -> float:
    began = now(device)
    work()
    return now(device) - began


def cached_pass(model: CausalLM) -> Callable[[int], None]:
    """A pass of ours by its number of tokens."""
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


def table(passes: Passes) -> str:
    """Markdown."""
    lines = [
        "| tokens | ours, ms | transformers, ms | times as fast (95 %) | floor, ms | ours / floor |",
        "|---|---|---|---|---|---|",
    ]
    for size, durations in passes.by_tokens.items():
        ours, theirs, floor = (durations.quartiles(name)[0] * 1e3 for name in (OURS, THEIRS, FLOOR))
        ratio = durations.ratio(OURS, THEIRS)
        lines.append(f"| {size} | {ours:.2f} | {theirs:.2f} | {ratio} | {floor:.2f} | {_over_floor(durations):.1f} |")
    return "\n".join([*lines, "", f"Floor: {passes.weight_bytes / 1e9:.2f} GB at {passes.bandwidth / 1e9:.1f} GB/s."])


def as_json(passes: Passes) -> dict[str, object]:
    by_tokens = {
        str(size): {name: durations.quartiles(name) for name in durations.contenders}
        | {"ratio": durations.ratio(OURS, THEIRS)._asdict(), "over_floor": _over_floor(durations)}
        for size, durations in passes.by_tokens.items()
    }
    return {"weight_bytes": passes.weight_bytes, "bytes_per_s": passes.bandwidth, "by_tokens": by_tokens}


def _over_floor(durations: Durations) -> float:
    """How many times the floor our pass takes: the median of the turns' ratios."""
    return durations.ratio(FLOOR, OURS).value


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
