"""Narrow tasks as products have them: a fixed frame each, and prompts made by code from words of our own.

    python -m tests.bench.narrow_tasks DIRECTORY [--prompts DIRECTORY]

writes the prompts of every task as JSONL. Three tasks take their texts from sets of prompts that people sent
(`NarrowTask.inputs`); these are read where they lie. The order is that in which a study takes up tasks: the first four
and the first twelve are as unlike as all of them.
"""

from __future__ import annotations

from tests.bench.narrow_tasks import code, extraction, writing
from tests.bench.narrow_tasks.task import NarrowTask, write_prompts

TASKS: tuple[NarrowTask, ...] = (
    extraction.CONTACT,
    extraction.TRIAGE,
    extraction.SQL,
    writing.UI_TRANSLATION,
    code.COMMITS,
    writing.PRODUCT,
    writing.UNITS,
    extraction.ACTIONS,
    extraction.SENTIMENT,
    code.HTML,
    writing.FAQ,
    extraction.MATHS,
    code.UNIT_TESTS,
    extraction.DATES,
    code.DOCSTRINGS,
    writing.RECIPE,
    code.SHELL,
    writing.EMAIL_SUBJECT,
    extraction.LOGS,
    code.YAML,
    writing.POLITE,
    code.REGEX,
    writing.SENSORS,
    writing.CHINESE,
)

__all__ = ["TASKS", "NarrowTask", "write_prompts"]
