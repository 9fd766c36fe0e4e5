"""Arithmetic and word problems, worked digit by digit so that a few million weights can learn them."""

from __future__ import annotations

from math import gcd
from random import Random

from tests.family.corpora.grammar import Corpus, ask
from tests.family.corpora.words import FOODS, NAMES, THINGS, plural

_COLUMNS = ("Ones", "Tens", "Hundreds", "Thousands", "Ten thousands")


def _digits(number: int, width: int) -> list[int]:
    return [number // 10**i % 10 for i in range(width)]


def column_sum(a: int, b: int) -> str:
    """The school method for a + b, one line per column."""
    lines, carry = [], 0
    width = len(str(max(a, b)))
    for name, x, y in zip(_COLUMNS, _digits(a, width), _digits(b, width), strict=False):
        total = x + y + carry
        carried = f" + {carry}" if carry else ""
        carry = total // 10
        lines.append(f"{name}: {x} + {y}{carried} = {total}, write {total % 10}" + (f", carry {carry}." if carry else "."))
    return "\n".join([*lines, f"Answer: {a + b}"])


def _addition(rng: Random) -> tuple[str, str]:
    a, b = rng.randint(100, 9999), rng.randint(100, 9999)
    return ask(rng, ("What is {a} + {b}?", "Add {a} and {b}.", "Calculate {a} + {b}.", "Find the sum of {a} and {b}.", "{a} + {b} = ?"), a=a, b=b), column_sum(a, b)


def _subtraction(rng: Random) -> tuple[str, str]:
    b, a = sorted((rng.randint(100, 9999), rng.randint(100, 9999)))
    width, borrow, lines = len(str(a)), 0, []
    for name, x, y in zip(_COLUMNS, _digits(a, width), _digits(b, width), strict=False):
        top = x - borrow
        borrow = int(top < y)
        lines.append(f"{name}: {top + 10 * borrow} - {y} = {top + 10 * borrow - y}" + (", borrow 1." if borrow else "."))
    prompt = ask(rng, ("What is {a} - {b}?", "Subtract {b} from {a}.", "Calculate {a} - {b}.", "Take {b} away from {a}.", "{a} minus {b}?"), a=a, b=b)
    return prompt, "\n".join([*lines, f"Answer: {a - b}"])


def _times_digit(a: int, digit: int) -> str:
    """Lines for a x digit: one product per decimal place, then a running sum."""
    parts = [d * 10**i for i, d in reversed(list(enumerate(_digits(a, len(str(a)))))) if d]
    lines = [f"{part} x {digit} = {part * digit}" for part in parts]
    total = parts[0] * digit
    for part in parts[1:]:
        lines.append(f"{total} + {part * digit} = {total + part * digit}")
        total += part * digit
    return "\n".join(lines)


def _product(rng: Random) -> tuple[str, str]:
    a, b = rng.randint(12, 999), rng.randint(3, 9)
    prompt = ask(rng, ("What is {a} x {b}?", "Multiply {a} by {b}.", "Calculate {a} times {b}.", "Find the product of {a} and {b}."), a=a, b=b)
    return prompt, f"{_times_digit(a, b)}\nAnswer: {a * b}"


def _division(rng: Random) -> tuple[str, str]:
    b, a = rng.randint(3, 9), rng.randint(100, 999)
    rest, lines = 0, []
    for digit in str(a):
        now = rest * 10 + int(digit)
        lines.append(f"Bring down {digit}: {now} / {b} = {now // b}, remainder {now % b}.")
        rest = now % b
    prompt = ask(rng, ("Divide {a} by {b}.", "What is {a} / {b}? Give the remainder.", "Do the long division {a} : {b}.", "How many times does {b} go into {a}?"), a=a, b=b)
    return prompt, "\n".join([*lines, f"Answer: {a // b} remainder {rest}"])


def _fraction(rng: Random) -> tuple[str, str]:
    k, p, q = rng.randint(2, 12), rng.randint(1, 20), rng.randint(2, 25)
    a, b = k * p, k * q
    x, y, lines = max(a, b), min(a, b), []
    while y:
        lines.append(f"{x} = {x // y} x {y} + {x % y}")
        x, y = y, x % y
    g = gcd(a, b)
    prompt = ask(rng, ("Simplify the fraction {a}/{b}.", "Reduce {a}/{b} to lowest terms.", "Write {a}/{b} as simply as possible."), a=a, b=b)
    lines += [f"The greatest common divisor is {g}.", f"{a} / {g} = {a // g}", f"{b} / {g} = {b // g}", f"Answer: {a // g}/{b // g}"]
    return prompt, "\n".join(lines)


def _percent(rng: Random) -> tuple[str, str]:
    tens, five, base = rng.randint(1, 9), rng.random() < 0.5, 20 * rng.randint(1, 99)
    tenth, rate = base // 10, 10 * tens + 5 * five
    lines = [f"10% of {base} is {tenth}.", f"{10 * tens}% is {tens} x {tenth} = {tens * tenth}."]
    if five:
        lines += [f"5% is half of {tenth}, that is {tenth // 2}.", f"{tens * tenth} + {tenth // 2} = {base * rate // 100}"]
    prompt = ask(rng, ("What is {r}% of {n}?", "Find {r} percent of {n}.", "Calculate {r}% of {n}.", "How much is {r}% of {n}?"), r=rate, n=base)
    return prompt, "\n".join([*lines, f"Answer: {base * rate // 100}"])


def _shopping(rng: Random) -> tuple[str, str]:
    name, thing, n, price = rng.choice(NAMES), rng.choice(THINGS + FOODS), rng.randint(2, 9), rng.randint(2, 49)
    paid = (n * price // 50 + 1) * 50
    prompt = ask(
        rng,
        ("{name} buys {n} {things} for {price} dollars each and pays with {paid} dollars. How much change is there?",
         "A {thing} costs {price} dollars. {name} wants {n} of them and has {paid} dollars. How much is left?",
         "{name} has {paid} dollars and buys {n} {things} at {price} dollars each. What remains?"),
        name=name, thing=thing, things=plural(thing), n=n, price=price, paid=paid,
    )
    return prompt, f"Each {thing} costs {price} dollars and {name} buys {n}.\nCost: {n} x {price} = {n * price} dollars.\nChange: {paid} - {n * price} = {paid - n * price} dollars.\nAnswer: {paid - n * price} dollars"


def _journey(rng: Random) -> tuple[str, str]:
    speed, hours, who = 5 * rng.randint(2, 24), rng.randint(2, 12), rng.choice(("train", "car", "bus", "ship", "bicycle"))
    distance = speed * hours
    if rng.random() < 0.5:
        prompt = ask(rng, ("A {who} moves at {speed} km per hour for {hours} hours. How far does it go?", "How many km does a {who} cover in {hours} hours at {speed} km/h?"), who=who, speed=speed, hours=hours)
        return prompt, f"Distance is speed times time.\nThe {who} goes {speed} km in one hour.\n{speed} x {hours} = {distance}\nAnswer: {distance} km"
    prompt = ask(rng, ("A {who} covers {d} km at {speed} km per hour. How long does it take?", "How many hours does a {who} need for {d} km at {speed} km/h?"), who=who, speed=speed, d=distance)
    return prompt, f"Time is distance divided by speed.\nThe {who} goes {speed} km in one hour.\n{distance} / {speed} = {hours}\nAnswer: {hours} hours"


def _equation(rng: Random) -> tuple[str, str]:
    a, x, b = rng.randint(2, 12), rng.randint(1, 40), rng.randint(1, 99)
    c, var = a * x + b, rng.choice("xyzn")
    prompt = ask(rng, ("Solve {a}{v} + {b} = {c}.", "Find {v} if {a}{v} + {b} = {c}.", "What is {v} when {a}{v} + {b} = {c}?"), a=a, b=b, c=c, v=var)
    return prompt, f"Subtract {b} from both sides: {a}{var} = {c} - {b} = {a * x}.\nDivide both sides by {a}: {var} = {a * x} / {a} = {x}.\nCheck: {a} x {x} + {b} = {c}.\nAnswer: {var} = {x}"


def _progression(rng: Random) -> tuple[str, str]:
    start, step = rng.randint(1, 99), rng.randint(2, 25)
    terms = [start + step * i for i in range(7)]
    shown = ", ".join(map(str, terms[:4]))
    prompt = ask(rng, ("Continue the sequence {s}.", "What are the next three numbers after {s}?", "Find the next three terms: {s}."), s=shown)
    lines = [f"The step is {terms[1]} - {terms[0]} = {step}."] + [f"{terms[i]} + {step} = {terms[i + 1]}" for i in (3, 4, 5)]
    return prompt, "\n".join([*lines, "Answer: " + ", ".join(map(str, terms[4:]))])


def _long_product(rng: Random) -> tuple[str, str]:
    a, b = rng.randint(112, 999), rng.randint(3, 9) * 10 + rng.randint(2, 9)
    tens, ones = b // 10, b % 10
    prompt = ask(rng, ("Multiply {a} by {b} and show every step.", "Work out {a} x {b} in full.", "Show the long multiplication of {a} and {b}."), a=a, b=b)
    steps = [
        f"Split {b} into {tens * 10} and {ones}.",
        f"First multiply {a} by {ones}.\n{_times_digit(a, ones)}",
        f"Now multiply {a} by {tens}.\n{_times_digit(a, tens)}",
        f"Put a zero at the end: {a} x {tens * 10} = {a * tens * 10}.",
        f"Add {a * tens * 10} and {a * ones}.\n{column_sum(a * tens * 10, a * ones)}",
    ]
    return prompt, "\n".join(steps)


def _table(rng: Random) -> tuple[str, str]:
    n, first = rng.randint(2, 40), rng.randint(1, 20)
    last = first + rng.randint(18, 24)
    prompt = ask(rng, ("Write the multiplication table of {n} from {f} to {l}.", "List {n} times every number from {f} to {l}.", "Give me the table of {n}, {f} up to {l}."), n=n, f=first, l=last)
    return prompt, f"The table of {n}:\n" + "\n".join(f"{i} x {n} = {i * n}" for i in range(first, last + 1))


def _savings(rng: Random) -> tuple[str, str]:
    name, have, more, months = rng.choice(NAMES), rng.randint(10, 200), rng.randint(5, 60), rng.randint(9, 14)
    prompt = ask(
        rng,
        ("{name} has {have} dollars and saves {more} dollars every month. Show the savings month by month for {months} months.",
         "Make a list of {name}'s savings over {months} months: {have} dollars at the start, {more} dollars more each month."),
        name=name, have=have, more=more, months=months,
    )
    lines = [f"{name} starts with {have} dollars and adds {more} dollars each month."]
    for month in range(1, months + 1):
        lines.append(f"Month {month}: {have} + {more} = {have + more} dollars")
        have += more
    return prompt, "\n".join([*lines, f"Answer: {have} dollars after {months} months"])


def _bill(rng: Random) -> tuple[str, str]:
    goods = [(rng.choice((2, 3, 4, 5, 6, 7, 8, 9)), thing, rng.randint(2, 19)) for thing in rng.sample(THINGS + FOODS, rng.randint(5, 7))]
    listing = ", ".join(f"{n} {plural(thing)} at {price} dollars" for n, thing, price in goods)
    prompt = ask(rng, ("Work out the bill: {l}.", "What is the total for {l}? Show a table.", "Add up this order: {l}."), l=listing)
    lines, total = ["| item | number | price | cost |"], 0
    lines += [f"| {thing} | {n} | {price} | {n * price} |" for n, thing, price in goods]
    lines.append("Now add the costs.")
    for n, thing, price in goods:
        lines.append(f"{thing}: {total} + {n * price} = {total + n * price}")
        total += n * price
    return prompt, "\n".join([*lines, f"Answer: {total} dollars"])


CORPUS = Corpus(
    "math",
    {"addition": _addition, "subtraction": _subtraction, "product": _product, "division": _division, "fraction": _fraction, "percent": _percent,
     "shopping": _shopping, "journey": _journey, "equation": _equation, "progression": _progression},
    {"long_product": _long_product, "table": _table, "savings": _savings, "bill": _bill},
)
