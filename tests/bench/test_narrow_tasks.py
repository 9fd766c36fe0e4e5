"""The prompts of narrow tasks: enough of them, distinct, the same every time, and read by what reads prompt files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random

import pytest

from core.text.prompt_files import read_prompts
from tests.bench.narrow_tasks import TASKS, NarrowTask, write_prompts
from tests.bench.narrow_tasks.task import filled

MADE = [task for task in TASKS if task.inputs is None]


def test_there_are_24_and_each_has_one_source_of_texts() -> None:
    assert len({task.name for task in TASKS}) == len({task.system for task in TASKS}) == 24
    assert all(bool(task.templates) != bool(task.inputs) for task in TASKS)


@pytest.mark.parametrize("task", MADE, ids=lambda task: task.name)
def test_a_task_has_enough_distinct_prompts_without_a_symbol_left(task: NarrowTask) -> None:
    texts = task.texts(360, None)
    assert len(set(texts)) == 360
    assert texts[:50] == task.texts(50, None)
    assert not [text for text in texts if re.search(r"\{[a-z_]+\d*\}|\d\.\.\d", text)]


def test_all_prompts_of_a_task_share_its_frame(tmp_path: Path) -> None:
    task = MADE[0]
    write_prompts(task, tmp_path / "prompts.jsonl", 5)
    prompts = read_prompts(tmp_path / "prompts.jsonl")
    assert [prompt.chat_fields["messages"] for prompt in prompts] == list(map(task.messages, task.texts(5, None)))
    assert {prompt.task for prompt in prompts} == {task.name}
    *frame, _ = (turn["content"] for turn in task.messages("a text"))
    assert frame == [task.system, *task.example]


def test_a_symbol_stands_for_one_text_and_a_numbered_one_for_another() -> None:
    for seed in range(20):
        first, again, other = filled("{fruit} {fruit} {fruit2}", Random(seed), {}).split()
        assert first == again != other


def test_texts_that_people_sent_are_read_where_they_lie(tmp_path: Path) -> None:
    [task, *_] = [task for task in TASKS if task.inputs]
    texts = [f"question {number}" for number in range(4)] + ["long" * 200]
    lines = (json.dumps({"messages": [{"role": "user", "content": text}]}) for text in texts)
    (tmp_path / f"{task.inputs}.jsonl").write_text("\n".join(lines))
    assert sorted(task.texts(4, tmp_path)) == texts[:4]
    with pytest.raises(ValueError, match="4 prompts, not 5"):
        task.texts(5, tmp_path)
