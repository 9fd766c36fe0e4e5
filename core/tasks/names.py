"""The words that distinguish the prompts of tasks, and readable names made of them, such as `protons-moles`."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache

from stopwordsiso import stopwords

_LETTERS = re.compile(r"[\u4e00-\u9fff]+|[^\W\d_\u4e00-\u9fff]{3,}")
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_WORDS_IN_A_NAME = 2


def task_words(prompts: Sequence[str], labels: Sequence[int], count: int) -> list[list[str]]:
    """All words of the prompts with each of the labels 0 .. count - 1, the most distinctive first."""
    by_label = [Counter[str]() for _ in range(count)]
    for prompt, label in zip(prompts, labels, strict=True):
        by_label[label].update(set(telling_words(prompt)))
    sizes, everywhere = Counter(labels), sum(by_label, Counter[str]())
    ranked = []
    for label, words in enumerate(by_label):
        weights = {word: _weight(number, everywhere[word], sizes[label], len(labels)) for word, number in words.items()}
        ranked.append([word for _, word in sorted((-weight, word) for word, weight in weights.items())])
    return ranked


def task_names(words: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Distinct names of tasks from the first of their `task_words`; no word is used twice."""
    names: list[str] = []
    used: set[str] = set()
    for label, best in enumerate(words):
        chosen = [word for word in best if word not in used][:_WORDS_IN_A_NAME]
        used.update(chosen)
        names.append("-".join(chosen) or f"task-{label}")
    return tuple(names)


def telling_words(text: str) -> list[str]:
    """Words of a prompt without stop words, signs and numbers; for Chinese, which has no spaces, character pairs."""
    words: list[str] = []
    for run in _LETTERS.findall(text.lower()):
        chinese = _CHINESE.match(run) is not None
        words += [run[i : i + 2] for i in range(len(run) - 1)] if chinese else [run]
    return [word for word in words if word not in _stop_words()]


def _weight(number: int, everywhere: int, size: int, total: int) -> float:
    """Share of the task's prompts with the word, times its log ratio to the share in all prompts.

    With a single task the share alone counts.
    """
    share = number / size
    return share * (math.log(share * total / everywhere) if size < total else 1.0)


@cache
def _stop_words() -> frozenset[str]:
    return frozenset(stopwords(["en", "zh"]))
