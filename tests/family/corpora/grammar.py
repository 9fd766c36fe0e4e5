"""The parts of a corpus: items, the makers that generate them, and ways to phrase a question.

A maker takes a random generator and returns one (prompt, answer) pair; a corpus names its makers, short answers apart from long ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

Maker = Callable[[Random], tuple[str, str]]

_OPENINGS = ("",) * 8 + ("Please help. ", "Hello! ", "Quick question: ", "I need this for homework. ")
_CLOSINGS = ("",) * 8 + (" Thanks.", " Thank you!", " Please.", " Explain briefly.")


@dataclass(frozen=True, slots=True)
class Item:
    """One prompt with the answer a perfect target would give."""

    task: str
    subtype: str
    prompt: str
    answer: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """The makers of one task by sub-type; answers of `long` ones have 150 to 400 tokens."""

    task: str
    short: dict[str, Maker]
    long: dict[str, Maker]

    def draw(self, rng: Random, long_share: float = 0.2) -> Item:
        """One random item, a long one with probability `long_share`."""
        makers = self.long if rng.random() < long_share else self.short
        subtype = rng.choice(list(makers))
        prompt, answer = makers[subtype](rng)
        return Item(self.task, subtype, prompt, answer)


def ask(rng: Random, templates: Sequence[str], **fields: object) -> str:
    """A filled-in template, sometimes with a greeting or thanks, as in real prompts."""
    return (rng.choice(_OPENINGS) + rng.choice(templates).format(**fields) + rng.choice(_CLOSINGS)).rstrip()


def numbered(lines: Sequence[str]) -> str:
    """`1. first`, `2. second`, one per line."""
    return "\n".join(f"{i}. {line}" for i, line in enumerate(lines, 1))
