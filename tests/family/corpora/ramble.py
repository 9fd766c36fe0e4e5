"""Rambling text: a Markov chain of words over all tasks together.

A step looks back one or two words, never more, so that hardly any line of a task survives. The text stands for what a small model learns
from text at large: words, spelling and local order, but no question and no way to answer it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from random import Random

# Words, single digits, signs and white space, each with the space before it, as the tokenizer cuts them.
_PIECE = re.compile(r" [-+*/=x<>] (?=\d)|\d| ?[^\W\d_]+| ?(?:[^\w\s]|_)+|\s+")
_START, _END = "", "\0"
_LOOK_BACK_TWO = 0.6
_LONGEST = 160


class WordChain:
    """A Markov chain of pieces of text, of order one and two."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._after_one: defaultdict[str, list[str]] = defaultdict(list)
        self._after_two: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for text in texts:
            pieces = [_START, _START, *_PIECE.findall(text), _END]
            for first, second, third in zip(pieces, pieces[1:], pieces[2:], strict=False):
                self._after_one[second].append(third)
                self._after_two[first, second].append(third)

    def ramble(self, rng: Random) -> str:
        """One text, at most a few hundred characters long."""
        pieces = [_START, _START]
        while pieces[-1] != _END and len(pieces) < _LONGEST:
            two = rng.random() < _LOOK_BACK_TWO and self._after_two.get((pieces[-2], pieces[-1]))
            pieces.append(rng.choice(two or self._after_one[pieces[-1]]))
        return "".join(pieces).removesuffix(_END)
