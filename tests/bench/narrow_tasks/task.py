"""A narrow task: its frame, which all prompts share, and a grammar that makes what a user sends.

A template is text with symbols in braces. `{city}` is one of the lines of `city` in the words, which may have symbols
themselves; `{city2}` is another one. A symbol stands for the same text wherever it appears in one prompt. `{3..40}` is
a number, drawn anew each time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import NamedTuple

from core.text.prompt_files import read_prompts
from tests.bench.narrow_tasks.words import WORDS

SEED = 11
_SYMBOL = re.compile(r"\{(?:(\d+)\.\.(\d+)|([a-z_]+)(\d*))\}")
_PATIENCE = 100  # draws for each distinct prompt, before a task has too few
_LONGEST = 320  # characters of a text that is read


class NarrowTask(NamedTuple):
    """`system` and one example of a user's text and its answer are the frame. An answer has at most `max_tokens`.

    The users' texts are made of `templates`. `inputs` names a file of prompts instead, whose texts they are.
    """

    name: str
    system: str
    example: tuple[str, str]
    max_tokens: int
    templates: tuple[str, ...] = ()
    inputs: str | None = None

    def texts(self, count: int, prompts: Path | None) -> list[str]:
        """So many distinct texts of users, the same every time. `prompts` is where the files of `inputs` lie."""
        rng = Random(f"{SEED}/{self.name}")
        texts = self._made(rng) if self.inputs is None else self._read(rng, prompts)
        distinct = dict[str, None]()
        for text in islice(texts, _PATIENCE * count):
            distinct[text] = None
            if len(distinct) == count:
                return list(distinct)
        raise ValueError(f"{self.name} has {len(distinct)} prompts, not {count}")

    def messages(self, text: str) -> list[dict[str, str]]:
        """A prompt: the frame, then what the user sends."""
        question, answer = self.example
        turns = (("system", self.system), ("user", question), ("assistant", answer), ("user", text))
        return [{"role": role, "content": content} for role, content in turns]

    def _made(self, rng: Random) -> Iterator[str]:
        while True:
            yield filled(rng.choice(self.templates), rng, {})

    def _read(self, rng: Random, prompts: Path | None) -> list[str]:
        if prompts is None:
            raise ValueError(f"{self.name} reads {self.inputs}: say where it lies")
        conversations = (prompt.chat_fields["messages"] for prompt in read_prompts(prompts / f"{self.inputs}.jsonl"))
        texts = [text for turns in conversations if len(text := turns[-1]["content"]) <= _LONGEST]
        return rng.sample(texts, len(texts))


def filled(template: str, rng: Random, values: dict[str, str]) -> str:
    """The template with text for every symbol; what `values` has by symbol is used, and what is drawn is added."""

    def text(match: re.Match[str]) -> str:
        low, high, symbol, number = match.groups()
        if low is not None:
            return str(rng.randint(int(low), int(high)))
        if symbol + number not in values:
            used_lines = {value for name, value in values.items() if name.rstrip("0123456789") == symbol}
            free_lines = [line for line in WORDS[symbol] if line not in used_lines] or WORDS[symbol]
            values[symbol + number] = filled(rng.choice(free_lines), rng, values)
        return values[symbol + number]

    return _SYMBOL.sub(text, template)


def write_prompts(task: NarrowTask, file: Path, count: int, prompts: Path | None = None) -> None:
    """A JSONL file of so many prompts, as `core.text.prompt_files` reads them."""
    lines = ({"messages": task.messages(text), "task": task.name} for text in task.texts(count, prompts))
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
