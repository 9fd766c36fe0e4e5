"""One stream with this code beside an older checkout of it: what a change costs or brings on the same prompts.

    git worktree add ../before COMMIT
    python -m tests.bench.before_after --before ../before

Each code has a target and its drafts in processes of its own, as `decode` has them in process, and both answer every
prompt, in turns: plainly, with the draft as it is (`general`), and with the task's own (`task`). What a policy has
learned by chance lasts as long as its process, so each round begins with new ones.

Processes differ by a few per cent, which the interval over prompts does not hold: see the rounds, and the speed beside
that of plain decoding in the same processes. All answers must be alike; where they are not, it says so and fails. Both
codes run on this checkout's packages.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
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
from tests.bench.paired import Durations, Ratio, rotated
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
    """Replies by cell, code and round, and then by the number of the prompt."""

    def __init__(self) -> None:
        self.replies: dict[Cell, dict[str, dict[int, dict[int, Reply]]]] = {}

    def add(self, cell: Cell, code: str, number: int, prompt: int, reply: Reply) -> None:
        """A reply in the round of this number."""
        rounds = self.replies.setdefault(cell, {}).setdefault(code, {})
        rounds.setdefault(number, {})[prompt] = reply

    def durations(self, cell: Cell, only: int | None = None) -> Durations:
        """Of both codes, a prompt's rounds together, or of one round."""
        durations = Durations()
        for code, rounds in self.replies[cell].items():
            together: dict[int, list[Reply]] = {}
            for number, replies in rounds.items():
                for prompt in replies if only in (None, number) else ():
                    together.setdefault(prompt, []).append(replies[prompt])
            for prompt, all_rounds in together.items():
                seconds = sum(reply.seconds for reply in all_rounds)
                durations.add(code, prompt, seconds, sum(len(reply.tokens) for reply in all_rounds))
        return durations

    def speed(self, cell: Cell, only: int | None = None) -> Ratio:
        """That of the code after in times the code before."""
        return self.durations(cell, only).overall(AFTER, BEFORE)

    def by_round(self, cell: Cell) -> list[float]:
        return [self.speed(cell, number).value for number in self.replies[cell][AFTER]]

    def beside_plain(self, cell: Cell) -> float:
        """The speed in times that of plain decoding, in the same processes."""
        return self.speed(cell).value / self.speed(cell._replace(contender=PLAIN)).value

    def tokens_per_pass(self, cell: Cell, code: str) -> float:
        replies = [reply for prompts in self.replies[cell][code].values() for reply in prompts.values()]
        tokens = sum(len(reply.tokens) - 1 for reply in replies)
        return tokens / max(1, sum(reply.passes for reply in replies))

    @property
    def answers(self) -> dict[tuple[float, int], set[tuple[int, ...]]]:
        """All that was answered to a prompt at a temperature, in any way."""
        answers: dict[tuple[float, int], set[tuple[int, ...]]] = {}
        for cell, codes in self.replies.items():
            for prompts in (prompts for rounds in codes.values() for prompts in rounds.values()):
                for prompt, reply in prompts.items():
                    answers.setdefault((cell.temperature, prompt), set()).add(reply.tokens)
        return answers

    @property
    def differing(self) -> list[tuple[float, int]]:
        return [asked for asked, answers in self.answers.items() if len(answers) > 1]


class Side:
    """One of the codes, ready to answer."""

    def __init__(self, tree: Path, process: subprocess.Popen[bytes]) -> None:
        self._tree = tree
        self._process = process

    def answer(self, question: Question) -> Reply:
        """Raises SystemExit if it has ended."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(msgspec.json.encode(question) + b"\n")
            self._process.stdin.flush()
        return msgspec.json.decode(self.line(), type=Reply)

    def line(self) -> bytes:
        """What it says next. Raises SystemExit if it has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the code in {self._tree} ended by itself; what it printed stands above")
        return line


@contextmanager
def side(tree: Path, directory: Path, threads: int, per_task: int) -> Iterator[Side]:
    """The code of this checkout, with its processes until the end."""
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, str(SIDE), str(directory), str(threads), str(per_task)]
    with subprocess.Popen(command, cwd=tree, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            ready = Side(tree, process)
            ready.line()
            yield ready
        finally:
            with suppress(BrokenPipeError):
                process.communicate()


def measure(chosen: argparse.Namespace, directory: Path, progress: Progress) -> Found:
    found, warm, count = Found(), WARM * len(TASKS), (WARM + chosen.per_task) * len(TASKS)
    answers = len(CONTENDERS) * (count - warm + 1) + warm - 1
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
                contenders = CONTENDERS if item == 0 or item >= warm else (TASK,)  # the first lays out memory for all
                for contender in rotated(contenders, item + number):
                    for code in rotated((BEFORE, AFTER), item // 2 + number):
                        reply = codes[code].answer(Question(item, temperature, contender))
                        if item >= warm:
                            found.add(Cell(threads, temperature, contender), code, number, item, reply)
                        progress.advance(shown)
    return found


def table(found: Found) -> str:
    """Markdown."""
    both = ("before, ms per token", "tokens per pass", "after, ms per token", "tokens per pass")
    lines = header(("threads", "temperature", "contender", *both, "speed in times before", "by round", "beside plain"))
    for cell in found.replies:
        durations, speed, told = found.durations(cell), found.speed(cell), [str(value) for value in cell]
        for code in (BEFORE, AFTER):
            told += [f"{1e3 * durations.quartiles(code)[0]:.1f}", f"{found.tokens_per_pass(cell, code):.2f}"]
        told.append(f"{speed.value:.3f} ({speed.low:.3f} to {speed.high:.3f})")
        told += [", ".join(f"{value:.2f}" for value in found.by_round(cell)), f"{found.beside_plain(cell):.2f}"]
        lines.append(f"| {' | '.join(told)} |")
    alike = len(found.answers) - len(found.differing)
    return "\n".join([*lines, "", f"Both codes answered {alike} of {len(found.answers)} prompts alike in every way."])


def as_json(found: Found) -> list[dict[str, object]]:
    return [
        cell._asdict()
        | {"speed": found.speed(cell)._asdict(), "by_round": found.by_round(cell)}
        | {"beside_plain": found.beside_plain(cell)}
        | {
            code: {
                "seconds_per_token": found.durations(cell).quartiles(code),
                "tokens_per_pass": found.tokens_per_pass(cell, code),
            }
            for code in (BEFORE, AFTER)
        }
        for cell in found.replies
    ]


def commit(tree: Path) -> str:
    """Of a checkout, with a mark if it was changed since."""
    command = ["git", "-C", str(tree), "describe", "--always", "--dirty"]
    told = subprocess.run(command, check=False, capture_output=True, text=True)
    return told.stdout.strip() or "unknown"


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
    commits = {BEFORE: commit(chosen.before), AFTER: commit(TREE)}
    with Progress() as progress:
        found = measure(chosen, directory, progress)
    facts = f"Before: {commits[BEFORE]}, after: {commits[AFTER]}. {machine.line()}"
    save(chosen, "before_after", f"{table(found)}\n\n{facts}\n", {"cells": as_json(found)}, **commits)
    if found.differing:
        raise SystemExit(f"answers differ (temperature, prompt): {found.differing}")


if __name__ == "__main__":
    main()
