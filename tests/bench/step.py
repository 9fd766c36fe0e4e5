"""What a pass of the target costs by its sessions and tokens: ours, transformers', and the floor that memory sets.

    python -m tests.bench.step [--size 100m] [--threads 1] [--sessions 1 2 4 8] [--out tests/bench/results/step]

Both forwards take turns in one process; every session has 200 tokens in the cache, no two the same. The floor is the
weights' bytes over the memory's bandwidth, measured between the turns.
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
from tests.bench.expanded import GEOMETRIES, target
from tests.bench.machine import now
from tests.bench.output import save
from tests.bench.paired import Durations

CACHED = 200
PAGES, HELD = 16, 4  # of a model, and how many sessions they hold with a pass's tokens
TOKENS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)
OURS, THEIRS, FLOOR = "ours", "transformers", "floor"


class Shape(NamedTuple):
    """What a pass computes: as many `tokens` of each of its `sessions`."""

    sessions: int
    tokens: int


class Passes(NamedTuple):
    """Seconds of a pass, by its shape; items of the `Durations` are turns."""

    weight_bytes: int
    by_shape: dict[Shape, Durations]

    @property
    def bandwidth(self) -> float:
        """Bytes per second, the median of all turns' measurements by shape."""
        floors = [durations.quartiles(FLOOR)[0] for durations in self.by_shape.values()]
        return self.weight_bytes / float(np.median(floors))

    def by_tokens(self, sessions: int) -> dict[int, Durations]:
        """Of passes of so many sessions, by the tokens of each."""
        return {shape.tokens: durations for shape, durations in self.by_shape.items() if shape.sessions == sessions}

    @property
    def sessions(self) -> Sequence[int]:
        return sorted({shape.sessions for shape in self.by_shape})


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


