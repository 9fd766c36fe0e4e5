"""How much of the drafting is hidden by drafting on while the target verifies.

    python -m tests.bench.overlap [--fades 4] [--length 3] [--out tests/bench/results/overlap]

In process, one stream, a thread each for the target and the drafts: the shipped target at 100 million parameters,
and as the draft the shipped target itself, which is always right, made wrong by a seeded die where it is unsure, as the
shipped drafts are: the less a token leads the next best, the more often. There the right token is its second, third or
fourth choice as often as the shipped drafts', and none that it prepares for elsewhere. The same draft answers every
prompt twice in turns, serially and ahead. The hidden share is (seconds serially - seconds ahead) / (tokens proposed
serially * seconds of a token drafted meanwhile); where a proposal is ready, what goes with drafting it is saved, too.
The shipped draft, which costs next to nothing, is measured the same way and should lose nothing.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from rich.progress import Progress

from core.family import TARGET_DIR
from core.generation import GenerationRequest
from core.guess import RUNNERS_UP, Ending, Guess
from core.model.base import Model, Rows, one_by_one
from core.model.causal_lm import load_model
from core.sampling_params import SamplingParams
from core.verify_engine import VerifyConfig
from tests.bench import machine
from tests.bench.engines import Asked, DraftProcess, Engines, ShippedDraft
from tests.bench.expanded import GEOMETRIES, target
from tests.bench.items import Item, draft_directories, held_out
from tests.bench.output import save
from tests.bench.paired import Durations, Ratio, rotated
from tests.bench.timed_models import PREFILLING, Spans, TimedModel

DOUBT = 0.7  # as the shipped drafts, whose doubt fades by 2.5 (core.confidence)
SERIAL, AHEAD, SHIPPED_SERIAL, SHIPPED_AHEAD = "serial", "ahead", "shipped, serial", "shipped, ahead"


class Flawed:
    """A model whose best token is made its second, third, fourth or fifth choice where a die says so.

    As with real drafts that is the rarer the more the token leads: `DOUBT` of those without a lead, e times less for
    every `fades` logits.
    """

    def __init__(self, model: Model, fades: float) -> None:
        self._model = model
        self._fades = fades
        dice = np.random.default_rng(0)
        self._dice = dice.random(model.context + 1)
        shares = (*RUNNERS_UP, 1 - sum(RUNNERS_UP))
        self._ranks = 1 + dice.choice(len(shares), model.context + 1, p=shares)

    def __getattr__(self, name: str) -> object:
        return getattr(self._model, name)

    @torch.inference_mode()
    def forward(self, batch: Sequence[Rows]) -> torch.Tensor:
        logits = self._model.forward(batch)
        row = 0
        for rows in batch:
            end = self._model.num_cached(rows.session)
            for position in range(end - rows.num_logits, end):
                best, second = logits[row].topk(2).values.tolist()
                if self._dice[position] < DOUBT * math.exp((second - best) / self._fades):
                    _demote(logits[row], int(self._ranks[position]))
                row += 1
        return logits

    def draw(
        self, batch: Sequence[Rows], steps: int, num_ids: int, noise: torch.Tensor | None, ending: Ending
    ) -> list[list[Guess]]:
        return one_by_one(self, batch, steps, num_ids, noise, ending)  # type: ignore[arg-type]


def _demote(logits: torch.Tensor, rank: int) -> None:
    """The best of `logits` [V] comes after `rank` others; the draft seems as sure of itself as it would be."""
    values, ids = logits.topk(2 + len(RUNNERS_UP))
    logits[ids[: rank + 1]] = values[: rank + 1].roll(1)


@dataclass(frozen=True)
class FlawedTarget:
    """The shipped target as a draft that is wrong where it is unsure."""

    fades: float

    def load(self) -> Model:
        model = load_model(TARGET_DIR, dtype=torch.float32, num_pages=64)
        return Flawed(model, self.fades)  # type: ignore[return-value]


@dataclass(frozen=True)
class Found:
    """`draft_share` is the seconds of a drafted proposal over those of a target pass."""

    hidden: Ratio
    draft_share: float
    foreseen: float
    ahead: Ratio
    shipped: Ratio


def measure(engines: Engines, items: Sequence[Item], forwards: Spans, max_tokens: int, progress: Progress) -> Found:
    """`forwards` are those of the serial draft."""
    durations, drafting = Durations(), {}
    contenders = (SERIAL, AHEAD, SHIPPED_SERIAL, SHIPPED_AHEAD)
    shown = progress.add_task("overlap", total=len(items) * len(contenders))
    shares: list[float] = []
    noted = 0
    for item in items:
        params = SamplingParams(seed=item.number, max_tokens=max_tokens, temperature=0.0)
        request = GenerationRequest(tokens=item.tokens, prompt_length=len(item.tokens), params=params)
        [plain] = engines.answer([Asked(request, None)])
        target_pass = (plain.seconds - plain.first) / max(1, plain.passes)
        for contender in rotated(contenders, item.number):
            [answered] = engines.answer([Asked(request, contender)])
            if answered.tokens != plain.tokens:
                raise SystemExit(f"answers differ: {contender}, {item.prompt!r}")
            durations.add(contender, item.number, answered.seconds)
            if contender == SERIAL:
                spans = forwards.noted()[noted:]
                noted += len(spans)
                drawing = spans[1:]  # the first reads the prompt; a short answer may need no other
                if answered.proposed and drawing:
                    token = sum(span.seconds for span in drawing) / sum(span.tokens for span in drawing)
                    drafting[item.number] = answered.proposed * token
                    shares.append(drafting[item.number] / max(1, answered.passes) / target_pass)
            progress.advance(shown)
    if not drafting:
        raise SystemExit("no drafting to measure: answers are short, or beside this target the draft is too slow")
    counts = engines.counts(AHEAD)
    return Found(
        hidden=durations.saved(AHEAD, SERIAL, drafting),
        draft_share=float(np.median(shares)),
        foreseen=counts["rounds_foreseen"] / max(1, counts["rounds"]),
        ahead=durations.ratio(AHEAD, SERIAL),
        shipped=durations.ratio(SHIPPED_AHEAD, SHIPPED_SERIAL),
    )


def table(found: Found) -> str:
    """Markdown."""
    rows = {
        "a proposal's drafting / a target pass": f"{found.draft_share:.2f}",
        "hidden share of drafting (95 %)": str(found.hidden),
        "commits foreseen, their answer drafted already": f"{found.foreseen:.2f}",
        "ahead, times serial": str(found.ahead),
        "the shipped draft, ahead, times serial": str(found.shipped),
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.overlap", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=GEOMETRIES, default="100m", help="parameters of the expanded target")
    parser.add_argument(
        "--fades", type=float, default=4.0, help="logits; with 4 the draft is right at 0.85 of positions"
    )
    parser.add_argument("--length", type=int, default=3, help="most tokens proposed for a pass")
    parser.add_argument("--per-task", type=int, default=4)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--cache", type=Path, default=Path(".cache/bench"), help="where expanded targets are kept")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/overlap"))
    chosen = parser.parse_args(argv)
    torch.set_num_threads(1)
    items = held_out(chosen.per_task)
    flawed, shipped = FlawedTarget(chosen.fades), ShippedDraft(draft_directories()["general"])
    forwards = Spans(len(items) * (PREFILLING + chosen.max_tokens * (chosen.length + 1)))
    drafts = {
        SERIAL: DraftProcess(SERIAL, TimedModel(flawed, forwards, sorted(os.sched_getaffinity(0))), serial=True),
        AHEAD: DraftProcess(AHEAD, flawed),
        SHIPPED_SERIAL: DraftProcess(SHIPPED_SERIAL, shipped, serial=True),
        SHIPPED_AHEAD: DraftProcess(SHIPPED_AHEAD, shipped),
    }
    config = VerifyConfig(max_sessions=4, num_speculative_tokens=chosen.length)
    with Engines(target(chosen.size, chosen.cache), drafts, config) as engines, Progress() as progress:
        found = measure(engines, items, forwards, chosen.max_tokens, progress)
    text = f"{table(found)}\n\n{chosen.size} target in bf16, {machine.line()}\n"
    save(chosen, "overlap", text, {"found": asdict(found)})


if __name__ == "__main__":
    main()
