"""Throughput with many streams at once: speculation with a good and with a useless draft beside plain decoding.

    python -m tests.bench.streams [--size 100m] [--streams 1 2 4 8 16 32] [--out tests/bench/results/streams]

In process, no Ray: the target in this process, each draft in its own. A turn is a batch of prompts of all tasks, two
per stream, the next beginning as one ends; contenders take turns on the same batch, after one that does not count.
`task` is the draft the router chose for each prompt (different drafts in one batch), `useless` has random weights. With
8 streams transformers' assisted generation answers the same batches, of some turns, one request after another.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path

import torch
from rich.progress import Progress

from core.generation import GenerationRequest
from core.sampling.params import SamplingParams
from core.verify.engine import VerifyConfig
from core.verify.sources import DRAFTS_ALONE
from tests.bench import machine
from tests.bench.engines import Asked, Engines, processes, threads_worth
from tests.bench.expanded import GEOMETRIES, target, useless_draft
from tests.bench.hugging_face import with_family_drafts
from tests.bench.items import Item, draft_directories, held_out
from tests.bench.output import save
from tests.bench.paired import Durations, rotated
from tests.bench.rival_process import Job, RivalProcess

PLAIN, TASK, USELESS, ASSISTED = "plain", "task", "useless", "transformers assisted"
MANY = 8  # streams; with fewer there are more turns, so that as many prompts are answered
ONE_BY_ONE = 8  # streams at which transformers is measured beside ours
ONE_BY_ONE_TURNS = 6  # of them: one takes three times as long as all others together


@dataclass
class Level:
    """What was measured with so many streams.

    `without` counts target passes of a session with nothing proposed; `times` are the verifier's microseconds, of
    waiting for drafts and of passes.
    """

    streams: int
    durations: Durations = field(default_factory=Durations)
    passes: dict[str, int] = field(default_factory=dict)
    without: dict[str, int] = field(default_factory=dict)
    times: dict[str, Counter[str]] = field(default_factory=dict)

    def share_without(self, contender: str) -> float:
        return self.without.get(contender, 0) / max(1, self.passes.get(contender, 0))

    def share_waited(self, contender: str) -> float:
        times = self.times.get(contender, Counter())
        return times["waiting_us"] / max(1, times.total())


class Batches:
    """Runs one batch for one contender."""

    def __init__(self, engines: Engines, theirs: RivalProcess, max_tokens: int, temperature: float) -> None:
        self._engines = engines
        self._theirs = theirs
        self._max_tokens = max_tokens
        self._temperature = temperature

    def run(self, level: Level, contender: str, items: Sequence[Item], turn: int) -> None:
        if contender == ASSISTED:
            began = time.perf_counter()
            answers = [
                self._theirs.answer(Job(item.tokens, self._max_tokens, self._temperature, item.number, item.slot))
                for item in items
            ]
            seconds = time.perf_counter() - began
        else:
            draft_of: Mapping[str, Callable[[Item], str | None]] = {
                PLAIN: lambda _: None,
                TASK: lambda item: item.slot,
                USELESS: lambda _: USELESS,
            }
            asked = [Asked(self._request(item), draft_of[contender](item)) for item in items]
            before = self._engines.counts()
            began = time.perf_counter()
            answers = self._engines.answer(asked, level.streams)
            seconds = time.perf_counter() - began
            after = self._engines.counts()
            passes = sum(answer.passes for answer in answers)
            level.passes[contender] = level.passes.get(contender, 0) + passes + len(answers)
            new = after["plain_passes"] - before["plain_passes"]
            level.without[contender] = level.without.get(contender, 0) + new
            times = Counter({name: after[name] - before[name] for name in ("waiting_us", "stepping_us")})
            level.times[contender] = level.times.get(contender, Counter()) + times
        level.durations.add(contender, turn, seconds / sum(len(answer.tokens) for answer in answers))

    def _request(self, item: Item) -> GenerationRequest:
        params = SamplingParams(seed=item.number, max_tokens=self._max_tokens, temperature=self._temperature)
        return GenerationRequest(tokens=item.tokens, prompt_length=len(item.tokens), params=params)


def measure(batches: Batches, items: Sequence[Item], streams: int, turns: int, progress: Progress) -> Level:
    level = Level(streams)
    contenders = [PLAIN, TASK, USELESS, *([ASSISTED] if streams == ONE_BY_ONE else [])]
    shown = progress.add_task(f"{streams} streams", total=turns)
    source = cycle(items)
    for contender in contenders:  # lays out memory, and the drafts are known
        batches.run(Level(streams), contender, list(islice(source, 2 * streams)), 0)
    for turn in range(turns):
        batch = list(islice(source, 2 * streams))
        if turn == ONE_BY_ONE_TURNS:
            contenders = [contender for contender in contenders if contender != ASSISTED]
        for contender in rotated(contenders, turn):
            batches.run(level, contender, batch, turn)
        progress.advance(shown)
    return level


def table(levels: Sequence[Level]) -> str:
    """Markdown."""
    lines = [
        (
            "| streams | plain, tokens/s | task's draft, times plain (95 %) | useless draft, times plain (95 %) "
            "| passes with k = 0: task / useless | verifier waits, task | times transformers assisted, one by one |"
        ),
        "|---|---|---|---|---|---|---|",
    ]
    for level in levels:
        seconds, *_ = level.durations.quartiles(PLAIN)
        useful, useless = (level.durations.ratio(name, PLAIN) for name in (TASK, USELESS))
        shares = " / ".join(f"{level.share_without(name):.2f}" for name in (TASK, USELESS))
        theirs = level.durations.ratio(TASK, ASSISTED) if ASSISTED in level.durations.contenders else ""
        lines.append(
            f"| {level.streams} | {1 / seconds:.0f} | {useful} | {useless} | {shares} "
            f"| {level.share_waited(TASK):.1%} | {theirs} |"
        )
    return "\n".join(lines)


def as_json(levels: Sequence[Level]) -> list[dict[str, object]]:
    return [
        {
            "streams": level.streams,
            "seconds_per_token": {name: level.durations.quartiles(name) for name in level.durations.contenders},
            "times_plain": {name: level.durations.ratio(name, PLAIN)._asdict() for name in level.durations.contenders},
            "share_of_passes_without_proposals": {name: level.share_without(name) for name in level.passes},
            "share_of_time_waiting_for_drafts": {name: level.share_waited(name) for name in level.passes},
        }
        for level in levels
    ]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.streams", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=GEOMETRIES, default="100m", help="parameters of the expanded target")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--turns", type=int, default=6, help="with 8 streams and more; with 4 twice as many, and so on")
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--length", type=int, default=6, help="most tokens proposed for a pass")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--threads", type=int, help="of the verifier, by default as measured")
    parser.add_argument("--their-threads", type=int, default=2, help="torch threads of transformers")
    parser.add_argument("--cache", type=Path, default=Path(".cache/bench"), help="where expanded targets are kept")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/streams"))
    chosen = parser.parse_args(argv)
    torch.set_num_threads(1)
    directory, items = target(chosen.size, chosen.cache), held_out(8)
    chosen.threads = chosen.threads or threads_worth(directory)
    own = draft_directories()
    drafts = own | {USELESS: str(useless_draft(chosen.cache))}
    config = VerifyConfig(max_sessions=max(chosen.streams), num_speculative_tokens=chosen.length, lookup=DRAFTS_ALONE)
    with (
        with_family_drafts(directory, own, chosen.length, chosen.their_threads) as theirs,
        Engines(directory, processes(drafts), config, threads=chosen.threads) as engines,
        Progress() as progress,
    ):
        batches = Batches(engines, theirs, chosen.max_tokens, chosen.temperature)
        levels = [measure(batches, items, n, chosen.turns * max(1, MANY // n), progress) for n in chosen.streams]
    target_is = f"{chosen.size} target in bf16 on {chosen.threads} thread(s), temperature {chosen.temperature:g}"
    text = f"{table(levels)}\n\n{target_is}, {machine.line()}\n"
    save(chosen, "streams", text, {"levels": as_json(levels)})


if __name__ == "__main__":
    main()
