"""Decoding one stream: how much faster speculation is, in process and over HTTP, beside transformers.

    python -m tests.bench.decode [--size 100m] [--per-task 4] [--out tests/bench/results/decode]

Every prompt is answered by all contenders in turn, each time in another order: plain decoding, the draft as it is
(`general`), one adapter for all tasks (`mixed`), the task's own as the router has it (`task`), transformers' generate
and its assisted generation with the task's draft. All of ours must give the same tokens; where they do not, it says so
and fails. Ratios are of seconds per token, from request to last token: over all tokens, and prompt by prompt (where an
answer of five words counts as much as one of a hundred). Drafts and estimates are warm: other prompts come first.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich.progress import Progress

from core.generation import GenerationRequest
from core.sampling.params import SamplingParams
from core.verify.engine import VerifyConfig
from tests.bench import machine
from tests.bench.engines import Answered, Asked, Engines, processes, threads_worth
from tests.bench.expanded import GEOMETRIES, target
from tests.bench.hugging_face import with_family_drafts
from tests.bench.items import GENERAL, MIXED, Item, draft_directories, held_out
from tests.bench.output import save
from tests.bench.paired import Durations, Ratio, rotated
from tests.bench.rival_process import Job, RivalProcess
from tests.family.corpora import TASKS

PLAIN, TASK, GENERATE, ASSISTED = "plain", "task", "transformers", "transformers assisted"
OURS = (PLAIN, GENERAL, MIXED, TASK)
IN_PROCESS, HTTP = "in process", "over HTTP"
WARM = 2  # prompts of each task

Contender = Callable[[Item, float], Answered]


@dataclass
class Place:
    """What was measured in one place at one temperature; `differing` are prompts that ours did not answer alike."""

    name: str
    temperature: float
    durations: Durations = field(default_factory=Durations)
    first: Durations = field(default_factory=Durations)
    tokens: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    passes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    tasks: dict[int, str] = field(default_factory=dict)
    differing: list[str] = field(default_factory=list)

    def add(self, contender: str, item: Item, answered: Answered) -> None:
        self.durations.add(contender, item.number, answered.seconds, len(answered.tokens))
        self.first.add(contender, item.number, answered.first)
        self.tokens[contender] += len(answered.tokens) - 1
        self.passes[contender] += answered.passes
        self.tasks[item.number] = item.task

    def tokens_per_pass(self, contender: str) -> float:
        return self.tokens[contender] / max(1, self.passes[contender])

    def by_task(self, contender: str, baseline: str) -> dict[str, Ratio]:
        return {
            task: self.durations.ratio(contender, baseline, {n: of == task for n, of in self.tasks.items()})
            for task in dict.fromkeys(self.tasks.values())
        }


def measure(
    name: str,
    contenders: Mapping[str, Contender],
    items: Sequence[Item],
    temperature: float,
    progress: Progress,
    warm: Sequence[Item] = (),
) -> Place:
    """Every contender answers every item; the task's drafts have answered `warm` before."""
    place = Place(name, temperature)
    shown = progress.add_task(f"{name}, temperature {temperature:g}", total=len(items) * len(contenders))
    for contender in contenders.values():  # first calls lay out memory and load kernels
        contender(items[0], temperature)
    for item in warm:
        contenders[TASK](item, temperature)
    for item in items:
        said: dict[str, tuple[int, ...]] = {}
        for contender in rotated(list(contenders), item.number):
            answered = contenders[contender](item, temperature)
            place.add(contender, item, answered)
            if contender in OURS:
                said[contender] = answered.tokens
            progress.advance(shown)
        if len(set(said.values())) > 1:
            place.differing.append(item.prompt)
    return place


def check(places: Sequence[Place]) -> None:
    """Raises SystemExit where one of ours answered otherwise than another."""
    told = [f"{at.name}, temperature {at.temperature:g}: {at.differing}" for at in places if at.differing]
    if told:
        raise SystemExit(f"answers differ: {'; '.join(told)}")


def in_process(engines: Engines, theirs: RivalProcess, max_tokens: int) -> dict[str, Contender]:
    """Ours without Ray and transformers'."""

    def ours(contender: str) -> Contender:
        def answer(item: Item, temperature: float) -> Answered:
            params = SamplingParams(seed=item.number, max_tokens=max_tokens, temperature=temperature)
            request = GenerationRequest(tokens=item.tokens, prompt_length=len(item.tokens), params=params)
            [answered] = engines.answer([Asked(request, draft_of(contender, item))])
            return answered

        return answer

    return {contender: ours(contender) for contender in OURS} | transformers(theirs, max_tokens)


def transformers(theirs: RivalProcess, max_tokens: int) -> dict[str, Contender]:
    def answer(item: Item, temperature: float, draft: str | None) -> Answered:
        return theirs.answer(Job(item.tokens, max_tokens, temperature, item.number, draft))

    return {
        GENERATE: lambda item, temperature: answer(item, temperature, None),
        ASSISTED: lambda item, temperature: answer(item, temperature, item.slot),
    }


def draft_of(contender: str, item: Item) -> str | None:
    return {PLAIN: None, TASK: item.slot}.get(contender, contender)


