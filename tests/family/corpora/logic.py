"""Logic puzzles; every answer is computed by solving the puzzle."""

from __future__ import annotations

from itertools import pairwise, product
from random import Random

from tests.family.corpora.grammar import Corpus, ask, numbered
from tests.family.corpora.words import ANIMALS, COLOURS, DAYS, NAMES, THINGS, plural

_RELATIONS = (("taller", "tallest", "shortest"), ("older", "oldest", "youngest"), ("faster", "fastest", "slowest"), ("heavier", "heaviest", "lightest"), ("richer", "richest", "poorest"))
_COMPASS = ("north", "east", "south", "west")
_MOVES = {"north": (0, 1), "east": (1, 0), "south": (0, -1), "west": (-1, 0)}


def _word(value: bool) -> str:
    return "true" if value else "false"


def _ordering(rng: Random) -> tuple[str, str]:
    order, (more, most, least) = rng.sample(NAMES, rng.randint(3, 5)), rng.choice(_RELATIONS)
    facts = [f"{a} is {more} than {b}." for a, b in pairwise(order)]
    shuffled = rng.sample(facts, len(facts))
    end = rng.choice((most, least))
    prompt = ask(rng, ("{f} Who is the {e}?", "{f} Which of them is the {e}?", "Given: {f} Find the {e} person."), f=" ".join(shuffled), e=end)
    return prompt, f"From {most} to {least}: {' > '.join(order)}.\nThe {end} is {order[0] if end == most else order[-1]}."


def _syllogism(rng: Random) -> tuple[str, str]:
    a, b = rng.sample(ANIMALS, 2)
    colour, name, valid = rng.choice(COLOURS), rng.choice(NAMES), rng.random() < 0.5
    fact, claim = (f"{name} is a {a}.", f"{name} is {colour}") if valid else (f"{name} is {colour}.", f"{name} is a {a}")
    prompt = ask(rng, ("All {x} are {c}. No {b} is {c}. {f} Does it follow that {q}?", "Every {a} is {c} and no {b} is {c}. {f} Is it certain that {q}?"), a=a, x=plural(a), b=b, c=colour, f=fact, q=claim)
    if valid:
        return prompt, f"All {plural(a)} are {colour}, and {name} is a {a}.\nSo {name} must be {colour}.\nAnswer: yes"
    return prompt, f"All {plural(a)} are {colour}, but other things can be {colour} too.\n{name} need not be a {a}.\nAnswer: no"


def _conditional(rng: Random) -> tuple[str, str]:
    thing, colour, name, day = rng.choice(THINGS), rng.choice(COLOURS), rng.choice(NAMES), rng.choice(DAYS)
    p, q = f"the {thing} is {colour}", f"{name} comes on {day}"
    no_p, no_q = f"the {thing} is not {colour}", f"{name} does not come on {day}"
    fact, rule, result = rng.choice(((p, "modus ponens", q), (no_q, "modus tollens", no_p), (q, "affirming the consequent is not valid", ""), (no_p, "denying the antecedent is not valid", "")))
    prompt = ask(rng, ("If {p}, then {q}. We know that {f}. What follows?", "Rule: if {p}, then {q}. Fact: {f}. What can we conclude?"), p=p, q=q, f=fact)
    return prompt, f"Rule: {p} -> {q}.\nFact: {fact}.\nReason: {rule}.\nConclusion: {result or 'nothing follows'}."


def _expression(rng: Random, names: str) -> tuple[str, str, str]:
    """(text, left part, right part); parts are over the first two and the last variable."""
    left = f"{names[0]} {rng.choice(('and', 'or'))} {names[1]}"
    right = rng.choice(("", "not ")) + names[-1]
    return f"({left}) {rng.choice(('and', 'or'))} {right}", left, right


def _evaluate(rng: Random) -> tuple[str, str]:
    names = rng.choice(("PQR", "ABC", "XYZ"))
    text, left, right = _expression(rng, names)
    values = {name: rng.random() < 0.5 for name in names}
    given = ", ".join(f"{name} is {_word(value)}" for name, value in values.items())
    prompt = ask(rng, ("{g}. What is {t}?", "Evaluate {t} when {g}.", "Is {t} true or false if {g}?"), g=given, t=text)
    a, b, whole = (bool(eval(part, {}, dict(values))) for part in (left, right, text))
    return prompt, f"{left} is {_word(a)}.\n{right} is {_word(b)}.\n{text} is {_word(whole)}.\nAnswer: {_word(whole)}"


