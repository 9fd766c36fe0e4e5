"""Readable names of tasks, such as `protons-moles`, from the words that distinguish their prompts."""

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


def task_names(prompts: Sequence[str], labels: Sequence[int], count: int) -> tuple[str, ...]:
    """Distinct names of the labels 0 .. count - 1, from the most distinctive words of each; no word is used twice."""
    by_label = [Counter[str]() for _ in range(count)]
    for prompt, label in zip(prompts, labels, strict=True):
        by_label[label].update(set(telling_words(prompt)))
    sizes, everywhere = Counter(labels), sum(by_label, Counter[str]())
    names: list[str] = []
    used: set[str] = set()
    for label, words in enumerate(by_label):
        score = {word: _weight(number, everywhere[word], sizes[label], len(labels)) for word, number in words.items()}
        best = sorted((word for word in score if word not in used), key=lambda word: (-score[word], word))
        chosen = best[:_WORDS_IN_A_NAME]
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
