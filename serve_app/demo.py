"""The demo: prompts of every task answered by every draft and without one, over HTTP, and one table of what came out.

Enters: a base URL of a running service that streams run by run. Leaves: a `DemoTable`; all is shown on the way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rich.console import Console
from rich.text import Text
from tokenizers import Tokenizer

from core.family.corpora import TASKS, items
from serve_app.bundled import Served
from serve_app.chat_client import AS_ROUTED, OFF, Answer, Speculation
from serve_app.config import GENERAL
from serve_app.demo_client import DemoClient, Question
from serve_app.demo_table import OWN, DemoTable, Outcome, most_routed, tokens_per_target_pass
from serve_app.progress import stage
from serve_app.transcript import Transcript, mark

SEED = 20
WARM = 1.0  # the temperature of every second prompt; the others are answered at 0


class Demo:
    """One run of the demo. `controls` names pools to measure the tasks' own by; if not `aloud`, only progress shows."""

    def __init__(
        self,
        model: str,
        url: str,
        controls: Mapping[str, str],
        tokenizer: Tokenizer,
        console: Console,
        *,
        aloud: bool,
    ) -> None:
        self._model = model
        self._url = url
        self._controls = controls
        self._tokenizer = tokenizer
        self._console = console
        self._aloud = aloud

    def run(self, per_task: int) -> DemoTable:
        """Raises `BadAnswer`."""
        return asyncio.run(self._run(questions(per_task)))

    async def _run(self, asked: list[Question]) -> DemoTable:
        if self._aloud:
            self._explain()
        async with DemoClient(self._url, self._model) as client:
            by_task = {task: await self._one_task(client, task, asked) for task in TASKS}
            if self._aloud:
                self._console.print()
            drafts = {
                name: await self._again(client, asked, f"with the {name} draft", [{"task": pool}] * len(asked))
                for name, pool in self._controls.items()
            }
            slots = {task: most_routed(answers) for task, answers in by_task.items()}
            drafts[OWN] = await self._again(
                client, asked, "with the task's own draft", [{"task": slots[question.task]} for question in asked]
            )
            plain = await self._again(client, asked, "with speculation off", [OFF] * len(asked))
        routed = [answer for answers in by_task.values() for answer in answers]
        compared = [{name: answers[number] for name, answers in drafts.items()} for number in range(len(asked))]
        return DemoTable([Outcome(*each) for each in zip(asked, routed, compared, plain, strict=True)])

    async def _again(
        self, client: DemoClient, asked: Sequence[Question], how: str, speculation: Sequence[Speculation]
    ) -> list[Answer]:
        with stage(self._console, f"Asking all of it again {how}", f"All asked again {how}"):
            return await asyncio.gather(*map(client.ask, asked, speculation))

    async def _one_task(self, client: DemoClient, task: str, asked: Sequence[Question]) -> list[Answer]:
        """All prompts of the task at once, the first one aloud."""
        first, *others = [question for question in asked if question.task == task]
        rest = asyncio.gather(*(client.ask(question, AS_ROUTED) for question in others))
        if not self._aloud:
            with stage(self._console, f"Asking {task}"):
                return [await client.ask(first, AS_ROUTED), *await rest]
        self._console.print(Text.assemble((f"\n{task}", "bold cyan"), (f"  {_manner(first)}", "dim")))
        self._console.print(Text(first.prompt, "italic"), soft_wrap=True)
        transcript = Transcript(self._console, self._tokenizer)
        answers = [await client.ask(first, AS_ROUTED, transcript.show)]
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


def run_by_run(served: Served) -> Served:
    """The service as configured, but that every run is streamed as a chunk of its own.

    The demo marks what was accepted and counts target passes by chunks; who listens on loopback is nobody else.
    """
    ingress = served.config.ingress.model_copy(update={"stream_interval_s": 0.0})
    return replace(served, config=served.config.model_copy(update={"ingress": ingress}))


def questions(per_task: int) -> list[Question]:
    """Held-out prompts, `per_task` of each task, the same every time."""
    drawn = [item for task in TASKS for item in items(task, per_task, SEED, split="held_out")]
    return [
        Question(item.task, item.prompt, temperature=WARM * (number % 2), seed=number)
        for number, item in enumerate(drawn)
    ]


def report(table: DemoTable, served: Served, console: Console) -> None:
    """The table, which answers differ if any do, and what all this shows."""
    console.print(table.render())
    for outcome in table.outcomes:
        if not outcome.equal:
            console.print(Text(_difference(outcome), "bold red"), soft_wrap=True)
    console.print(meaning(table, served), highlight=False)


def meaning(table: DemoTable, served: Served) -> str:
    """What the table shows, and what it does not."""
    answers = sum(len(outcome.speculated) for outcome in table.outcomes)
    held = (
        f"each of {answers} answers with speculation was the target's own, token for token"
        if table.all_equal
        else "NOT every answer with speculation was the target's"
    )
    rates = {name: tokens_per_target_pass(answers) or 1.0 for name, answers in table.total.drafted().items()}
    own = rates.pop(OWN)
    others = "".join(f", the {name} draft {rate:.2f}" for name, rate in rates.items())
    tasks = len(served.drafts.keys() - {GENERAL})
    drafts = f"{tasks} tasks have drafts of their own" if tasks else "no bundle is served, so no task has its own draft"
    return (
        f"{held[0].upper()}{held[1:]}. A target pass gave {own:.2f} tokens with the task's own draft{others}; "
        f"plain decoding gives 1. {drafts[0].upper()}{drafts[1:]}. Speed is not what this demo measures."
    )


def _manner(question: Question) -> str:
    return f"temperature {question.temperature:g}" + (f", seed {question.seed}" if question.temperature else "")


def _difference(outcome: Outcome) -> str:
    plain = outcome.plain.tokens
    ours = next(answer for answer in outcome.speculated if not answer.same_as(outcome.plain)).tokens
    same = next((at for at, pair in enumerate(zip(ours, plain, strict=False)) if pair[0] != pair[1]), None)
    where = f"from token {same}" if same is not None else f"in length, {len(ours)} tokens against {len(plain)}"
    return f"different {where}: {outcome.question.task}, {_manner(outcome.question)}: {outcome.question.prompt}"