def _knights(rng: Random) -> tuple[str, str]:
    a, b = rng.sample(NAMES, 2)
    a_knight, b_knight = rng.random() < 0.5, rng.random() < 0.5
    same = a_knight == b_knight
    word = {True: "a knight", False: "a knave"}
    says_b = f"{b} is {word[b_knight == a_knight]}"
    claim_b = "we are the same" if same == b_knight else "we are different"
    prompt = ask(rng, ("Knights tell the truth and knaves lie. {a} says: {x}. {b} says: {y}. {a} is {k}. What is {b}?", "{a} is {k}. Knights never lie, knaves always lie. {a} says: {x}. {b} says: {y}. Who is {b}?"), a=a, b=b, x=says_b, y=claim_b, k=word[a_knight])
    truth = "true" if a_knight else "false"
    return prompt, f'{a} is {word[a_knight]}, so "{says_b}" is {truth}.\nThen {b} is {word[b_knight]}.\n"{claim_b}" is {_word(b_knight)}, as {word[b_knight]} would say.\nAnswer: {b} is {word[b_knight]}'


def _turning(rng: Random) -> tuple[str, str]:
    name, start, turns = rng.choice(NAMES), rng.randrange(4), [rng.choice(("left", "right", "around")) for _ in range(rng.randint(3, 5))]
    prompt = ask(rng, ("{n} faces {s} and turns {t}. Which way does {n} face now?", "Facing {s}, {n} turns {t}. What is the final direction of {n}?"), n=name, s=_COMPASS[start], t=", then ".join(turns))
    lines = [f"Start: {_COMPASS[start]}"]
    for turn in turns:
        start = (start + {"left": 3, "right": 1, "around": 2}[turn]) % 4
        lines.append(f"Turn {turn}: {_COMPASS[start]}")
    return prompt, "\n".join([*lines, f"Answer: {_COMPASS[start]}"])


def _letters(rng: Random) -> tuple[str, str]:
    step, start, back = rng.randint(1, 4), rng.randint(0, 5), rng.random() < 0.3
    letters = [chr(65 + start + step * i) for i in range(6)]
    letters = letters[::-1] if back else letters
    prompt = ask(rng, ("What letter comes next: {s}?", "Complete the pattern {s}, ...", "{s}, and then?"), s=", ".join(letters[:-1]))
    places = ", ".join(str(ord(letter) - 64) for letter in letters[:-1])
    return prompt, f"Places in the alphabet: {places}.\nThe step is {'-' if back else '+'}{step}.\n{ord(letters[-2]) - 64} {'-' if back else '+'} {step} = {ord(letters[-1]) - 64}\nAnswer: {letters[-1]}"


def _sets(rng: Random) -> tuple[str, str]:
    both, a, b, none = (rng.randint(1, 30) for _ in range(4))
    x, y = rng.sample(THINGS, 2)
    total = a + b + both + none
    prompt = ask(rng, ("Of {t} people, {a} have a {x}, {b} have a {y} and {c} have both. How many have neither?", "{t} people: {a} own a {x}, {b} own a {y}, {c} own both. How many own neither?"), t=total, a=a + both, b=b + both, c=both, x=x, y=y)
    return prompt, f"Only a {x}: {a + both} - {both} = {a}\nOnly a {y}: {b + both} - {both} = {b}\nAt least one: {a} + {b} + {both} = {a + b + both}\nNeither: {total} - {a + b + both} = {none}\nAnswer: {none}"


def _calendar(rng: Random) -> tuple[str, str]:
    today, n = rng.randrange(7), rng.randint(3, 99)
    prompt = ask(rng, ("Today is {d}. What day is it in {n} days?", "If today is {d}, which weekday comes {n} days later?", "{n} days after {d} is which day?"), d=DAYS[today], n=n)
    rest = n % 7
    walk = " -> ".join(DAYS[(today + i) % 7] for i in range(rest + 1))
    return prompt, f"{n} = {n // 7} x 7 + {rest}, so count {rest} days.\n{walk}\nAnswer: {DAYS[(today + rest) % 7]}"


