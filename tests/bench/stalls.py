"""Running answers beside a long prompt: how long they stand still, what the prompt waits, and what both together take.

    python -m tests.bench.stalls [--turns 8] [--model smollm2:target] [--out tests/bench/results/stalls]

In process, no Ray, no speculation. `first come` reads as much of the prompt in every pass as it may, and prompts one
after another; `bounded` is what the engine does (`core.policy.prompt_share`). They take turns on the same engine. Every
prompt is of random tokens, so that nothing is remembered.

In a turn each has streams running when a prompt arrives; then answers that begin together with a prompt, until all are
done; then a short question a moment after a prompt, with nothing else running; and at last the question alone.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from rich.progress import Progress

from core.generation import GenerationRequest, Run
from core.model.causal_lm import load_model
from core.policy.prompt_costs import PromptCosts
from core.policy.prompt_share import Room, UnreadPrompt
from core.sampling.params import SamplingParams
from core.text.tokenizer import load_tokenizer
from core.verify import batch
from core.verify.engine import VerifyConfig
from core.verify.verifier import Verifier
from tests.bench import machine
from tests.bench.engines import threads_worth
from tests.bench.output import header, save
from tests.bench.paired import Durations, rotated
from train_jobs.models import model_directory

FIRST_COME, BOUNDED = "first come", "bounded"
STREAMS, SHORT, ANSWER = 4, 32, 16  # running answers; tokens of a short prompt, and of its answer
TOGETHER = 64  # tokens of each answer that begins together with a prompt
SETTLED = 8  # tokens of each stream, before the prompt comes
FOREVER = 4096
PAGES = 256


def first_come(prompts: Sequence[UnreadPrompt], space: Room, _: PromptCosts) -> list[int]:
    """What `core.policy.prompt_share.shares` did before: all that a pass may read, in order of arrival."""
    given, left = list[int](), space.tokens
    for prompt in prompts:
        given.append(min(left, prompt.num_unread))
        left -= given[-1]
    return given


class Arrived(NamedTuple):
    """A run of the request so numbered, when it was handed out."""

    number: int
    run: Run
    at: float


class Asking:
    """Asks a verifier, and waits for what it says. Requests count upwards."""

    def __init__(self, verifier: Verifier, vocabulary: int) -> None:
        self.arrived: dict[int, list[Arrived]] = defaultdict(list)
        self.began: dict[int, float] = {}
        self._verifier = verifier
        self._random = Random(0)
        self._vocabulary = vocabulary
        self._queue: SimpleQueue[tuple[int, Run | BaseException, float]] = SimpleQueue()
        self._sessions: dict[int, Future[list[int]]] = {}

    def ask(self, prompt_tokens: int, max_tokens: int) -> int:
        """A prompt of random tokens that nothing ends but `max_tokens`; returns its number."""
        number = len(self.began)
        tokens = tuple(self._random.choices(range(self._vocabulary), k=prompt_tokens))
        params = SamplingParams(seed=number, max_tokens=max_tokens, temperature=1.0, ignore_eos=True)
        request = GenerationRequest(tokens=tokens, prompt_length=prompt_tokens, params=params, num_speculative_tokens=0)
        self.began[number] = time.perf_counter()
        self._sessions[number] = self._verifier.open([request], partial(self._arrive, number))
        return number

    def until(self, done: Callable[[], bool]) -> None:
        while not done():
            number, run, at = self._queue.get(timeout=120)
            if isinstance(run, BaseException):
                raise run
            self.arrived[number].append(Arrived(number, run, at))

    def finished(self, number: int) -> bool:
        return bool(self.arrived[number]) and self.arrived[number][-1].run.finish_reason is not None

    def end(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._verifier.close(self._sessions[number].result().sessions).result()

    def first(self, number: int) -> float:
        """Seconds to its first token."""
        return self.arrived[number][0].at - self.began[number]

    def whole(self, number: int) -> float:
        """Seconds to its last token so far."""
        return self.arrived[number][-1].at - self.began[number]

    def gaps(self, number: int, begin: float, end: float) -> list[float]:
        """Seconds between its tokens, from the last one before `begin` to the first one after `end`."""
        times = [one.at for one in self.arrived[number]]
        return [later - earlier for earlier, later in pairwise(times) if later > begin and earlier < end]

    def _arrive(self, number: int, _: int, run: Run | BaseException) -> None:
        self._queue.put((number, run, time.perf_counter()))


class Measured:
    """Seconds between tokens of streams: beside a prompt, by contender and prompt tokens, and `alone`.

    `durations` are those of the contenders, by what took so long.
    """

    def __init__(self) -> None:
        self.gaps: dict[tuple[str, int], list[float]] = defaultdict(list)
        self.alone: list[float] = []
        self.durations: dict[str, Durations] = defaultdict(Durations)


def beside(asking: Asking, measured: Measured, contender: str, turn: int, length: int) -> None:
    """Streams are running when the prompt arrives."""
    streams = [asking.ask(SHORT, FOREVER) for _ in range(STREAMS)]
    asking.until(lambda: all(len(asking.arrived[number]) > SETTLED for number in streams))
    settled = time.perf_counter()
    asking.until(lambda: all(len(asking.arrived[number]) > 4 * SETTLED for number in streams))
    prompt = asking.ask(length, 1)
    asking.until(lambda: asking.finished(prompt))
    begin, end = asking.began[prompt], asking.arrived[prompt][0].at
    asking.until(lambda: all(asking.arrived[number][-1].at > end for number in streams))
    asking.end(streams)
    for number in streams:
        measured.gaps[contender, length] += asking.gaps(number, begin, end)
        measured.alone += [gap for gap in asking.gaps(number, settled, begin) if contender == BOUNDED]
    measured.durations[f"first token of {length} tokens beside streams"].add(contender, turn, asking.first(prompt))


def together(asking: Asking, measured: Measured, contender: str, turn: int, length: int) -> None:
    """Streams begin together with the prompt: what all of it takes."""
    began = time.perf_counter()
    numbers = [*(asking.ask(SHORT, TOGETHER) for _ in range(STREAMS)), asking.ask(length, ANSWER)]
    asking.until(lambda: all(map(asking.finished, numbers)))
    end = max(asking.arrived[number][-1].at for number in numbers)
    measured.durations[f"{STREAMS} answers of {TOGETHER} tokens and {length} tokens read"].add(
        contender, turn, end - began
    )


def behind(asking: Asking, measured: Measured, contender: str, turn: int, length: int) -> None:
    """A short question comes a moment after a prompt with which the engine is alone."""
    prompt = asking.ask(length, ANSWER)
    time.sleep(0.05)
    short = asking.ask(SHORT, ANSWER)
    asking.until(lambda: asking.finished(prompt) and asking.finished(short))
    measured.durations[f"short answer behind {length} tokens"].add(contender, turn, asking.whole(short))
    measured.durations[f"first token of {length} tokens before it"].add(contender, turn, asking.first(prompt))
    alone = asking.ask(SHORT, ANSWER)
    asking.until(lambda: asking.finished(alone))
    measured.durations["short answer alone"].add(contender, turn, asking.whole(alone))


@contextmanager
def sharing(contender: str) -> Iterator[None]:
    """Passes share out prompts as the contender does."""
    with patch.object(batch, "shares", first_come if contender == FIRST_COME else batch.shares):
        yield


def take_turn(asking: Asking, measured: Measured, contender: str, turn: int, lengths: Sequence[int]) -> None:
    """All that a contender is measured by, once."""
    with sharing(contender):
        for length in lengths:
            beside(asking, measured, contender, turn, length)
        together(asking, measured, contender, turn, lengths[-1])
        behind(asking, measured, contender, turn, lengths[-1])


def measure(asking: Asking, lengths: Sequence[int], turns: int, progress: Progress) -> Measured:
    measured = Measured()
    shown = progress.add_task("turns", total=1 + turns)
    for turn in range(-1, turns):  # the first lays out memory
        for contender in rotated([FIRST_COME, BOUNDED], turn):
            take_turn(asking, Measured() if turn < 0 else measured, contender, turn, lengths)
        progress.advance(shown)
    return measured


def table(measured: Measured) -> str:
    """Markdown."""
    lines = header(["ms between tokens of a stream", "median", "p99", "worst", "tokens"])
    told = {"without a prompt": measured.alone}
    told |= {f"beside {length} tokens, {contender}": gaps for (contender, length), gaps in measured.gaps.items()}
    for name, gaps in told.items():
        median, high, worst = 1e3 * np.quantile(gaps, [0.5, 0.99, 1.0])
        lines.append(f"| {name} | {median:.0f} | {high:.0f} | {worst:.0f} | {len(gaps)} |")
    lines += ["", *header(["seconds, median (quartiles)", FIRST_COME, BOUNDED, "times as soon (95 %)"])]
    for name, durations in measured.durations.items():
        cells = " | ".join(_quartiles(durations, contender) for contender in (FIRST_COME, BOUNDED))
        lines.append(f"| {name} | {cells} | {durations.ratio(BOUNDED, FIRST_COME)} |")
    return "\n".join(lines)


def _quartiles(durations: Durations, contender: str) -> str:
    median, low, high = durations.quartiles(contender)
    return f"{median:.2f} ({low:.2f} to {high:.2f})"


def as_json(measured: Measured) -> dict[str, object]:
    """Seconds."""
    return {
        "between_tokens": [
            {
                "contender": contender,
                "prompt_tokens": length,
                "quantiles": dict(zip(_QUANTILES, _of(gaps), strict=True)),
            }
            for (contender, length), gaps in measured.gaps.items()
        ],
        "between_tokens_alone": dict(zip(_QUANTILES, _of(measured.alone), strict=True)),
        "durations": {
            name: {contender: durations.quartiles(contender) for contender in durations.contenders}
            | {"times": durations.ratio(BOUNDED, FIRST_COME)._asdict()}
            for name, durations in measured.durations.items()
        },
    }


_QUANTILES = ("median", "p99", "worst")


def _of(gaps: Sequence[float]) -> list[float]:
    return [float(value) for value in np.quantile(gaps, [0.5, 0.99, 1.0])]


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.stalls", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="smollm2:target", help="of the target: as in a configuration")
    parser.add_argument("--prompt-tokens", type=int, nargs="+", default=[400, 3000], help="ascending")
    parser.add_argument("--chunk", type=int, default=VerifyConfig().prefill_chunk, help="most prompt tokens of a pass")
    parser.add_argument("--threads", type=int, help="of the target, by default as measured")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/stalls"))
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    chosen = options().parse_args(argv)
    directory = model_directory(chosen.model)
    chosen.threads = chosen.threads or threads_worth(directory)
    torch.set_num_threads(chosen.threads)
    tokenizer, config = load_tokenizer(directory), VerifyConfig(max_sessions=8, prefill_chunk=chosen.chunk)
    load = partial(load_model, directory, dtype=torch.bfloat16, num_pages=PAGES)
    verifier = Verifier(load, tokenizer, config)
    verifier.start()
    try:
        with Progress() as progress:
            asking = Asking(verifier, tokenizer.num_valid)
            measured = measure(asking, chosen.prompt_tokens, chosen.turns, progress)
    finally:
        verifier.stop()
    text = f"{table(measured)}\n\n{STREAMS} streams, bf16 on {chosen.threads} thread(s), {machine.line()}\n"
    save(chosen, "stalls", text, as_json(measured))


if __name__ == "__main__":
    main()
