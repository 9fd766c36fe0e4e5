"""Where the time of a round goes that is not the models': from a target pass to the next, for one stream.

    python -m tests.bench.rounds [--size 100m] [--length 4] [--out tests/bench/results/rounds]

In process, the target in this one and the shipped draft in another, each pinned to cores of its own where there are
enough; temperature 0, and the draft never drafts ahead, so that all of a proposal is drafted between a verdict and the
next pass. Every forward of both notes when it began and ended, of the draft every draw of a proposal, choosing tokens
included; every verdict notes when it had been sent to the draft; the clock is the same in all processes. What is left
of a round between its verdict and the next pass without the draft's forwards is the critical path outside the models.
Leaves a Markdown table on stdout, and the same with JSON in a directory.
"""

from __future__ import annotations

import argparse
import os
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from core.generation import GenerationRequest, Run
from core.model.base import Model
from core.model.causal_lm import load_model
from core.sampling.params import SamplingParams
from core.text.tokenizer import load_tokenizer
from core.verify.engine import VerifyConfig
from core.verify.sources import DRAFTS_ALONE
from core.wire.messages import OpenSession
from tests.bench import machine
from tests.bench.engines import DraftProcess, ShippedDraft
from tests.bench.expanded import GEOMETRIES, target
from tests.bench.items import GENERAL, Item, first_held_out
from tests.bench.output import save
from tests.bench.timed_models import PREFILLING, Span, Spans, Stamping, TimedModel, timed

TARGET, DRAFT = "the target's pass", "the draft's forwards, all of a round"
AFTER = "the target's pass to the verdict"
TO_DRAFT = "the verdict to the draft's first forward"
BETWEEN = "between the draft's forwards"
TO_PASS = "the draft's last forward to the next pass"
CRITICAL = "the critical path, verdict to next pass without the draft's forwards"
NOTHING = "nothing was drafted"
EARLY = "the draft began before sending the verdict returned, as it may on the verifier's core"
LATE = "the pass did not wait for the draft"
QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9}
PROFILING = 128  # forwards of the target before there is work: more than there are


class Round(NamedTuple):
    """A target pass, when its verdict was sent, the draft's forwards since the pass, and when the next began."""

    target: Span
    verdict: float
    drafts: Sequence[Span]
    next_pass: float

    @property
    def left_out(self) -> str | None:
        """Why it does not count; None where every forward lies between the verdict and the next pass."""
        if not self.drafts:
            return NOTHING
        if self.drafts[0].began < self.verdict:
            return EARLY
        return LATE if self.drafts[-1].ended > self.next_pass else None

    @property
    def whole(self) -> float:
        """Seconds from where the target's pass ended to where the next began."""
        return self.next_pass - self.target.ended

    def parts(self) -> dict[str, float]:
        """Seconds of every part; all but the pass and the critical path, which is three of them, add up to `whole`."""
        drafting = sum(span.seconds for span in self.drafts)
        return {
            TARGET: self.target.seconds,
            AFTER: self.verdict - self.target.ended,
            TO_DRAFT: self.drafts[0].began - self.verdict,
            DRAFT: drafting,
            BETWEEN: sum(later.began - earlier.ended for earlier, later in pairwise(self.drafts)),
            TO_PASS: self.next_pass - self.drafts[-1].ended,
            CRITICAL: self.next_pass - self.verdict - drafting,
        }


class Answer:
    """A sink that wakes nobody before the last run."""

    def __init__(self) -> None:
        self._complete: Future[None] = Future()

    def __call__(self, _: int, run: Run | BaseException) -> None:
        if isinstance(run, BaseException):
            self._complete.set_exception(run)
        elif run.finish_reason is not None:
            self._complete.set_result(None)

    def wait(self) -> None:
        self._complete.result()


class Found(NamedTuple):
    """The rounds that count, and how many do not, by why."""

    counted: Sequence[Round]
    left_out: Counter[str]


def measure(directory: Path, items: Sequence[Item], max_tokens: int, length: int, threads: int) -> list[Round]:
    """The rounds of every item, answered in turn by the target of `directory` with the shipped draft."""
    passes = Spans(PROFILING + len(items) * (PREFILLING + max_tokens))
    forwards = Spans(len(items) * (PREFILLING + max_tokens * length))
    cores = sorted(os.sched_getaffinity(0))
    own, other = (cores[:threads], cores[-1:]) if len(cores) > threads else (cores, cores)

    def load() -> Model:
        return timed(load_model(directory, dtype=torch.bfloat16, num_pages=32), passes)

    config = VerifyConfig(max_sessions=1, num_speculative_tokens=length, lookup=DRAFTS_ALONE)
    torch.set_num_threads(threads)
    process = DraftProcess(GENERAL, TimedModel(ShippedDraft(None), forwards, other), serial=True)
    with closing(process) as draft, _pinned(own), _verifying(load, directory, config) as verifier:
        draft.ready()
        answers = [_answer(verifier, draft, item, max_tokens, length) for item in items]
    targets, drafts = passes.noted(), forwards.noted()
    return [one for verdicts in answers for one in rounds(targets, drafts, verdicts)]


