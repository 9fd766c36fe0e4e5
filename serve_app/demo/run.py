"""The demo: prompts of every task, answered over HTTP by every draft and without one, and a table of the results."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from core.draft_key import GENERAL
from serve_app.client import AS_ROUTED, OFF, Answer, Client, Speculation
from serve_app.demo.questions import WARM, DemoPrompt, questions
from serve_app.demo.table import OWN, DemoTable, Outcome, most_routed, tokens_per_target_pass
from serve_app.deployments.models.served_models import ServedModels
from serve_app.terminal.progress import step
from serve_app.terminal.transcript import Transcript, marked, marks_on


class Demo:
    """One run of the demo against the service at `url`.

    `controls` are the pools of the drafts that a task's own draft is compared with, by name. If one of them is the only
    draft of the service, it stands for the own ones too. With `show_answers` the first answer of each task appears as
    it is generated; otherwise only progress is shown.
    """

    def __init__(
        self,
        served: ServedModels,
        url: str,
        controls: Mapping[str, str],
        console: Console,
        *,
        show_answers: bool,
    ) -> None:
        self._config = served.config
        self._client = Client(f"{url}/v1")
        self._controls = controls
        self._compare_own = all(served.drafts.keys() != {pool} for pool in controls.values())
        self._console = console
        self._show_answers = show_answers

    def run(self, per_task: int) -> DemoTable:
        """Raises `BadAnswer`."""
        return asyncio.run(self._run(questions(self._config, per_task)))

    async def _run(self, prompts: list[DemoPrompt]) -> DemoTable:
        tasks = dict.fromkeys(question.task for question in prompts)
        if self._show_answers:
            self._explain()
        async with self._client:
            by_task = {task: await self._one_task(task, prompts) for task in tasks}
            if self._show_answers:
                self._console.print()
            drafts = {
                name: await self._again(prompts, f"with the {name} draft", [self._drafted_by(pool)] * len(prompts))
                for name, pool in self._controls.items()
            }
            if self._compare_own:
                slots = {task: most_routed(answers) for task, answers in by_task.items()}
                own = [self._drafted_by(slots[question.task]) for question in prompts]
                drafts[OWN] = await self._again(prompts, "with the task's own draft", own)
            plain = await self._again(prompts, "with speculation off", [OFF] * len(prompts))
        routed = [answer for answers in by_task.values() for answer in answers]
        compared = [{name: answers[number] for name, answers in drafts.items()} for number in range(len(prompts))]
        return DemoTable([Outcome(*each) for each in zip(prompts, routed, compared, plain, strict=True)])

    def _drafted_by(self, pool: str) -> Speculation:
        """Drafting by the pool in any case: given a number of tokens, the service does not decide whether it pays."""
        return {"task": pool, "num_speculative_tokens": self._config.draft.num_speculative_tokens}

    async def _one_task(self, task: str, prompts: Sequence[DemoPrompt]) -> list[Answer]:
        """Ask the task's prompts, each drafted for as routed, and show the first answer."""
        first, *others = [question for question in prompts if question.task == task]
        if not self._show_answers:
            return await self._ask([first, *others], f"Asking the prompts of {task}")
        self._console.print(Text.assemble((f"\n{task}", "bold cyan"), (f"  {first.manner}", "dim")))
        self._console.print(Text(first.prompt, "italic"), soft_wrap=True)
        transcript = Transcript(self._console, marks_on(self._console, brackets=True))
        answer = await self._client.ask(first.body(self._config.name, AS_ROUTED), transcript.show)
        transcript.end()
        more = f"{len(others)} more of {task}"
        return [answer, *await self._ask(others, f"Asking {more}", f"{more} answered")]

    async def _again(self, prompts: Sequence[DemoPrompt], how: str, speculation: Sequence[Speculation]) -> list[Answer]:
        doing = f"Asking all {len(prompts)} prompts again {how}"
        return await self._ask(prompts, doing, f"All asked again {how}", speculation)

    async def _ask(
        self, prompts: Sequence[DemoPrompt], doing: str, done: str = "", speculation: Sequence[Speculation] = ()
    ) -> list[Answer]:
        """One question at a time: a service drafts less, or not at all, for requests that share its passes."""
        answers: list[Answer] = []
        if prompts:
            with step(self._console, doing, done, len(prompts)) as asking:
                for question, mode in zip(prompts, speculation or [AS_ROUTED] * len(prompts), strict=True):
                    answers.append(await self._client.ask(question.body(self._config.name, mode)))
                    asking.reach(len(answers))
        return answers

    def _explain(self) -> None:
        sample = marked("marked like this", marks_on(self._console, brackets=True))
        legend = Text.assemble(Text.from_ansi(sample), ": proposed by the draft and accepted; ")
        legend.append("the rest: written by the target itself. Every second prompt is answered at temperature 0, ")
        legend.append(f"the others at {WARM} with a seed.")
        self._console.print(legend)


def report(table: DemoTable, served: ServedModels, console: Console) -> None:
    """Print the table, the answers that differ, if any, and a summary."""
    console.print(table.render())
    for outcome in table.outcomes:
        if not outcome.equal:
            console.print(Text(_difference(outcome), "bold red"), soft_wrap=True)
    console.print(summary(table, served), highlight=False)


def summary(table: DemoTable, served: ServedModels) -> str:
    """The result of the demo in a few sentences."""
    answers = sum(len(outcome.speculated) for outcome in table.outcomes)
    exact = (
        f"Each of {answers} answers with speculation was the target's own, token for token"
        if table.all_equal
        else "NOT every answer with speculation was the target's"
    )
    rates = {name: tokens_per_target_pass(answers) or 1.0 for name, answers in table.total.drafted().items()}
    named = {name: "the task's own draft" if name == OWN else f"the {name} draft" for name in rates}
    gave = ", ".join(f"{rate:.2f} tokens with {named[name]}" for name, rate in reversed(rates.items()))
    tasks = len(served.drafts.keys() - {GENERAL})
    drafts = f"Tasks with a draft of their own: {tasks}" if served.version else "No bundle is served"
    return (
        f"{exact}. A target pass gave {gave}; plain decoding gives 1. "
        f"{drafts}. {corrections(table)} Speed is not what this demo measures."
    )


def corrections(table: DemoTable) -> str:
    """What rerouting and looking up brought to the answers as routed, in one sentence."""
    accounts = [outcome.routed.speculation for outcome in table.outcomes]
    moved = sum(account.get("rerouted", 0) > 0 for account in accounts)
    looked_up = [
        counts for account in accounts for source, counts in account.get("sources", {}).items() if source != "draft"
    ]
    proposed, accepted = (sum(counts[name] for counts in looked_up) for name in ("proposed", "accepted"))
    return (
        f"As routed, {moved} of {len(accounts)} answers moved to another draft, and of {proposed} tokens looked up in "
        f"their own text {accepted} were accepted."
    )


def _difference(outcome: Outcome) -> str:
    plain = outcome.plain.tokens
    ours = next(answer for answer in outcome.speculated if not answer.same_as(outcome.plain)).tokens
    same = next((at for at, pair in enumerate(zip(ours, plain, strict=False)) if pair[0] != pair[1]), None)
    where = f"from token {same}" if same is not None else f"in length, {len(ours)} tokens against {len(plain)}"
    return f"different {where}: {outcome.question.task}, {outcome.question.manner}: {outcome.question.prompt}"