def _truth_table(rng: Random) -> tuple[str, str]:
    names = "".join(rng.sample("ABCDEFGHPQRSTXYZ", 3))
    text, left, right = _expression(rng, names)
    prompt = ask(rng, ("Write the truth table of {t}.", "Make a full truth table for {t}.", "Show all eight rows for {t}."), t=text)
    rows = [f"| {' | '.join(names)} | {left} | {right} | result |"]
    for values in product((True, False), repeat=3):
        scope = dict(zip(names, values, strict=True))
        cells = [*values, *(bool(eval(part, {}, dict(scope))) for part in (left, right, text))]
        rows.append("| " + " | ".join(_word(cell) for cell in cells) + " |")
    return prompt, "\n".join(["There are three letters, so there are 2 x 2 x 2 = 8 rows.", *rows, f"The result is true in {sum(row.endswith('true |') for row in rows)} of 8 rows."])


def _swaps(rng: Random) -> tuple[str, str]:
    people, count = rng.sample(NAMES, rng.randint(4, 5)), rng.randint(8, 10)
    items = rng.sample(THINGS, len(people))
    holds = dict(zip(people, items, strict=True))
    start = ", ".join(f"{name} has the {thing}" for name, thing in holds.items())
    swaps = [rng.sample(people, 2) for _ in range(count)]
    prompt = ask(rng, ("{s}. Then they swap in this order: {w}. Who has what at the end?", "Follow the swaps. {s}. Swaps: {w}. Say who holds what."), s=start, w=", ".join(f"{a} and {b}" for a, b in swaps))
    lines = []
    for a, b in swaps:
        holds[a], holds[b] = holds[b], holds[a]
        lines.append(f"{a} and {b} swap: {a} has the {holds[a]}, {b} has the {holds[b]}.")
    return prompt, f"{numbered(lines)}\nAnswer: " + ", ".join(f"{name} has the {thing}" for name, thing in holds.items())


def _robot(rng: Random) -> tuple[str, str]:
    x, y = rng.randint(20, 60), rng.randint(20, 60)
    moves = [(rng.randint(1, 6), rng.choice(_COMPASS)) for _ in range(rng.randint(8, 11))]
    listing = ", ".join(f"{n} {way}" for n, way in moves)
    prompt = ask(rng, ("A robot stands at ({x}, {y}) and moves {m}. Where does it end?", "Start at ({x}, {y}). Moves: {m}. Give the position after every move."), x=x, y=y, m=listing)
    lines = [f"Start: ({x}, {y})"]
    for n, way in moves:
        dx, dy = _MOVES[way]
        before, x, y = (x if dx else y), x + n * dx, y + n * dy
        lines.append(f"{n} {way}: {before} {'+' if dx + dy > 0 else '-'} {n} = {x if dx else y}, now ({x}, {y})")
    return prompt, "\n".join([*lines, f"Answer: ({x}, {y})"])


def _seating(rng: Random) -> tuple[str, str]:
    row = rng.sample(NAMES, 7)
    clues = [f"{a} sits directly left of {b}." for a, b in pairwise(row)]
    prompt = ask(rng, ("Seven people sit in a row. {c} Name the seats.", "Who sits where? There are seven seats. {c}"), c=" ".join(rng.sample(clues, len(clues))))
    lines = [f"Nobody sits left of {row[0]}, so {row[0]} has seat 1."]
    lines += [f"{a} sits directly left of {b}, so {b} has seat {i}." for i, (a, b) in enumerate(pairwise(row), 2)]
    return prompt, "\n".join([*lines, "Now read the row from left to right.", numbered(row), f"Check: {clues[0]} Seats 1 and 2 agree."])


CORPUS = Corpus(
    "logic",
    {"ordering": _ordering, "syllogism": _syllogism, "conditional": _conditional, "evaluate": _evaluate, "knights": _knights, "turning": _turning,
     "letters": _letters, "sets": _sets, "calendar": _calendar},
    {"truth_table": _truth_table, "swaps": _swaps, "robot": _robot, "seating": _seating},
)