def table(places: Sequence[Place]) -> str:
    """Markdown."""
    lines = [
        (
            "| where | temperature | contender | ms per token (quartiles) | first token, ms | per pass "
            "| times plain, all tokens | by prompt |"
        ),
        "|---|---|---|---|---|---|---|---|",
    ]
    for place in places:
        for contender in place.durations.contenders:
            median, low, high = (1e3 * seconds for seconds in place.durations.quartiles(contender))
            lines.append(
                f"| {place.name} | {place.temperature:g} | {contender} | {median:.1f} ({low:.1f} to {high:.1f}) "
                f"| {1e3 * place.first.quartiles(contender)[0]:.0f} | {place.tokens_per_pass(contender):.2f} "
                f"| {place.durations.overall(contender, PLAIN)} | {place.durations.ratio(contender, PLAIN)} |"
            )
    lines += ["", "| where | temperature | task | task's draft, times plain | times transformers assisted |"]
    lines += ["|---|---|---|---|---|"]
    for place in places:
        assisted = place.by_task(TASK, ASSISTED) if ASSISTED in place.durations.contenders else {}
        for task, ratio in place.by_task(TASK, PLAIN).items():
            lines.append(f"| {place.name} | {place.temperature:g} | {task} | {ratio} | {assisted.get(task, '')} |")
        if assisted:
            for label, told in (("prompts", place.durations.ratio), ("tokens", place.durations.overall)):
                lines.append(
                    f"| {place.name} | {place.temperature:g} | **all {label}** | {told(TASK, PLAIN)} "
                    f"| {told(TASK, ASSISTED)} |"
                )
    asked, differing = sum(len(place.tasks) for place in places), sum(len(place.differing) for place in places)
    lines += ["", f"Ours answered {asked - differing} of {asked} prompts alike."]
    return "\n".join(lines)


def as_json(places: Sequence[Place]) -> list[dict[str, object]]:
    return [
        {
            "where": place.name,
            "temperature": place.temperature,
            "contenders": {
                contender: {
                    "seconds_per_token": place.durations.quartiles(contender),
                    "seconds_to_first_token": place.first.quartiles(contender),
                    "tokens_per_pass": place.tokens_per_pass(contender),
                    "times_plain": place.durations.overall(contender, PLAIN)._asdict(),
                    "times_plain_by_prompt": place.durations.ratio(contender, PLAIN)._asdict(),
                }
                for contender in place.durations.contenders
            },
            "differing": place.differing,
            "times_plain_by_task": {task: ratio._asdict() for task, ratio in place.by_task(TASK, PLAIN).items()},
        }
        for place in places
    ]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.decode", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=GEOMETRIES, default="100m", help="parameters of the expanded target")
    parser.add_argument("--per-task", type=int, default=4, help="prompts of each of the six tasks")
    parser.add_argument("--max-tokens", type=int, default=128, help="few answers are longer")
    parser.add_argument("--length", type=int, default=12, help="most tokens proposed for a pass")
    parser.add_argument("--threads", type=int, help="of the verifier; by default as measured, leaving a core over HTTP")
    parser.add_argument("--their-threads", type=int, default=2, help="torch threads of transformers")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("--where", choices=("process", "http", "both"), default="both")
    parser.add_argument("--cache", type=Path, default=Path(".cache/bench"), help="where expanded targets are kept")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/decode"))
    chosen = parser.parse_args(argv)
    from tests.bench.over_http import service  # not above: what is in process is measured where Ray is not installed

    torch.set_num_threads(1)
    directory, drafts = target(chosen.size, chosen.cache), draft_directories()
    alone, served_on = (chosen.threads or threads_worth(directory, left=left) for left in (0, 1))
    asked = held_out(chosen.per_task + WARM)
    warm, items = asked[: WARM * len(TASKS)], asked[WARM * len(TASKS) :]
    places: list[Place] = []
    with ExitStack() as running, Progress() as progress:
        theirs = running.enter_context(with_family_drafts(directory, drafts, chosen.length, chosen.their_threads))
        if chosen.where != "http":
            config = VerifyConfig(max_sessions=4, num_speculative_tokens=chosen.length)
            with Engines(directory, processes(drafts), config, threads=alone) as engines:
                contenders = in_process(engines, theirs, chosen.max_tokens)
                places += [measure(IN_PROCESS, contenders, items, t, progress, warm) for t in chosen.temperatures]
        if chosen.where != "process":
            served = running.enter_context(service(directory, chosen.length, chosen.max_tokens, served_on))
            contenders = {
                name: lambda item, temperature, name=name: served.answer(item, draft_of(name, item), temperature)
                for name in OURS
            } | transformers(theirs, chosen.max_tokens)
            places += [measure(HTTP, contenders, items, t, progress, warm) for t in chosen.temperatures]
    target_is = f"{chosen.size} target in bf16, threads {alone} in process, {served_on} over HTTP"
    text = f"{table(places)}\n\n{target_is}, {machine.line()}\n"
    save(chosen, "decode", text, {"places": as_json(places)})
    check(places)


if __name__ == "__main__":
    main()
