"""The demo: prompts of every task answered with speculation and without, over HTTP, and one table of what came out.

Enters: a base URL of a running service. Leaves: a `DemoTable`; what happens is shown on the way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text
from tokenizers import Tokenizer

from core.family.corpora import TASKS, items
from serve_app.config import ServiceConfig
from serve_app.demo_client import Answer, Client, Question
from serve_app.demo_table import DemoTable, Outcome
from serve_app.progress import stage
from serve_app.transcript import Transcript, mark

SEED = 20
WARM = 1.0  # the temperature of every second prompt; the others are answered at 0


class Demo:
    """One run of the demo. With `aloud` false only the progress is shown."""

    def __init__(self, config: ServiceConfig, url: str, tokenizer: Tokenizer, console: Console, *, aloud: bool) -> None:
        self._config = config
        self._url = url
        self._tokenizer = tokenizer
        self._console = console
        self._aloud = aloud

    def run(self, per_task: int) -> DemoTable:
        """Raises `BadAnswer`."""
        return asyncio.run(self._run(questions(per_task)))

    async def _run(self, asked: list[Question]) -> DemoTable:
        if self._aloud:
            self._explain()
        async with Client(self._url, self._config.name) as client:
            speculated = [answer for task in TASKS for answer in await self._one_task(client, task, asked)]
            with stage(
                self._console, "Asking all of it again with speculation off", "\nAll asked again with speculation off"
            ):
                plain = await asyncio.gather(*(client.ask(question, speculate=False) for question in asked))
        return DemoTable([Outcome(*each) for each in zip(asked, speculated, plain, strict=True)])

    async def _one_task(self, client: Client, task: str, asked: Sequence[Question]) -> list[Answer]:
        """All prompts of the task at once, the first one aloud."""
        first, *others = [question for question in asked if question.task == task]
        rest = asyncio.gather(*(client.ask(question, speculate=True) for question in others))
        if not self._aloud:
            with stage(self._console, f"Asking {task}"):
                return [await client.ask(first, speculate=True), *await rest]
        self._console.print(Text.assemble((f"\n{task}", "bold cyan"), (f"  {_manner(first)}", "dim")))
        self._console.print(Text(first.prompt, "italic"), soft_wrap=True)
        transcript = Transcript(self._console, self._tokenizer)
        answers = [await client.ask(first, speculate=True, show=transcript.show)]
        transcript.end()
        with stage(self._console, f"Waiting for {len(others)} more of {task}"):
            answers += await rest
        self._count(answers[1:])
        return answers

    def _count(self, others: Sequence[Answer]) -> None:
        if others:
            tokens = sum(len(answer.tokens) for answer in others)
            more = f"and {len(others)} more answer{'s' if len(others) > 1 else ''}, {tokens} tokens"
            self._console.print(f"[dim]{more}[/dim]", highlight=False)

    def _explain(self) -> None:
        legend = Text.assemble(
            mark("marked like this", self._console), ": guessed by the draft, accepted by the target; "
        )
        legend.append("the rest: written by the target itself. Every second prompt is answered at temperature 0, ")
        legend.append(f"the others at {WARM} with a seed.")
        self._console.print(legend)


def questions(per_task: int) -> list[Question]:
    """Held-out prompts, `per_task` of each task, the same every time."""
    drawn = [item for task in TASKS for item in items(task, per_task, SEED, split="held_out")]
    return [
        Question(item.task, item.prompt, temperature=WARM * (number % 2), seed=number)
        for number, item in enumerate(drawn)
    ]


def report(table: DemoTable, config: ServiceConfig, console: Console) -> None:
    """The table, which answers differ if any do, and what all this shows."""
    console.print()
    console.print(table.render())
    for outcome in table.outcomes:
        if not outcome.equal:
            console.print(Text(_difference(outcome), "bold red"), soft_wrap=True)
    console.print(meaning(table, config))


def meaning(table: DemoTable, config: ServiceConfig) -> str:
    """What the table shows, and what it does not."""
    held = (
        "every answer was the target's own, token for token" if table.all_equal else "NOT every answer was the target's"
    )
    rate = table.total.tokens_per_target_pass or 1.0
    adapted = [task for task, pool in config.pools.items() if pool.adapter is not None]
    drafts = (
        f"{len(adapted)} of {len(config.pools)} pools serve an adapted draft"
        if adapted
        else "every pool still serves the same un-adapted draft, so routing cannot raise acceptance yet"
    )
    return (
        f"With speculation on {held}, at {rate:.2f} tokens per target pass instead of 1; {drafts}; "
        "speed is not what this demo measures."
    )


def _manner(question: Question) -> str:
    return f"temperature {question.temperature:g}" + (f", seed {question.seed}" if question.temperature else "")


def _difference(outcome: Outcome) -> str:
    ours, plain = outcome.speculated.tokens, outcome.plain.tokens
    same = next((at for at, pair in enumerate(zip(ours, plain, strict=False)) if pair[0] != pair[1]), None)
    where = f"from token {same}" if same is not None else f"in length, {len(ours)} tokens against {len(plain)}"
    return f"different {where}: {outcome.question.task}, {_manner(outcome.question)}: {outcome.question.prompt}"
