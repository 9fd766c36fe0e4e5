"""How much of the drafting is hidden by drafting on while the target verifies.

    python -m tests.bench.overlap [--fades 4] [--length 3] [--share 0.5] [--out tests/bench/results/overlap]

In process, one stream, a thread each for the target and the drafts: the shipped target at 100 million parameters,
and as the draft the shipped target itself, which is always right, made wrong by a seeded die where it is unsure, as the
shipped drafts are: the less a token leads the next best, the more often. There the right token is its second, third or
fourth choice as often as the shipped drafts', and none that it prepares for elsewhere. The same draft answers every
prompt twice in turns, serially and ahead. The hidden share is (seconds serially - seconds ahead) / (tokens proposed
serially * seconds of a token drafted meanwhile); where a proposal is ready, what goes with drafting it is saved, too.

That draft is measured in two places. `beside` the target it reads its 20 MB for every pass from the memory that the
target's weights are read from, and each slows the other down. `apart`, as with a device of its own, it is kept in bf16
and sleeps for the rest of its time, by which drafting a proposal of `--length` takes `--share` of a target pass. The
shipped draft, which costs next to nothing, is measured the same way and should lose nothing.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import numpy as np
import torch
from matplotlib.figure import Figure
from rich.progress import Progress

from core.family import TARGET_DIR
from core.generation import GenerationRequest
from core.model.base import Model, Rows, one_by_one
from core.model.causal_lm import load_model
from core.model.draft_tokens import RUNNERS_UP, DraftToken, StopRule
from core.sampling.params import SamplingParams
from core.verify.engine import VerifyConfig
from core.verify.sources import DRAFTS_ALONE
from tests.bench import machine
from tests.bench.bars import NEUTRAL, bars
from tests.bench.engines import Answered, Asked, DraftProcess, Engines, Loaded, ShippedDraft
from tests.bench.expanded import GEOMETRIES, target
from tests.bench.items import Item, draft_directories, held_out
from tests.bench.output import save
from tests.bench.paired import Durations, Ratio, rotated
from tests.bench.timed_models import PREFILLING, Spans, TimedModel

DOUBT = 0.7  # as the shipped drafts, whose doubt fades by 2.5 (core.draft.token_confidence)
BESIDE, APART, SHIPPED = "beside the target", "apart, as on a device of its own", "the shipped draft"
WARMING = 3  # items by which a target pass is timed


class Pace:
    """The seconds a pass takes at least, told to a process by the one that started it."""

    def __init__(self) -> None:
        self._seconds = get_context("spawn").RawValue("d", 0.0)

    def set(self, seconds: float) -> None:
        self._seconds.value = seconds

    def keep(self, began: float) -> None:
        """Sleep until the pass which began then may end."""
        time.sleep(max(0.0, began + self._seconds.value - time.perf_counter()))


class Flawed:
    """A model whose best token is made its second, third, fourth or fifth choice where a die says so.

    As with real drafts that is the rarer the more the token leads: `DOUBT` of those without a lead, e times less for
    every `fades` logits.
    """

    def __init__(self, model: Model, fades: float, pace: Pace) -> None:
        self._model = model
        self._fades = fades
        self._pace = pace
        dice = np.random.default_rng(0)
        self._dice = dice.random(model.context + 1)
        shares = (*RUNNERS_UP, 1 - sum(RUNNERS_UP))
        self._ranks = 1 + dice.choice(len(shares), model.context + 1, p=shares)

    def __getattr__(self, name: str) -> object:
        return getattr(self._model, name)

    @torch.inference_mode()
    def forward(self, batch: Sequence[Rows]) -> torch.Tensor:
        began = time.perf_counter()
        logits = self._model.forward(batch)
        row = 0
        for rows in batch:
            end = self._model.num_cached(rows.session)
            for position in range(end - rows.num_logits, end):
                best, second = logits[row].topk(2).values.tolist()
                if self._dice[position] < DOUBT * math.exp((second - best) / self._fades):
                    _demote(logits[row], int(self._ranks[position]))
                row += 1
        self._pace.keep(began)
        return logits

    def draw(
        self, batch: Sequence[Rows], steps: int, num_ids: int, noise: torch.Tensor | None, ending: StopRule
    ) -> list[list[DraftToken]]:
        return one_by_one(self, batch, steps, num_ids, noise, ending)  # type: ignore[arg-type]


def _demote(logits: torch.Tensor, rank: int) -> None:
    """The best of `logits` [V] comes after `rank` others; the draft seems as sure of itself as it would be."""
    values, ids = logits.topk(2 + len(RUNNERS_UP))
    logits[ids[: rank + 1]] = values[: rank + 1].roll(1)


@dataclass(frozen=True)
class FlawedTarget:
    """The shipped target as a draft that is wrong where it is unsure."""

    fades: float
    dtype: torch.dtype
    pace: Pace

    def load(self) -> Model:
        model = load_model(TARGET_DIR, dtype=self.dtype, num_pages=64)
        return Flawed(model, self.fades, self.pace)  # type: ignore[return-value]


class Draft:
    """A draft in two processes, one of which never drafts ahead and notes its forwards."""

    def __init__(self, name: str, model: Loaded, forwards: Spans) -> None:
        self.serial, self.ahead, self.forwards = f"{name}, serial", f"{name}, ahead", forwards
        timed = TimedModel(model, forwards, sorted(os.sched_getaffinity(0)))
        self.processes = {
            self.serial: DraftProcess(self.serial, timed, serial=True),
            self.ahead: DraftProcess(self.ahead, model),
        }
        self._noted = 0

    def token_seconds(self) -> float:
        """Of those drafted since the last call, 0 where none was; the first forward read a prompt."""
        spans = self.forwards.noted()[self._noted :]
        self._noted += len(spans)
        drawing = spans[1:]
        return sum(span.seconds for span in drawing) / max(1, sum(span.tokens for span in drawing))


@dataclass(frozen=True)
class Found:
    """Of one draft: `draft_share` is the seconds of a drafted proposal over those of a target pass."""

    hidden: Ratio
    draft_share: float
    foreseen: float
    ahead: Ratio


class Turns:
    """What was measured while all drafts answered in turns."""

    def __init__(self, engines: Engines, drafts: Sequence[Draft], max_tokens: int) -> None:
        self._engines = engines
        self._drafts = drafts
        self._max_tokens = max_tokens
        self._durations = Durations()
        self._drafting: dict[str, dict[int, float]] = {draft.serial: {} for draft in drafts}
        self._shares: dict[str, list[float]] = {draft.serial: [] for draft in drafts}

    def plain(self, item: Item) -> tuple[Answered, float]:
        """Its answer without a draft, and the seconds of a target pass."""
        [answered] = self._engines.answer([Asked(self._request(item), None)])
        return answered, (answered.seconds - answered.first) / max(1, answered.passes)

    def answer(self, item: Item) -> None:
        plain, target_pass = self.plain(item)
        for name in rotated([name for draft in self._drafts for name in draft.processes], item.number):
            [answered] = self._engines.answer([Asked(self._request(item), name)])
            if answered.tokens != plain.tokens:
                raise SystemExit(f"answers differ: {name}, {item.prompt!r}")
            self._durations.add(name, item.number, answered.seconds)
            draft = next(draft for draft in self._drafts if name in draft.processes)
            if name == draft.serial and (drafting := answered.proposed * draft.token_seconds()):
                self._drafting[name][item.number] = drafting
                self._shares[name].append(drafting / max(1, answered.passes) / target_pass)

    def found(self, draft: Draft) -> Found:
        drafting = self._drafting[draft.serial]
        if not drafting:
            raise SystemExit("no drafting to measure: answers are short, or beside this target the draft is too slow")
        counts = self._engines.counts(draft.ahead)
        return Found(
            hidden=self._durations.saved(draft.ahead, draft.serial, drafting),
            draft_share=float(np.median(self._shares[draft.serial])),
            foreseen=counts["rounds_foreseen"] / max(1, counts["rounds"]),
            ahead=self._durations.ratio(draft.ahead, draft.serial),
        )

    def _request(self, item: Item) -> GenerationRequest:
        params = SamplingParams(seed=item.number, max_tokens=self._max_tokens, temperature=0.0)
        return GenerationRequest(tokens=item.tokens, prompt_length=len(item.tokens), params=params)


def table(found: Mapping[str, Found]) -> str:
    """Markdown."""
    rows = {
        "a proposal's drafting / a target pass": [f"{one.draft_share:.2f}" for one in found.values()],
        "hidden share of drafting (95 %)": [str(one.hidden) if name != SHIPPED else "" for name, one in found.items()],
        "commits foreseen, their answer drafted already": [f"{one.foreseen:.2f}" for one in found.values()],
        "ahead, times serial": [str(one.ahead) for one in found.values()],
    }
    lines = [f"| | {' | '.join(found)} |", "|---|" + "---|" * len(found)]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items())])


def plot(found: Mapping[str, Found], file: Path) -> None:
    """Write a PNG: how much of the drafting is hidden, and what drafting ahead makes of an answer's speed."""
    figure = Figure(figsize=(8.4, 1.8), layout="constrained", dpi=150)
    hidden, ahead = figure.subplots(1, 2, sharey=True)
    bars(hidden, {name: one.hidden for name, one in found.items() if name != SHIPPED})
    bars(ahead, {name: one.ahead for name, one in found.items()})
    hidden.set_xlim(0, 1)
    hidden.set_xlabel("share of the drafting that is hidden", fontsize=8)
    ahead.axvline(1.0, color=NEUTRAL, linewidth=0.6)
    ahead.set_xlabel("ahead, times as fast as serial", fontsize=8)
    figure.savefig(file, metadata={"Software": None})


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.overlap", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=GEOMETRIES, default="100m", help="parameters of the expanded target")
    parser.add_argument(
        "--fades", type=float, default=4.0, help="logits; with 4 the draft is right at 0.85 of positions"
    )
    parser.add_argument("--length", type=int, default=3, help="most tokens proposed for a pass")
    parser.add_argument("--share", type=float, default=0.5, help="of a pass that drafting takes on a device of its own")
    parser.add_argument("--per-task", type=int, default=4)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--cache", type=Path, default=Path(".cache/bench"), help="where expanded targets are kept")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/overlap"))
    chosen = parser.parse_args(argv)
    torch.set_num_threads(1)
    items = held_out(chosen.per_task)
    most = len(items) * (PREFILLING + chosen.max_tokens * (chosen.length + 1))
    pace = Pace()
    models = {
        BESIDE: FlawedTarget(chosen.fades, torch.float32, Pace()),
        APART: FlawedTarget(chosen.fades, torch.bfloat16, pace),
        SHIPPED: ShippedDraft(draft_directories()["general"]),
    }
    drafts = {name: Draft(name, model, Spans(most)) for name, model in models.items()}
    processes = {name: process for draft in drafts.values() for name, process in draft.processes.items()}
    config = VerifyConfig(max_sessions=4, num_speculative_tokens=chosen.length, lookup=DRAFTS_ALONE)
    with Engines(target(chosen.size, chosen.cache), processes, config) as engines, Progress() as progress:
        turns = Turns(engines, list(drafts.values()), chosen.max_tokens)
        pace.set(chosen.share * median(turns.plain(item)[1] for item in items[:WARMING]) / chosen.length)
        for item in progress.track(items, description="overlap"):
            turns.answer(item)
        found = {name: turns.found(draft) for name, draft in drafts.items()}
    text = f"{table(found)}\n\n{chosen.size} target in bf16, {machine.line()}\n"
    out = save(chosen, "overlap", text, {"found": {name: asdict(one) for name, one in found.items()}})
    plot(found, out / "overlap.png")


if __name__ == "__main__":
    main()
