"""Two sets of rewording rules without a common phrase: `AUGMENTING` for training, `VALIDATING` for testing."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])|(?<=[。！？])(?=\S)")
_START = r"(?:^|(?<=[.!?:] ))"
_NO_VERB = "what|how|who|which|where|when|why|if|an?|the|all|some|no|not|i|you|we|he|she|it|hi|hello|hey|is|are|do|does"
_IMPERATIVE = rf"^(?:please )?((?!(?:{_NO_VERB})\b)[a-z]+)\b(?![:,!.])"

Phrases = tuple[str, ...]
Substitution = tuple[re.Pattern[str], Phrases]  # a pattern, and templates of its replacement
Layout = Callable[[str], str]
Typo = Callable[[str, int], str]  # of a word, a position in it


def _substitutions(*rules: tuple[str, Phrases]) -> tuple[Substitution, ...]:
    return tuple((re.compile(pattern, re.DOTALL | re.IGNORECASE), phrases) for pattern, phrases in rules)


@dataclass(frozen=True, slots=True)
class LanguageRules:
    """Phrases of one language: before and after a request, and substitutions for question forms and for words."""

    openings: Phrases
    closings: Phrases
    question_forms: tuple[Substitution, ...]
    synonyms: tuple[Substitution, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """A set of rules: two languages, changes of layout for any text, and a kind of typing error."""

    english: LanguageRules
    chinese: LanguageRules
    layouts: tuple[Layout, ...]
    typo: Typo


def _swap(word: str, at: int) -> str:
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]


def _lose(word: str, at: int) -> str:
    return word[:at] + word[at + 1 :]


def _no_end(text: str) -> str:
    return text.rstrip(".?!。？！ ")


def _doubled_end(text: str) -> str:
    return re.sub(r"([.?!。？！])\s*$", r"\1\1", text)


def _on_lines(text: str) -> str:
    return "\n".join(_SENTENCE_END.split(text))


def _last_first(text: str) -> str:
    *before, last = _SENTENCE_END.split(text)
    return " ".join([last, *before])


def _small_start(text: str) -> str:
    return text[:1].lower() + text[1:]


def _wide(text: str) -> str:
    return re.sub(r"([,;:，；：]) ?", r"\1  ", text)


AUGMENTING = Rules(
    english=LanguageRules(
        openings=(
            "Hi, ",
            "Hello there. ",
            "Please ",
            "Can you help me? ",
            "Quick one: ",
            "Sorry to bother you, ",
            "My teacher asks: ",
            "Next task. ",
            "Good morning! ",
            "I have a question. ",
        ),
        closings=(
            " Thanks!",
            " Please.",
            " Thanks in advance.",
            " I am stuck.",
            " Keep it short.",
            " Show your steps.",
            " It is for school.",
        ),
        question_forms=_substitutions(
            (r"\bwhat (?:is|are) ", ("Tell me ", "Give me ", "Determine ", "I need ", "What would be ")),
            (r"\bhow (many|much) ", (r"Tell me how \1 ", r"Count how \1 ", r"Work out how \1 ")),
            (_START + r"(who|which|where|when|why|how) ", (r"Tell me \1 ", r"Can you say \1 ")),
            (_IMPERATIVE, (r"Can you \1", r"Could you please \1", r"I need you to \1", r"Help me \1")),
        ),
        synonyms=_substitutions(
            (r"\b(?:calculate|compute|work out)\b", ("figure out", "get", "solve for")),
            (r"\b(?:write|give|make)\b", ("create", "show me", "produce")),
            (r"\b(?:explain|describe)\b", ("tell me about", "clarify")),
            (r"\bcorrect\b", ("fix", "put right")),
            (r"\b(?:find|determine)\b", ("look for", "work out")),
            (r"\b(?:what is|what's)\b", ("whats", "what is")),
            (r"\b(do|does|is|are|can|would|could) not\b", (r"\1n't",)),
            (r"\bso that it\b", ("which", "that")),
        ),
    ),
    chinese=LanguageRules(
        openings=("你好，", "请问，", "麻烦你，", "老师好，", "请帮我看看：", "我想知道，", "打扰一下，"),
        closings=("谢谢！", "谢谢你。", "请说明一下。", "急用。", "多谢"),
        question_forms=_substitutions(
            (r"请(?:问|你)?", ("", "帮我", "请帮忙")),
            (r"是什么", ("是啥", "是哪个")),
            (r"什么", ("啥",)),
            (r"多少", ("几多", "多少个")),
        ),
        synonyms=_substitutions(
            (r"写", ("写出", "给我写")),
            (r"吗？", ("？", "么？")),
            (r"怎么", ("怎样",)),
            (r"一共", ("总共",)),
        ),
    ),
    layouts=(str.lower, _no_end, _on_lines),
    typo=_swap,
)

VALIDATING = Rules(
    english=LanguageRules(
        openings=(
            "Hey! ",
            "Good evening, ",
            "Kindly ",
            "I was wondering: ",
            "Hi assistant, one thing. ",
            "Excuse me. ",
            "For my exam tomorrow: ",
            "ok so ",
            "Would you mind: ",
        ),
        closings=(
            " Cheers.",
            " Thx",
            " Many thanks in advance!",
            " I can't get it.",
            " Be brief.",
            " Appreciate it.",
            " Any idea?",
        ),
        question_forms=_substitutions(
            (r"\bwhat (?:is|are) ", ("Compute ", "Find ", "What's ", "Do you know ", "I'm looking for ")),
            (r"\bhow (many|much) ", (r"I wonder how \1 ", r"Any idea how \1 ", r"Say how \1 ")),
            (_START + r"(who|which|where|when|why|how) ", (r"Do you know \1 ", r"Let me know \1 ")),
            (_IMPERATIVE, (r"I want you to \1", r"Would you \1", r"Go ahead and \1", r"Let's \1")),
        ),
        synonyms=_substitutions(
            (r"\b(?:calculate|compute|work out)\b", ("evaluate", "find the value of")),
            (r"\b(?:write|give|make)\b", ("come up with", "provide", "put together")),
            (r"\b(?:explain|describe)\b", ("walk me through", "say more on")),
            (r"\bcorrect\b", ("repair", "improve")),
            (r"\b(?:find|determine)\b", ("identify", "obtain")),
            (r"\bplease\b", ("pls", "plz")),
            (r"\b(?:you)\b", ("u",)),
            (r"\band\b", ("&",)),
            (r"\bI am\b", ("I'm",)),
        ),
    ),
    chinese=LanguageRules(
        openings=("您好！", "不好意思，", "劳驾，", "同学问我：", "想请教一下，", "嗨，"),
        closings=("感谢。", "拜托了！", "辛苦了。", "在线等。", "非常感谢"),
        question_forms=_substitutions(
            (r"请(?:问|你)?", ("请您", "能不能", "可以")),
            (r"是什么", ("指的是什么", "叫什么")),
            (r"什么", ("甚么", "哪种")),
            (r"多少", ("是多少",)),
        ),
        synonyms=_substitutions(
            (r"写", ("编", "想")),
            (r"吗？", ("吗", "吧？")),
            (r"怎么", ("如何",)),
            (r"一共", ("合计", "加起来")),
        ),
    ),
    layouts=(_small_start, _doubled_end, _last_first, _wide),
    typo=_lose,
)
