"""Build the shipped family from its seeds: held-out prompts, tokenizer, draft, target.

The draft takes minutes, the target an hour of one core. An interrupted build resumes and ends in the same bits.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

from core.errors import INTERRUPTED
from core.family import DRAFT_DIR, PROMPTS_FILE, TARGET_DIR
from tests.family.corpora import TASKS, Item, general_texts, items
from tests.family.lessons import draft_pool, lessons_of, target_pool
from tests.family.model_files import write_model
from tests.family.tokenizer import train_tokenizer
from tests.family.training import DRAFT, TARGET, ModelRecipe, Stopped, train

_TOKENIZER_ITEMS = 1_500
_TOKENIZER_SEED = 5
_PUBLISH_EVERY = 500
_PROMPTS_PER_TASK = 64
_PROMPTS_SEED = 20


@dataclass(frozen=True, slots=True)
class FamilyPlan:
    """Both recipes, and the number of items they draw from (enough that few are seen twice)."""

    target: ModelRecipe = TARGET
    draft: ModelRecipe = DRAFT
    items_per_task: int = 18_000
    general_items: int = 40_000


class _Interrupt:
    """Turns the first Ctrl-C into a request to stop after the current step."""

    def __init__(self) -> None:
        self.wanted = False
        signal.signal(signal.SIGINT, self._note)

    def _note(self, *_: object) -> None:
        self.wanted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Builder:
    """Trains the models of a plan into `models`; `work` holds the checkpoints of an unfinished build."""

    def __init__(
        self, plan: FamilyPlan, models: Path, work: Path, progress: Progress, interrupt: _Interrupt | None
    ) -> None:
        self._plan, self._models, self._work = plan, models, work
        self._progress, self._interrupt = progress, interrupt
        self._tokenizer = build_tokenizer(min(plan.items_per_task, _TOKENIZER_ITEMS))

    def run(self) -> None:
        """Build the draft, which takes minutes, then the target."""
        self._work.mkdir(parents=True, exist_ok=True)
        self._models.mkdir(parents=True, exist_ok=True)
        (self._models / PROMPTS_FILE.name).write_text(held_out_lines())
        plan = self._plan
        self._make(plan.draft, draft_pool(plan.general_items, plan.draft.seed), self._models / DRAFT_DIR.name)
        self._make(plan.target, target_pool(plan.items_per_task, plan.target.seed), self._models / TARGET_DIR.name)

    def _make(self, recipe: ModelRecipe, pool: Sequence[Item], destination: Path) -> None:
        line = self._progress.add_task(recipe.name, total=recipe.steps, loss="")
        smooth: float | None = None

        def on_step(done: int, loss: float, model: LlamaForCausalLM) -> bool:
            nonlocal smooth
            smooth = loss if smooth is None else 0.98 * smooth + 0.02 * loss
            self._progress.update(line, completed=done, loss=f"loss {smooth:.3f}")
            if done % _PUBLISH_EVERY == 0:
                write_model(model, self._tokenizer, destination)
            return self._interrupt is not None and self._interrupt.wanted

        lessons = lessons_of(pool, self._tokenizer, recipe.seed)
        write_model(train(recipe, lessons, self._work, on_step), self._tokenizer, destination)


def held_out_lines() -> str:
    """The shipped held-out prompts as JSONL, the tasks in turn."""
    by_task = [items(task, _PROMPTS_PER_TASK, _PROMPTS_SEED, split="held_out") for task in TASKS]
    drawn = (item for row in zip(*by_task, strict=True) for item in row)
    return "".join(json.dumps({"prompt": item.prompt, "task": item.task}, ensure_ascii=False) + "\n" for item in drawn)


def build_tokenizer(items_per_task: int) -> PreTrainedTokenizerFast:
    """The family's tokenizer, trained on tasks and general text."""
    pool = target_pool(items_per_task, _TOKENIZER_SEED) + general_texts(items_per_task, _TOKENIZER_SEED)
    return train_tokenizer(text for item in pool for text in (item.prompt, item.answer))


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.family.build", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--models",
        type=Path,
        default=TARGET_DIR.parent,
        help="where prompts.jsonl, target/ and draft/ go (default: the shipped ones)",
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path(".cache/family-build"),
        help="checkpoints of an unfinished build (default: %(default)s)",
    )
    parser.add_argument("--fresh", action="store_true", help="delete an unfinished build and start afresh")
    parser.add_argument("--steps", type=int, metavar="N", help="only N steps for each model, to try the command")
    return parser.parse_args(argv)


def _plan(steps: int | None) -> FamilyPlan:
    if steps is None:
        return FamilyPlan()
    few = 20 * steps
    return FamilyPlan(
        replace(TARGET, steps=steps, tail=0), replace(DRAFT, steps=steps), items_per_task=few, general_items=few
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the build; returns 130 after Ctrl-C, with a checkpoint saved."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    arguments, console = _arguments(argv), Console(stderr=True)
    if arguments.fresh:
        shutil.rmtree(arguments.work, ignore_errors=True)
    columns = (TextColumn("{task.description:7}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[loss]}"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as progress:
        try:
            Builder(_plan(arguments.steps), arguments.models, arguments.work, progress, _Interrupt()).run()
        except Stopped:
            console.print("Stopped. A checkpoint is saved; the same command resumes from it.")
            return INTERRUPTED
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
