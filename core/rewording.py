"""Prompts said another way, by rules: what people vary around and inside one and the same request.

In: any prompt and a seed. Out: the prompt reworded, the same for the same seed. Politeness and the way of asking follow
the script (English for Latin letters, Chinese for Han); numbers stay, and what has no rule keeps its words.
"""

from __future__ import annotations

import re
from random import Random

from core.rewording_rules import Change, Rules, Slip, Talk

_HAN = re.compile(r"[\u4e00-\u9fff]")
_LATIN = re.compile(r"[A-Za-z]")
_OTHER_LETTER = re.compile(r"[^\W\d_A-Za-z\u4e00-\u9fff]")
_WORD = re.compile(r"\b[a-z]{5,}\b")
_TRIES = 8


def reword(text: str, seed: int, rules: Rules) -> str:
    """The prompt as someone else might have sent it; another one than `text` unless no rule touches it."""
    rng = Random(f"{seed}/{text}")
    for _ in range(_TRIES):
        found = _reworded(text.strip(), rng, rules)
        if found != text:
            return found
    return text


def _reworded(text: str, rng: Random, rules: Rules) -> str:
    talk = _talk_of(text, rules)
    if talk is not None:
        text = _said_again(text, rng, talk)
    for twist in rules.twists:
        if rng.random() < 0.3:
            text = twist(text)
    if rng.random() < 0.3:
        text = _mistyped(text, rng, rules.slip)
    return text.strip()


def _talk_of(text: str, rules: Rules) -> Talk | None:
    """The rules for the script most of the letters are in."""
    han, latin, other = (len(script.findall(text)) for script in (_HAN, _LATIN, _OTHER_LETTER))
    if other > han + latin / 4:
        return None
    return rules.chinese if 4 * han > latin else rules.english


def _said_again(text: str, rng: Random, talk: Talk) -> str:
    for pattern, said in talk.words:
        if rng.random() < 0.5:
            text = pattern.sub(rng.choice(said), text, count=1)
    if rng.random() < 0.7:
        text = _changed_once(text, rng, talk.askings)
    opening = rng.choice(talk.openings) if rng.random() < 0.5 else ""
    closing = rng.choice(talk.closings) if rng.random() < 0.4 else ""
    return opening + text + closing


def _changed_once(text: str, rng: Random, changes: tuple[Change, ...]) -> str:
    """The first way of asking that is there, changed."""
    for pattern, said in changes:
        if pattern.search(text):
            return pattern.sub(rng.choice(said), text, count=1)
    return text


def _mistyped(text: str, rng: Random, slip: Slip) -> str:
    """A slip of the finger in one longer word or two."""
    words = list(_WORD.finditer(text))
    for match in sorted(rng.sample(words, min(len(words), rng.randint(1, 2))), key=lambda word: -word.start()):
        word = match.group()
        text = text[: match.start()] + slip(word, rng.randrange(1, len(word) - 2)) + text[match.end() :]
    return text