def measure(directory: Path, turns: int, shapes: Sequence[Shape], device: str = "cpu", *, exact: bool = True) -> Passes:
    most = max(shape.sessions for shape in shapes)
    ours = load_model(directory, dtype=torch.bfloat16, num_pages=PAGES * -(-most // HELD), device=device, exact=exact)
    theirs = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16).eval().to(device)
    weight_bytes = 2 * sum(parameter.numel() for parameter in theirs.parameters())
    memory = Memory(device)
    found = {shape: Durations() for shape in shapes}
    our_pass, their_pass = cached_pass(ours, most), _theirs(theirs)
    with torch.inference_mode():
        memory.seconds_per_byte()  # first calls lay out memory and load kernels
        for shape in shapes:
            our_pass(shape), their_pass(shape)
        for turn in range(turns):
            for shape in shapes:
                found[shape].add(OURS, turn, seconds(lambda shape=shape: our_pass(shape), device))
                found[shape].add(THEIRS, turn, seconds(lambda shape=shape: their_pass(shape), device))
                found[shape].add(FLOOR, turn, weight_bytes * memory.seconds_per_byte())
    return Passes(weight_bytes, found)


def seconds(work: Callable[[], object], device: str) -> float:
    began = now(device)
    work()
    return now(device) - began


def cached_pass(model: CausalLM, most: int = 1) -> Callable[[Shape], None]:
    """A pass of ours by its shape, of up to `most` sessions."""
    for session in range(most):
        model.open(session)
        model.forward([Rows(session, _cached(session), 0)])

    def one_pass(shape: Shape) -> None:
        model.forward([Rows(session, _new(shape.tokens), shape.tokens) for session in range(shape.sessions)])
        for session in range(shape.sessions):
            model.rollback(session, CACHED)

    return one_pass


def _theirs(model: PreTrainedModel) -> Callable[[Shape], None]:
    caches: dict[int, DynamicCache] = {}  # by the number of sessions

    def one_pass(shape: Shape) -> None:
        if shape.sessions not in caches:
            caches[shape.sessions] = DynamicCache(config=model.config)
            cached = torch.tensor([_cached(session) for session in range(shape.sessions)], device=model.device)
            model(cached, past_key_values=caches[shape.sessions])
        new = torch.tensor([_new(shape.tokens)] * shape.sessions, device=model.device)
        model(new, past_key_values=caches[shape.sessions])
        caches[shape.sessions].crop(-shape.tokens)

    return one_pass


def _cached(session: int) -> range:
    """Tokens that begin otherwise than any other session's: equal beginnings would share their pages."""
    return range(5 + session, 5 + session + CACHED)


def _new(tokens: int) -> range:
    return range(9, 9 + tokens)


def table(passes: Passes) -> str:
    """Markdown: passes of one session, then, where there are such, of several beside them."""
    lines = [
        "| tokens | ours, ms | transformers, ms | times as fast (95 %) | floor, ms | ours / floor |",
        "|---|---|---|---|---|---|",
    ]
    for tokens, durations in passes.by_tokens(1).items():
        ours, theirs, floor = (durations.quartiles(name)[0] * 1e3 for name in (OURS, THEIRS, FLOOR))
        ratio = durations.ratio(OURS, THEIRS)
        lines.append(f"| {tokens} | {ours:.2f} | {theirs:.2f} | {ratio} | {floor:.2f} | {_over_floor(durations):.1f} |")
    lines += ["", f"Floor: {passes.weight_bytes / 1e9:.2f} GB at {passes.bandwidth / 1e9:.1f} GB/s."]
    return "\n".join([*lines, *(["", *_batches(passes)] if len(passes.sessions) > 1 else [])])


def _batches(passes: Passes) -> list[str]:
    """Lines of Markdown."""
    lines = [
        f"| tokens of each | {' | '.join(map(_counted, passes.sessions))} |",
        "|---|" + "---|" * len(passes.sessions),
    ]
    for tokens in passes.by_tokens(1):
        found = [passes.by_shape[Shape(sessions, tokens)] for sessions in passes.sessions]
        cells = [
            f"{durations.quartiles(OURS)[0] * 1e3:.1f}; {durations.ratio(OURS, THEIRS).value:.2f}; "
            f"{_over_floor(durations):.1f}"
            for durations in found
        ]
        lines.append(f"| {tokens} | {' | '.join(cells)} |")
    return [*lines, "", "Every cell: ours in ms; how many times as fast as transformers; ours / floor."]


def _counted(sessions: int) -> str:
    return f"{sessions} session{'s' if sessions > 1 else ''}"


def as_json(passes: Passes) -> dict[str, object]:
    by_shape = [
        shape._asdict()
        | {name: durations.quartiles(name) for name in durations.contenders}
        | {"ratio": durations.ratio(OURS, THEIRS)._asdict(), "over_floor": _over_floor(durations)}
        for shape, durations in passes.by_shape.items()
    ]
    return {"weight_bytes": passes.weight_bytes, "bytes_per_s": passes.bandwidth, "by_shape": by_shape}


def _over_floor(durations: Durations) -> float:
    """How many times the floor our pass takes: the median of the turns' ratios."""
    return durations.ratio(FLOOR, OURS).value


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.step", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=GEOMETRIES, default="100m", help="parameters of the expanded target")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 2, 4, 8], help="of a pass; one beside those")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--cache", type=Path, default=Path(".cache/bench"), help="where expanded targets are kept")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/step"))
    chosen = parser.parse_args(argv)
    torch.set_num_threads(chosen.threads)
    shapes = [Shape(sessions, tokens) for sessions in sorted({1, *chosen.sessions}) for tokens in TOKENS]
    found = measure(target(chosen.size, chosen.cache), chosen.turns, shapes)
    target_is = f"{chosen.size} target in bf16, {chosen.threads} thread(s)"
    save(chosen, "step", f"{table(found)}\n\n{target_is}, {machine.line()}\n", {"passes": as_json(found)})


if __name__ == "__main__":
    main()
