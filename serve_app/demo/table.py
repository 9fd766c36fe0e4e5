"""The demo's table, for a terminal or as JSON: for each task the routing, the figures of each draft, and equality."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from serve_app.client import Answer
from serve_app.demo.questions import DemoPrompt

OWN = "own"  # the draft of the task that most of a row's prompts were routed to


@dataclass(frozen=True)
class Outcome:
    """One question answered as routed, by each of the drafts that are compared, and with speculation off."""

    question: DemoPrompt
    routed: Answer
    drafts: Mapping[str, Answer]
    plain: Answer

    @property
    def speculated(self) -> list[Answer]:
        return [self.routed, *self.drafts.values()]

    @property
    def equal(self) -> bool:
        return all(answer.same_as(self.plain) for answer in self.speculated)


@dataclass(frozen=True)
class Row:
    """A task's outcomes, or all of them."""

    name: str
    outcomes: Sequence[Outcome]

    @property
    def routed(self) -> Counter[str]:
        return Counter(outcome.routed.task for outcome in self.outcomes)

    @property
    def slot(self) -> str:
        """The bundle's task that most of the prompts were routed to."""
        return most_routed(outcome.routed for outcome in self.outcomes)

    @property
    def equal(self) -> int:
        """Prompts all of whose answers are equal."""
        return sum(outcome.equal for outcome in self.outcomes)

    def drafted(self) -> dict[str, list[Answer]]:
        """The answers by draft."""
        names = self.outcomes[0].drafts
        return {name: [outcome.drafts[name] for outcome in self.outcomes] for name in names}

    def as_json(self) -> dict[str, Any]:
        return {
            "prompts": len(self.outcomes),
            "routed": dict(self.routed),
            **_figures([outcome.routed for outcome in self.outcomes]),
            "drafts": {name: _figures(answers) for name, answers in self.drafted().items()},
            "equal": self.equal,
        }


class DemoTable:
    """A row per task in the order asked, and one for all."""

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        tasks = dict.fromkeys(outcome.question.task for outcome in outcomes)
        self.outcomes = outcomes
        self.rows = [Row(task, [each for each in outcomes if each.question.task == task]) for task in tasks]
        self.total = Row("all", outcomes)

    @property
    def all_equal(self) -> bool:
        return self.total.equal == len(self.outcomes)

    def as_json(self) -> dict[str, Any]:
        """The table for scripts; the figures of a row itself are those as routed."""
        return {
            "tasks": {row.name: {"slot": row.slot} | row.as_json() for row in self.rows},
            "total": self.total.as_json(),
            "all_equal": self.all_equal,
        }

    def render(self) -> Table:
        """The table for a terminal of 80 columns."""
        drafts = "/".join(self.total.drafted())
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("prompts\nof", no_wrap=True)
        table.add_column("routed\nto", no_wrap=True)
        for name in ("acceptance rate", "tokens per pass"):
            table.add_column(f"{name}\n{drafts}", justify="center", no_wrap=True)
        table.add_column("equal to\nplain", justify="right", no_wrap=True)
        for row in self.rows:
            table.add_row(*_cells(row, row.slot, row.routed[row.slot]))
        table.add_section()
        table.add_row(*_cells(self.total, "", sum(row.routed[row.slot] for row in self.rows)), style="bold")
        return table


def most_routed(answers: Iterable[Answer]) -> str:
    """The task that most of these prompts were routed to."""
    return Counter(answer.task for answer in answers).most_common(1)[0][0]


def acceptance_rate(answers: Sequence[Answer]) -> float | None:
    """accepted / proposed; None where nothing was proposed."""
    proposed = sum(answer.proposed for answer in answers)
    return sum(answer.accepted for answer in answers) / proposed if proposed else None


def tokens_per_target_pass(answers: Sequence[Answer]) -> float | None:
    """Of answers streamed run by run. Plain passes count, the prefill does not; None where the prefill was all."""
    passes = [run for answer in answers for run in answer.runs[1:]]
    return sum(passes) / len(passes) if passes else None


def _figures(answers: Sequence[Answer]) -> dict[str, float | None]:
    return {
        "acceptance_rate": acceptance_rate(answers),
        "tokens_per_target_pass": tokens_per_target_pass(answers),
    }


def _cells(row: Row, slot: str, there: int) -> list[str | Text]:
    count = len(row.outcomes)
    drafted = row.drafted().values()
    equal = Text(f"{row.equal}/{count}", style="green" if row.equal == count else "bold red")
    rates = ["/".join(_figure(of(answers)) for answers in drafted) for of in (acceptance_rate, tokens_per_target_pass)]
    return [row.name, f"{slot} {there}/{count}".strip(), *rates, equal]


def _figure(value: float | None) -> str:
    return " -- " if value is None else f"{value:.2f}"
