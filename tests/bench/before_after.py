"""One stream with this code beside an older checkout of it: what a change costs or brings on the same prompts.

    git worktree add ../before COMMIT
    python -m tests.bench.before_after --before ../before

Each code has a target and its drafts in processes of its own, as `decode` has them in process, and both answer every
prompt, in turns: plainly, with the draft as it is (`general`), and with the task's own (`task`). What a policy has
learned by chance lasts as long as its process. So each round begins with new ones, and a prompt counts once in each.
Processes differ by a few per cent, which the interval over prompts does not hold: see the rounds, and plain decoding.
All answers must be alike; where they are not, it says so and fails. Both codes run on this checkout's packages.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.progress import Progress

from tests.bench import machine
from tests.bench.before_after_side import Question, Reply
from tests.bench.decode import PLAIN, TASK, WARM
from tests.bench.expanded import GEOMETRIES, target
from tests.bench.items import GENERAL
from tests.bench.output import header, save
from tests.bench.paired import Durations, rotated
from tests.family.corpora import TASKS

BEFORE, AFTER = "before", "after"
CONTENDERS = (PLAIN, GENERAL, TASK)
TREE = Path(__file__).parents[2]
SIDE = Path(__file__).with_name("before_after_side.py")


class Cell(NamedTuple):
    threads: int
    temperature: float
    contender: str


class Found:
    """Seconds, tokens and passes of both codes in each cell, and the questions that they did not answer alike."""

    def __init__(self) -> None:
        self.durations: dict[Cell, Durations] = {}
        self.rounds: dict[Cell, dict[int, Durations]] = {}
        self.passes: dict[tuple[Cell, str], list[tuple[int, int]]] = {}
        self.answers: dict[tuple[float, int], set[tuple[int, ...]]] = {}

    def add(self, cell: Cell, code: str, item: tuple[int, int], reply: Reply) -> None:
        """A reply to the prompt of an item, which is a round and the prompt's number."""
        for durations in (
            self.durations.setdefault(cell, Durations()),
            self.rounds.setdefault(cell, {}).setdefault(item[0], Durations()),
        ):
            durations.add(code, item, reply.seconds, len(reply.tokens))
        self.passes.setdefault((cell, code), []).append((len(reply.tokens) - 1, reply.passes))
        self.answers.setdefault((cell.temperature, item[1]), set()).add(reply.tokens)

    def tokens_per_pass(self, cell: Cell, code: str) -> float:
        tokens, passes = map(sum, zip(*self.passes[cell, code], strict=True))
        return tokens / max(1, passes)

    def by_round(self, cell: Cell) -> str:
        return ", ".join(f"{durations.overall(AFTER, BEFORE).value:.2f}" for durations in self.rounds[cell].values())

    @property
    def differing(self) -> list[tuple[float, int]]:
        return [asked for asked, answers in self.answers.items() if len(answers) > 1]


class Side:
    """One of the codes, ready to answer."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def answer(self, question: Question) -> Reply:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(question) + b"\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self.line(), type=Reply)

    def line(self) -> bytes:
        """What it says next. Raises SystemExit if it has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("one of the codes ended by itself; what it printed stands above")
        return line


@contextmanager
def side(tree: Path, directory: Path, threads: int, per_task: int) -> Iterator[Side]:
    """The code of this checkout, with its processes until the end."""
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, str(SIDE), str(directory), str(threads), str(per_task)]
    with subprocess.Popen(command, cwd=tree, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            ready = Side(process)
            ready.line()
            yield ready
        finally:
            if process.stdin is not None:
                process.stdin.close()


def measure(chosen: argparse.Namespace, directory: Path, progress: Progress) -> Found:
    found, warm, count = Found(), WARM * len(TASKS), (WARM + chosen.per_task) * len(TASKS)
    answers = len(CONTENDERS) * (count - warm) + warm
    rounds = [(threads, number) for threads in chosen.threads for number in range(chosen.rounds)]
    shown = progress.add_task("answers", total=2 * len(rounds) * len(chosen.temperatures) * answers)
    for threads, number in rounds:
        with ExitStack() as running:
            trees = {BEFORE: chosen.before.absolute(), AFTER: TREE}
            codes = {
                code: running.enter_context(side(trees[code], directory, threads, WARM + chosen.per_task))
                for code in rotated(list(trees), number)
            }
            for temperature, item in ((t, i) for t in chosen.temperatures for i in range(count)):
                for contender in CONTENDERS if item >= warm else (TASK,):
                    for code in rotated(list(codes), item + number):
                        reply = codes[code].answer(Question(item, temperature, contender))
                        if item >= warm:
                            found.add(Cell(threads, temperature, contender), code, (number, item), reply)
                        progress.advance(shown)
    return found


def table(found: Found) -> str:
    """Markdown."""
    both = ("before, ms per token", "tokens per pass", "after, ms per token", "tokens per pass")
    lines = header(("threads", "temperature", "contender", *both, "speed in times before", "by round"))
    for cell, durations in found.durations.items():
        ratio = durations.overall(AFTER, BEFORE)
        told = [str(value) for value in cell]
        for code in (BEFORE, AFTER):
            told += [f"{1e3 * durations.quartiles(code)[0]:.1f}", f"{found.tokens_per_pass(cell, code):.2f}"]
        told += [f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})", found.by_round(cell)]
        lines.append(f"| {' | '.join(told)} |")
    alike = len(found.answers) - len(found.differing)
    return "\n".join([*lines, "", f"Both codes answered {alike} of {len(found.answers)} prompts alike in every way."])


def as_json(found: Found) -> list[dict[str, object]]:
    return [
        cell._asdict()
        | {"times_before": durations.overall(AFTER, BEFORE)._asdict(), "by_round": found.by_round(cell)}
        | {
            code: {
                "seconds_per_token": durations.quartiles(code),
                "tokens_per_pass": found.tokens_per_pass(cell, code),
            }
            for code in (BEFORE, AFTER)
        }
        for cell, durations in found.durations.items()
    ]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.before_after",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--before", type=Path, required=True, help="checkout of the code before")
    parser.add_argument("--size", choices=GEOMETRIES, default="100m", help="parameters of the expanded target")
    parser.add_argument("--per-task", type=int, default=2, help="prompts of each of the six tasks")
    parser.add_argument("--rounds", type=int, default=2, help="of new processes")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="of the target")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("--cache", type=Path, default=Path(".cache/bench"), help="where expanded targets are kept")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/before_after"))
    chosen = parser.parse_args(argv)
    if not (chosen.before / "tests" / "bench").is_dir():
        parser.error(f"--before: {chosen.before} is no checkout of this repository")
    directory = target(chosen.size, chosen.cache).absolute()
    with Progress() as progress:
        found = measure(chosen, directory, progress)
    save(chosen, "before_after", f"{table(found)}\n\n{machine.line()}\n", {"cells": as_json(found)})
    if found.differing:
        raise SystemExit(f"answers differ (temperature, prompt): {found.differing}")


if __name__ == "__main__":
    main()
