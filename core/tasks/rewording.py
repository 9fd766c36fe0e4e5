"""Prompts in other words, by rules: polite phrases, the form of the question, synonyms, layout, typing errors.

Phrases follow the script: English for Latin letters, Chinese for Han. Numbers stay. Equal seeds give equal results.
"""

from __future__ import annotations

import re
from random import Random

from core.tasks.rewording_rules import LanguageRules, Rules, Substitution, Typo

_HAN = re.compile(r"[\u4e00-\u9fff]")
_LATIN = re.compile(r"[A-Za-z]")
_OTHER_LETTER = re.compile(r"[^\W\d_A-Za-z\u4e00-\u9fff]")
_WORD = re.compile(r"\b[a-z]{5,}\b")
_TRIES = 8


def reword(text: str, seed: int, rules: Rules) -> str:
    """The prompt in other words; different from `text` unless no rule applies."""
    rng = Random(f"{seed}/{text}")
    for _ in range(_TRIES):
        reworded = _reworded(text.strip(), rng, rules)
        if reworded != text:
            return reworded
    return text


def _reworded(text: str, rng: Random, rules: Rules) -> str:
    language = _language_of(text, rules)
    if language is not None:
        text = _rephrased(text, rng, language)
    for change in rules.layouts:
        if rng.random() < 0.3:
            text = change(text)
    if rng.random() < 0.3:
        text = _mistyped(text, rng, rules.typo)
    return text.strip()


def _language_of(text: str, rules: Rules) -> LanguageRules | None:
    """Rules for the script of most letters; None for other scripts."""
    han, latin, other = (len(script.findall(text)) for script in (_HAN, _LATIN, _OTHER_LETTER))
    if other > han + latin / 4:
        return None
    return rules.chinese if 4 * han > latin else rules.english


def _rephrased(text: str, rng: Random, language: LanguageRules) -> str:
    for pattern, phrases in language.synonyms:
        if rng.random() < 0.5:
            text = pattern.sub(rng.choice(phrases), text, count=1)
    if rng.random() < 0.7:
        text = _substituted_once(text, rng, language.question_forms)
    opening = rng.choice(language.openings) if rng.random() < 0.5 else ""
    closing = rng.choice(language.closings) if rng.random() < 0.4 else ""
    return opening + text + closing


def _substituted_once(text: str, rng: Random, substitutions: tuple[Substitution, ...]) -> str:
    """Apply the first substitution whose pattern occurs."""
    for pattern, phrases in substitutions:
        if pattern.search(text):
            return pattern.sub(rng.choice(phrases), text, count=1)
    return text


def _mistyped(text: str, rng: Random, typo: Typo) -> str:
    """A typing error in one or two of the longer words."""
    words = list(_WORD.finditer(text))
    for match in sorted(rng.sample(words, min(len(words), rng.randint(1, 2))), key=lambda word: -word.start()):
        word = match.group()
        text = text[: match.start()] + typo(word, rng.randrange(1, len(word) - 2)) + text[match.end() :]
    return text
