"""General text: the words of the tasks without their questions, layouts or solutions.

Prose, dialogues, notes, lists, news, code fragments and mixed-language lines; the general draft learns from nothing else.
"""

from __future__ import annotations

from random import Random

from tests.family.corpora import chemistry, chinese
from tests.family.corpora.grammar import Corpus
from tests.family.corpora.words import (
    ADJECTIVES,
    ANIMALS,
    COLOURS,
    DAYS,
    FOODS,
    JOBS,
    NAMES,
    PLACES,
    THINGS,
    VERBS,
    WEATHER,
    plural,
    with_article,
)

_REQUESTS = ("Go on.", "Say something.", "Tell me more.", "What else?", "Continue, please.", "Some text about {x}?", "Anything on {x}?", "Let us talk about {x}.", "{x}", "More about {x}, please.", "I was thinking of {x}.", "Notes on {x}")
_LINKS = ("and", "but", "because", "so", "while", "when", "although", "if")
_IDENTIFIERS = ("numbers", "values", "items", "scores", "prices", "name", "price", "size", "count", "total", "result", "x", "i", "other", "first", "second", "level", "owner")


def _clause(rng: Random) -> str:
    _, past, participle, ing = rng.choice(VERBS)
    adjective, more, most, *_ = rng.choice(ADJECTIVES)
    who, thing, place = rng.choice((rng.choice(NAMES), f"the {rng.choice(JOBS)}", with_article(rng.choice(ANIMALS)))), rng.choice(THINGS + FOODS), rng.choice(PLACES)
    return rng.choice((
        f"{who} {past} the {adjective} {thing} behind {place}", f"the {thing} in {place} is {more} now", f"{who} was {ing} {with_article(rng.choice(COLOURS))} {thing}",
        f"nobody has {participle} the {most} {thing} yet", f"there were {rng.randint(2, 400)} {plural(thing)} at {place}", f"it stayed {rng.choice(WEATHER)} until {rng.choice(DAYS)}",
        f"{who} likes {plural(thing)} more than {plural(rng.choice(FOODS))}", f"{place} has {with_article(adjective)} {thing}", f"{who} can see {place} from here",
    ))


def _sentence(rng: Random) -> str:
    text = _clause(rng)
    if rng.random() < 0.5:
        text += f"{rng.choice((',', ''))} {rng.choice(_LINKS)} {_clause(rng)}"
    return text[0].upper() + text[1:] + rng.choice((".", ".", ".", "!", "?"))


def _request(rng: Random, topic: str) -> str:
    return rng.choice(_REQUESTS).format(x=topic)


def _prose(rng: Random) -> tuple[str, str]:
    return _request(rng, rng.choice(THINGS + PLACES + ANIMALS)), " ".join(_sentence(rng) for _ in range(rng.randint(2, 5)))


def _page(rng: Random) -> tuple[str, str]:
    paragraphs = [" ".join(_sentence(rng) for _ in range(rng.randint(3, 5))) for _ in range(rng.randint(3, 4))]
    return _request(rng, rng.choice(THINGS + JOBS)), "\n\n".join(paragraphs)


def _dialogue(rng: Random) -> tuple[str, str]:
    a, b = rng.sample(NAMES, 2)
    return _request(rng, f"{a} and {b}"), "\n".join(f"{(a, b)[i % 2]}: {_sentence(rng)}" for i in range(rng.randint(2, 6)))


def _listing(rng: Random) -> tuple[str, str]:
    words = rng.sample(THINGS + FOODS + ANIMALS + COLOURS + JOBS, rng.randint(4, 9))
    mark = rng.choice(("- ", "* ", "", "+ "))
    return _request(rng, rng.choice(words)), "\n".join(f"{mark}{word}{rng.choice(('', '', f' ({rng.randint(1, 99)})', f', {rng.choice(COLOURS)}'))}" for word in words)


