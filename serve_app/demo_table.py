"""What the demo found: pairs of answers, speculation on and off, enter; one table leaves, for eyes or as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from serve_app.demo_client import Answer, Question


@dataclass(frozen=True)
class Outcome:
    """One question answered twice."""

    question: Question
    speculated: Answer
    plain: Answer

    @property
    def equal(self) -> bool:
        return self.speculated.same_as(self.plain)


@dataclass(frozen=True)
class Row:
    """A task's outcomes, or all of them."""

    name: str
    outcomes: Sequence[Outcome]

    @property
    def routed(self) -> Counter[str]:
        return Counter(outcome.speculated.task for outcome in self.outcomes)

    @property
    def equal(self) -> int:
        return sum(outcome.equal for outcome in self.outcomes)

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / proposed; None where nothing was proposed."""
        answers = [outcome.speculated for outcome in self.outcomes]
        proposed = sum(answer.proposed for answer in answers)
        return sum(answer.accepted for answer in answers) / proposed if proposed else None

    @property
    def tokens_per_target_pass(self) -> float | None:
        """Plain passes count, the prefill does not; None where the prefill was all."""
        passes = [run for outcome in self.outcomes for run in outcome.speculated.runs[1:]]
        return sum(passes) / len(passes) if passes else None

    def as_json(self) -> dict[str, Any]:
        return {
            "prompts": len(self.outcomes),
            "routed": dict(self.routed),
            "acceptance_rate": self.acceptance_rate,
            "tokens_per_target_pass": self.tokens_per_target_pass,
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
        """The table for scripts."""
        return {
            "tasks": {row.name: row.as_json() for row in self.rows},
            "total": self.total.as_json(),
            "all_equal": self.all_equal,
        }

    def render(self) -> Table:
        """The table for a terminal."""
        table = Table()
        table.add_column("task")
        table.add_column("prompts", justify="right")
        table.add_column("routed to")
        for name in ("acceptance\nrate", "tokens per\ntarget pass", "equal to\nspec. off"):
            table.add_column(name, justify="right", no_wrap=True)
        for row in self.rows:
            table.add_row(*_cells(row, _places(row)))
        table.add_section()
        own = sum(row.routed[row.name] for row in self.rows)
        table.add_row(*_cells(self.total, f"own task {own}/{len(self.outcomes)}"), style="bold")
        return table


def _cells(row: Row, routed: str) -> list[str | Text]:
    count = len(row.outcomes)
    equal = Text(f"{row.equal}/{count}", style="green" if row.equal == count else "bold red")
    return [row.name, str(count), routed, _figure(row.acceptance_rate), _figure(row.tokens_per_target_pass), equal]


def _places(row: Row) -> str:
    return ", ".join(f"{task} {count}/{len(row.outcomes)}" for task, count in row.routed.most_common())


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
