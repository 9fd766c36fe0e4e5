"""What exact numerics cost beside fast ones, and what they give: by the target's passes, and by their bits.

Enters: a model directory and a device. Leaves: seconds of passes that took turns, and at how many positions the logits
hang on the pass they come out of. On a CPU both are the same model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from core.model import invariance
from core.model.causal_lm import load_model
from tests.bench.paired import Durations, rotated
from tests.bench.step import PAGES, Shape, cached_pass, seconds

EXACT, FAST = "exact", "fast"


class Numerics(NamedTuple):
    """Of both, by the number of a pass's tokens; items of the `Durations` are turns."""

    differing: dict[str, invariance.Found]
    by_tokens: dict[int, Durations]


def measure(directory: Path, turns: int, warm_up: int, sizes: Sequence[int], device: str) -> Numerics:
    models = {
        name: load_model(directory, dtype=torch.bfloat16, num_pages=PAGES, device=device, exact=name == EXACT)
        for name in (EXACT, FAST)
    }
    found = {name: invariance.differing(model) for name, model in models.items()}
    passes = {name: cached_pass(model) for name, model in models.items()}
    by_tokens = {size: Durations() for size in sizes}
    for turn in range(warm_up + turns):
        for size, durations in by_tokens.items():
            for name in rotated(list(passes), turn):
                taken = seconds(lambda name=name, size=size: passes[name](Shape(1, size)), device)
                if turn >= warm_up:
                    durations.add(name, turn, taken)
    return Numerics(found, by_tokens)


def table(numerics: Numerics) -> str:
    """Markdown."""
    lines = ["| tokens | exact, ms | fast, ms | fast, times as fast (95 %) |", "|---|---|---|---|"]
    for size, durations in numerics.by_tokens.items():
        exact, fast = (1e3 * durations.quartiles(name)[0] for name in (EXACT, FAST))
        lines.append(f"| {size} | {exact:.2f} | {fast:.2f} | {durations.ratio(FAST, EXACT)} |")
    told = ", ".join(f"{name}: {found.differing} of {found.positions}" for name, found in numerics.differing.items())
    return "\n".join([*lines, "", f"Positions whose logits hang on the pass they come out of: {told}."])


def as_json(numerics: Numerics) -> dict[str, object]:
    by_tokens = {
        str(size): {name: durations.quartiles(name) for name in durations.contenders}
        | {"ratio": durations.ratio(FAST, EXACT)._asdict()}
        for size, durations in numerics.by_tokens.items()
    }
    return {"differing": {name: found._asdict() for name, found in numerics.differing.items()}, "by_tokens": by_tokens}