def _substances(rng: Random) -> tuple[str, str]:
    lines = []
    for _ in range(rng.randint(2, 5)):
        metal, anion, element = rng.choice(list(chemistry.METALS)), rng.choice(list(chemistry.ANIONS)), rng.choice(list(chemistry.PROTONS))
        lines.append(rng.choice((
            f"The {rng.choice(JOBS)} keeps {metal} {anion} in a {rng.choice(COLOURS)} bottle.", f"{element.capitalize()} was shipped with {metal} on {rng.choice(DAYS)}.",
            f"A bag of {chemistry.salt(metal, anion)} stood beside the {element}.", f"Mix {rng.randint(2, 90)} parts of {metal} with {rng.choice(list(chemistry.ACIDS))}.",
            f"Old books call it {anion} of {metal}; the label says {chemistry.salt(metal, anion)}, about {rng.randint(10, 400)} g.",
            f"Water, gas and {element} were measured in mL, mol and bar.",
        )))
    return _request(rng, rng.choice(list(chemistry.METALS))), " ".join(lines)


def _hanzi(rng: Random) -> tuple[str, str]:
    lines = []
    for _ in range(rng.randint(2, 5)):
        noun, other = rng.sample(list(chinese.NOUNS), 2)
        who, place, time, (a, b) = rng.choice(chinese.NAMES), rng.choice(chinese.PLACES), rng.choice(chinese.TIMES), rng.choice(chinese.OPPOSITES)
        lines.append(rng.choice((
            f"{who}喜欢{noun}，不喜欢{other}。", f"{place}的{noun}比{other}{a}得多。", f"{time}的天气是{rng.choice(chinese.WEATHER)}，心情{rng.choice(chinese.FEELINGS)}。",
            f"有的人说{a}，有的人说{b}，{who}什么也没说。", f"{time}我们在{place}等{who}，等了{rng.randint(2, 90)}分钟。", f"{who}的{noun}在{place}，那里一共有{chinese.numeral(rng.randint(11, 999))}{chinese.NOUNS[noun][0]}。",
            f"老人和孩子一起在{place}唱歌、喝茶。",
        )))
    return rng.choice(("请继续。", "说点什么吧。", f"聊聊{rng.choice(chinese.PLACES)}。", rng.choice(list(chinese.NOUNS)), "还有呢？")), "".join(lines)


def _snippet(rng: Random) -> tuple[str, str]:
    lines, depth = [], 0
    for _ in range(rng.randint(3, 9)):
        a, b, n = rng.choice(_IDENTIFIERS), rng.choice(_IDENTIFIERS), rng.randint(0, 60)
        line = rng.choice((f"{a} = {b}", f"{a} = {n}", f"{a} = [{n}, {rng.randint(0, 60)}]", f"print({a})", f"{a}.append({b})", f"return {a}", f"{a} = {b} {rng.choice('+-*')} {n}", f"if {a} {rng.choice(('>', '<', '==', '!='))} {n}:", f"for {a} in {b}:", f"def {a}_{b}({a}):", f"class {a.capitalize()}:", f"{a} = '{rng.choice(THINGS)}'", f"self.{a} = {b}", f"# {rng.choice(ADJECTIVES)[0]} {a}", f"assert {a} == {n}"))
        lines.append("    " * depth + line)
        depth = min(depth + 1, 2) if line.endswith(":") else rng.choice((depth, max(0, depth - 1)))
    return _request(rng, f"{rng.choice(_IDENTIFIERS)}.py"), "\n".join(lines)


def _figures(rng: Random) -> tuple[str, str]:
    lines = []
    for _ in range(rng.randint(2, 5)):
        n, m = rng.randint(0, 9999), rng.randint(0, 999)
        lines.append(rng.choice((f"Room {n}, floor {m % 30}.", f"Score {n % 100} : {m % 100}.", f"{m} km, {n} m, {m % 60} hours.", f"{n} dollars or {m} cents.", f"Call {n} {m}.", f"{m % 100}% of the {plural(rng.choice(THINGS))} were {rng.choice(COLOURS)}.", f"{rng.choice(NAMES)} + {rng.choice(NAMES)} = friends.", f"Set {{{m}, {n}}} has {m % 9} x {n % 9} cells.", f"({m % 20}, {n % 20}) {rng.choice(('north', 'south', 'east', 'west'))}, true or false.", f"{n} - {m} / {m % 12 + 1}")))
    return _request(rng, rng.choice(("numbers", "prices", "scores", "the station"))), rng.choice((" ", "\n")).join(lines)


CORPUS = Corpus(
    "general",
    {"prose": _prose, "dialogue": _dialogue, "listing": _listing, "substances": _substances, "hanzi": _hanzi, "snippet": _snippet, "figures": _figures},
    {"page": _page},
)
