"""What tracing costs an answer: total time and first token over HTTP, recorded and not, and the record itself.

    python -m tests.bench.trace_cost [--size 100m] [--per-task 10] [--turns 10] [--out tests/bench/results/trace_cost]

One service that keeps traces, one stream, temperature 0, speculation as the service decides. In a turn every prompt is
asked twice, once recorded and once with `store: false`, each way first as often as the other. Clients have no key, so
`store` decides about nothing but the trace. Every prompt has been asked before, so both ways find it in the cache.

A pair does not show what the writer's thread takes meanwhile: that slows down whoever is answered then. So the record
is also timed in process: what of it runs on the event loop of the ingress, and what in the writer's thread.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from rich.console import Console

from core.generation import GenerationRequest, Run
from core.sampling.params import SamplingParams
from core.traces.store import TraceStore
from serve_app.client import Client
from serve_app.config import Traces
from serve_app.deployments.answer.generation_state import GenerationState
from serve_app.deployments.answer.trace_recorder import TraceRecorder
from serve_app.deployments.models.served_models import ServedModels
from serve_app.hosting import local_service
from serve_app.http.service import ChoiceRun
from serve_app.local_cluster import free_port
from serve_app.terminal.progress import Step, step
from tests.bench import machine
from tests.bench.engines import Answered, threads_worth
from tests.bench.expanded import GEOMETRIES, target
from tests.bench.intervals import told
from tests.bench.items import Item, held_out
from tests.bench.output import header, save
from tests.bench.over_http import LOOPBACK, as_served
from tests.bench.paired import Durations, Ratio, rotated

RECORDED, UNRECORDED = "recorded", "not recorded"
STORED = {RECORDED: True, UNRECORDED: False}  # the request's `store`
BAR = 1.02  # times as long as without
LENGTH = 6  # most tokens proposed for a pass
FLUSH_SECONDS = 5.0  # files are written this often, twelve times as often as by default
WRITTEN_WITHIN = 60.0  # seconds after the last answer
RUNS, PROMPT_TOKENS, SHARD = 40, 100, 1024  # of a record that is timed in process: its size, and traces of a file

Ask = Callable[[Item, bool], Answered]  # a prompt, and whether the answer may be stored


@dataclass
class Latencies:
    """Seconds of every prompt at every turn, either way."""

    total: Durations = field(default_factory=Durations)
    first: Durations = field(default_factory=Durations)
    pairs: int = 0

    def ratios(self) -> dict[str, Ratio]:
        """How many times as long a recorded answer takes: the medians of the pairs."""
        return {name: of.ratio(UNRECORDED, RECORDED) for name, of in self.by_name.items()}

    @property
    def by_name(self) -> dict[str, Durations]:
        return {"total": self.total, "first token": self.first}


def measure(ask: Ask, items: Sequence[Item], turns: int, shown: Step) -> Latencies:
    """Ask every prompt `turns` times either way, in turns. Raises SystemExit if the two do not get equal answers."""
    found = Latencies()
    for item in items:
        ask(item, False)
        shown.reach(shown.done + 1)
    for turn in range(turns):
        for item in items:
            said = set()
            for way in rotated(list(STORED), turn + item.number):
                answered = ask(item, STORED[way])
                found.total.add(way, (turn, item.number), answered.seconds)
                found.first.add(way, (turn, item.number), answered.first)
                said.add(answered.tokens)
                shown.reach(shown.done + 1)
            if len(said) > 1:
                raise SystemExit(f"answers differ: {item.prompt}")
            found.pairs += 1
    return found


@contextmanager
def asking(url: str, model: str, max_tokens: int) -> Iterator[Ask]:
    """Asks a service, always on the same connection."""
    loop, client = asyncio.new_event_loop(), Client(f"{url}/v1")

    def ask(item: Item, store: bool) -> Answered:
        body = {
            "model": model,
            "messages": [{"role": "user", "content": item.prompt}],
            "temperature": 0,
            "max_tokens": max_tokens,
            "store": store,
        }
        began = time.perf_counter()
        answer = loop.run_until_complete(client.ask(body))
        seconds, first = time.perf_counter() - began, answer.arrivals[0] - began
        return Answered(tuple(answer.tokens), seconds, first, len(answer.runs) - 1, answer.proposed, answer.accepted)

    try:
        yield ask
    finally:
        loop.run_until_complete(client.close())
        loop.close()


def check_kept(directory: Path, expected: int, within: float = WRITTEN_WITHIN) -> None:
    """Wait until as many traces are in the directory. Raises SystemExit if there are others: nothing was measured."""
    deadline = time.monotonic() + within
    while (kept := sum(1 for _ in TraceStore(directory))) < expected and time.monotonic() < deadline:
        time.sleep(0.5)
    if kept != expected:
        raise SystemExit(f"{kept} answers were kept, and {expected} were asked to be")


@dataclass(frozen=True)
class RecordCost:
    """Seconds of one answer's record: of every one on the event loop, and of every file's share in the thread."""

    on_loop: Sequence[float]
    written: Sequence[float]


def record_cost(served: ServedModels, answers: int, files: int) -> RecordCost:
    """Record so many answers of `RUNS` runs as the ingress does, then write as many files of `SHARD` of them."""
    wiring = cast(Any, SimpleNamespace(prior={task: 1 / len(served.drafts) for task in served.drafts}))
    runs = [ChoiceRun(0, run, "general") for run in _runs()]
    with tempfile.TemporaryDirectory() as directory:
        recorder = TraceRecorder(Traces(directory=Path(directory), flush_records=answers, queue=answers))
        on_loop = []
        for number in range(answers):
            received = _received(number, runs)
            began = time.perf_counter()
            recording = recorder.recording(received, wiring, served)
            assert recording is not None
            for run in runs:
                recording.take(run)
            on_loop.append(time.perf_counter() - began)
        recorder.close()
        check_kept(Path(directory), answers)
        traces = list(TraceStore(Path(directory)))
        shard = (traces * -(-SHARD // len(traces)))[:SHARD]
        written = []
        for _ in range(files):
            began = time.perf_counter()
            TraceStore(Path(directory) / "again").append(shard)
            written.append((time.perf_counter() - began) / SHARD)
    return RecordCost(on_loop, written)


def _runs() -> list[Run]:
    """Of an answer whose passes commit three tokens each."""
    drafted = [Run((number, 7, 8), proposed=4, accepted=2) for number in range(1, RUNS - 1)]
    return [Run((1,)), *drafted, Run((2, 3), proposed=4, accepted=1, finish_reason="stop")]


def _received(number: int, runs: Sequence[ChoiceRun]) -> GenerationState:
    params = SamplingParams(seed=number, max_tokens=4 * RUNS)
    prompt = tuple(range(PROMPT_TOKENS))
    received = GenerationState([GenerationRequest(tokens=prompt, prompt_length=PROMPT_TOKENS, params=params)])
    for choice_run in runs:
        received.add(choice_run.choice, choice_run.run)
    return received


def page(latencies: Latencies, cost: RecordCost) -> str:
    """Markdown."""
    lines = header(["", "not recorded, ms (quartiles)", "recorded, ms (quartiles)", "times (95 %)", "within 2 %"])
    for name, ratio in latencies.ratios().items():
        plain, recorded = (_ms(latencies.by_name[name].quartiles(way)) for way in (UNRECORDED, RECORDED))
        lines.append(f"| {name} | {plain} | {recorded} | {told(ratio, '.3f')} | {verdict(ratio)} |")
    on_loop, written = (1e6 * float(np.median(seconds)) for seconds in (cost.on_loop, cost.written))
    about = (
        f"{latencies.pairs} pairs. The record of an answer of {RUNS} runs takes {on_loop:.0f} us of the ingress' event "
        f"loop, and {written:.0f} us of the writer's thread in a file of {SHARD}; medians."
    )
    return "\n".join([*lines, "", about])


def verdict(ratio: Ratio) -> str:
    """Whether recorded answers take at most `BAR` times as long, by the interval."""
    if ratio.high <= BAR:
        return "yes"
    return "no" if ratio.low > BAR else "not shown"


def _ms(quartiles: tuple[float, float, float]) -> str:
    median, low, high = (1e3 * seconds for seconds in quartiles)
    return f"{median:.1f} ({low:.1f} to {high:.1f})"


def as_json(latencies: Latencies, cost: RecordCost) -> Mapping[str, object]:
    by_name = latencies.by_name.items()
    return {
        "seconds": {name: {way: of.quartiles(way) for way in STORED} for name, of in by_name},
        "times_unrecorded": {name: ratio._asdict() for name, ratio in latencies.ratios().items()},
        "record_seconds": {"on_loop": float(np.median(cost.on_loop)), "written": float(np.median(cost.written))},
    }


def options() -> argparse.ArgumentParser:
    summary = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m tests.bench.trace_cost", description=summary)
    parser.add_argument("--size", choices=GEOMETRIES, default="100m", help="parameters of the expanded target")
    parser.add_argument("--per-task", type=int, default=10, help="prompts of each of the six tasks")
    parser.add_argument("--turns", type=int, default=10, help="how often each is asked either way")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, help="of the verifier; by default as measured, leaving a core")
    parser.add_argument("--cache", type=Path, default=Path(".cache/bench"), help="where expanded targets are kept")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/trace_cost"))
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    chosen, console = options().parse_args(argv), Console(stderr=True)
    directory, items = target(chosen.size, chosen.cache), held_out(chosen.per_task)
    chosen.threads = chosen.threads or threads_worth(directory)
    served, _ = as_served(directory, LENGTH, chosen.threads)
    cost = record_cost(served, answers=1000, files=20)
    with tempfile.TemporaryDirectory() as kept:
        traces = Traces(directory=Path(kept), flush_seconds=FLUSH_SECONDS)
        traced = replace(served, config=served.config.model_copy(update={"traces": traces}))
        with local_service(traced, LOOPBACK, free_port(LOOPBACK), console) as running:
            number = len(items) * (1 + 2 * chosen.turns)
            with (
                asking(running.url, traced.config.name, chosen.max_tokens) as ask,
                step(console, "Asking", total=number) as shown,
            ):
                latencies = measure(ask, items, chosen.turns, shown)
            check_kept(Path(kept), latencies.pairs)
    about = f"{chosen.size} target in bf16, {chosen.threads} thread(s), {machine.line()}"
    save(chosen, "trace_cost", f"{page(latencies, cost)}\n\n{about}\n", as_json(latencies, cost))


if __name__ == "__main__":
    main()