def rounds(targets: Sequence[Span], drafts: Sequence[Span], verdicts: Sequence[float]) -> list[Round]:
    """Those of an answer whose `verdicts` were sent then, among everybody's forwards.

    The first verdict begins none, for upon it the draft reads the prompt, nor does the last: it has no next pass.
    """
    begins = [span.began for span in targets]
    found = []
    for verdict in verdicts[1:-1]:
        following = bisect(begins, verdict)
        target, next_pass = targets[following - 1], begins[following]
        since = [span for span in drafts if span.ended > target.ended and span.began < next_pass]
        found.append(Round(target, verdict, since, next_pass))
    return found


def sifted(measured: Sequence[Round]) -> Found:
    """What counts of them, which has to be something."""
    left_out = Counter(one.left_out for one in measured if one.left_out is not None)
    counted = [one for one in measured if one.left_out is None]
    if not counted:
        raise SystemExit(f"no round counts of {len(measured)}{_reasons(left_out)}")
    return Found(counted, left_out)


def _reasons(left_out: Counter[str]) -> str:
    return "".join(f"; in {count}, {why}" for why, count in left_out.most_common())


@contextmanager
def _pinned(cores: Sequence[int]) -> Iterator[None]:
    """This thread and those that it starts keep to `cores`."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _verifying(load: Callable[[], Model], directory: Path, config: VerifyConfig) -> Iterator[Stamping]:
    verifier = Stamping(load, load_tokenizer(directory), config)
    verifier.start()
    try:
        yield verifier
    finally:
        verifier.stop()


def _answer(verifier: Stamping, draft: DraftProcess, item: Item, max_tokens: int, length: int) -> list[float]:
    """When the verdicts of the item's answer were sent."""
    params = SamplingParams(seed=item.number, max_tokens=max_tokens, temperature=0.0)
    request = GenerationRequest(tokens=item.tokens, prompt_length=len(item.tokens), params=params)
    answer, earlier = Answer(), len(verifier.verdicts)
    (session,), *_ = verifier.open([request], answer).result()
    draft.open(
        OpenSession(
            session=session,
            epoch=0,
            verifier=verifier.address,
            tokens=request.tokens,
            prompt_length=request.prompt_length,
            params=params,
            choice=request.choice,
            num_speculative_tokens=length,
        )
    )
    answer.wait()
    return verifier.verdicts[earlier:]


def as_json(found: Found) -> dict[str, object]:
    """Milliseconds by part."""
    return {"rounds": len(found.counted), "left_out": found.left_out, "ms": quantiles(found.counted)}


def quantiles(counted: Sequence[Round]) -> dict[str, dict[str, float]]:
    """Of every part, in milliseconds."""
    parts = [one.parts() for one in counted]
    seconds = {name: [each[name] for each in parts] for name in parts[0]}
    found = {name: 1000 * np.quantile(values, list(QUANTILES.values())) for name, values in seconds.items()}
    return {name: dict(zip(QUANTILES, np.round(values, 4).tolist(), strict=True)) for name, values in found.items()}


def table(found: Found) -> str:
    """Markdown; the critical path last."""
    lines = [f"| part of a round, ms | {' | '.join(QUANTILES)} |", "|---|" + "---|" * len(QUANTILES)]
    for name, values in quantiles(found.counted).items():
        lines.append(f"| {name} | {' | '.join(f'{value:.3f}' for value in values.values())} |")
    count = len(found.counted)
    drafted = sum(span.tokens for one in found.counted for span in one.drafts) / count
    of = f"{count} of {count + found.left_out.total()} rounds, {drafted:.1f} tokens drafted in each"
    return "\n".join([*lines, "", f"{of}{_reasons(found.left_out)}."])


def tell(chosen: argparse.Namespace, measured: Sequence[Round]) -> None:
    """Print and leave in `chosen.out` what was found."""
    found = sifted(measured)
    text = f"{table(found)}\n\n{chosen.size} target in bf16, {chosen.threads} thread(s), {machine.line()}\n"
    save(chosen, "rounds", text, as_json(found))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rounds", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=GEOMETRIES, default="100m", help="parameters of the expanded target")
    parser.add_argument("--length", type=int, default=4, help="most tokens proposed for a pass")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=1, help="of the target; the draft has one")
    parser.add_argument("--cache", type=Path, default=Path(".cache/bench"), help="where expanded targets are kept")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/rounds"))
    chosen = parser.parse_args(argv)
    items = first_held_out(chosen.prompts)
    measured = measure(target(chosen.size, chosen.cache), items, chosen.max_tokens, chosen.length, chosen.threads)
    tell(chosen, measured)


if __name__ == "__main__":
    main()
