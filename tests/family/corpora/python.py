"""Small Python tasks: functions that run, traces, bug fixes, and longer classes and programs."""

from __future__ import annotations

from random import Random

from tests.family.corpora.grammar import Corpus, ask
from tests.family.corpora.words import ANIMALS, FOODS, THINGS

_FIELDS = ("name", "price", "size", "colour", "weight", "count", "owner", "year", "speed", "level")
_LISTS = ("numbers", "values", "items", "scores", "prices", "ages", "sizes", "totals")
# phrase, expression over x and the constant k
_RULES = (("plus {k}", "x + {k}"), ("minus {k}", "x - {k}"), ("times {k}", "x * {k}"), ("modulo {k}", "x % {k}"), ("divided by {k} without rest", "x // {k}"), ("squared plus {k}", "x * x + {k}"))
# phrase, condition over x and the constant k
_TESTS = (("greater than {k}", "x > {k}"), ("less than {k}", "x < {k}"), ("divisible by {k}", "x % {k} == 0"), ("not equal to {k}", "x != {k}"), ("at least {k}", "x >= {k}"))


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _rule(rng: Random) -> tuple[str, str, int]:
    phrase, expression = rng.choice(_RULES)
    k = rng.randint(2, 20)
    return phrase.format(k=k), expression.format(k=k), k


def _test(rng: Random) -> tuple[str, str, int]:
    phrase, condition = rng.choice(_TESTS)
    k = rng.randint(2, 20)
    return phrase.format(k=k), condition.format(k=k), k


def _function(rng: Random) -> tuple[str, str]:
    (phrase, expression, _), verb, noun = _rule(rng), rng.choice(("compute", "change", "get", "make")), rng.choice(_FIELDS)
    prompt = ask(rng, ("Write a function {v}_{n} that returns x {p}.", "Define {v}_{n}(x) so that it gives x {p}.", "I need a Python function {v}_{n}: it takes x and returns x {p}."), v=verb, n=noun, p=phrase)
    example = rng.randint(1, 30)
    return prompt, _code(f"def {verb}_{noun}(x):\n    return {expression}") + f"\nFor example, {verb}_{noun}({example}) returns {eval(expression, {'x': example})}."


def _filter(rng: Random) -> tuple[str, str]:
    (phrase, condition, _), name = _test(rng), rng.choice(_LISTS)
    prompt = ask(rng, ("Write a function that keeps the {n} {p}.", "Filter the list {n}: keep every x {p}.", "Return only those {n} that are {p}."), n=name, p=phrase)
    return prompt, _code(f"def keep_{name}({name}):\n    return [x for x in {name} if {condition}]")


def _loop(rng: Random) -> tuple[str, str]:
    (phrase, condition, _), (_, expression, _), name = _test(rng), _rule(rng), rng.choice(_LISTS)
    prompt = ask(rng, ("Rewrite with a for loop: [{e} for x in {n} if {c}]", "Turn [{e} for x in {n} if {c}] into a loop.", "Write [{e} for x in {n} if {c}] without a comprehension."), e=expression, n=name, c=condition)
    return prompt, f"It takes every x that is {phrase}.\n" + _code(f"result = []\nfor x in {name}:\n    if {condition}:\n        result.append({expression})")


def _output(rng: Random) -> tuple[str, str]:
    (_, expression, _), values, name = _rule(rng), [rng.randint(1, 30) for _ in range(rng.randint(3, 4))], rng.choice(_LISTS)
    program = f"{name} = {values}\nprint([{expression} for x in {name}])"
    prompt = ask(rng, ("What does this print?\n{c}\n", "Give the output of this program:\n{c}\n"), c=_code(program))
    lines = [f"x = {x}: {expression} = {eval(expression, {'x': x})}" for x in values]
    return prompt, "\n".join([*lines, f"Output: {[eval(expression, {'x': x}) for x in values]}"])


def _slicing(rng: Random) -> tuple[str, str]:
    values, start = rng.sample(ANIMALS + FOODS, 5), rng.randint(0, 2)
    stop = rng.randint(start + 1, 5)
    prompt = ask(rng, ("words = {v}. What is words[{a}:{b}]?", "Given words = {v}, evaluate words[{a}:{b}].", "What does words[{a}:{b}] give for words = {v}?"), v=values, a=start, b=stop)
    lines = [f"index {i}: {values[i]}" for i in range(start, stop)]
    return prompt, "\n".join([f"The slice starts at {start} and ends before {stop}.", *lines, f"Answer: {values[start:stop]}"])


def _bug(rng: Random) -> tuple[str, str]:
    name, field = rng.choice(_LISTS), rng.choice(_FIELDS)
    wrong, right, why = rng.choice((
        (f"for {field} in {name}\n    print({field})", f"for {field} in {name}:\n    print({field})", "The colon after the for line is missing."),
        (f"if {field} = 3:\n    print({name})", f"if {field} == 3:\n    print({name})", "A comparison needs two equal signs."),
        (f"def show_{field}({name}):\nreturn {name}", f"def show_{field}({name}):\n    return {name}", "The body of the function must be indented."),
        (f"print({name}[0]", f"print({name}[0])", "A closing bracket is missing."),
        (f"while len({name}) > 3\n    {name}.pop()", f"while len({name}) > 3:\n    {name}.pop()", "The colon after the while line is missing."),
    ))
    prompt = ask(rng, ("Fix this code:\n{c}\n", "Why does this fail?\n{c}\n", "Find the bug:\n{c}\n"), c=_code(wrong))
    return prompt, f"{why}\n{_code(right)}"


def _dictionary(rng: Random) -> tuple[str, str]:
    pairs = {key: rng.randint(1, 50) for key in rng.sample(FOODS + THINGS, 3)}
    name, key = rng.choice(_LISTS), rng.choice(list(pairs))
    prompt = ask(rng, ("Make a dictionary {n} with {l}, then print {k}.", "Write a dict {n}: {l}. Show the value of {k}."), n=name, l=", ".join(f"{k} {v}" for k, v in pairs.items()), k=key)
    return prompt, _code(f"{name} = {{{', '.join(f'{k!r}: {v}' for k, v in pairs.items())}}}\nprint({name}[{key!r}])") + f"\nThis prints {pairs[key]}."


def _types(rng: Random) -> tuple[str, str]:
    a, b, name = rng.randint(2, 60), rng.randint(2, 9), rng.choice(_FIELDS)
    expression = rng.choice(("{a} // {b}", "{a} % {b}", "{a} * {b}", "{a} > {b}", "str({a}) + '{b}'", "[{a}] * {b}", "({a}, {b})", "len('{a}') + {b}")).format(a=a, b=b)
    value = eval(expression)
    prompt = ask(rng, ("{n} = {e}. What are the type and the value of {n}?", "After {n} = {e}, what is {n} and what type does it have?"), n=name, e=expression)
    return prompt, f"The expression {expression} has type {type(value).__name__}.\n{name} = {value!r}"


def _class(rng: Random) -> tuple[str, str]:
    thing, fields = rng.choice(ANIMALS + FOODS + THINGS), rng.sample(_FIELDS, 3)
    step = rng.randint(2, 20)
    prompt = ask(rng, ("Write a class for a {t} with {f} and methods to show it, to compare two by {b} and to add {s} to {b}.", "Define a Python class {t} that stores {f}; it can be shown, compared by {b} and {b} can grow by {s}."), t=thing, f=", ".join(fields), b=fields[1], s=step)
    a, b, c = fields
    cls = thing.capitalize()
    lines = [
        f"class {cls}:",
        f"    def __init__(self, {a}, {b}, {c}):", *(f"        self.{field} = {field}" for field in fields), "",
        "    def show(self):", f"        print('{cls}:', self.{a}, self.{b}, self.{c})", "",
        "    def is_more(self, other):", f"        return self.{b} > other.{b}", "",
        f"    def grow_{b}(self):", f"        self.{b} = self.{b} + {step}", "        return self", "", "",
        f"first = {cls}(1, 2, 3)", f"second = {cls}(4, 5, 6)", "first.show()", f"print(second.grow_{b}().is_more(first))",
    ]
    return prompt, _code("\n".join(lines))


def _trace(rng: Random) -> tuple[str, str]:
    start, step, turns = rng.randint(1, 20), rng.randint(2, 9), rng.randint(8, 10)
    _rule(rng)  # not used: the shipped weights were learned with this draw in the sequence
    program = f"total = {start}\nfor i in range({turns}):\n    x = i * {step}\n    total = total + x\nprint(total)"
    prompt = ask(rng, ("Trace this program step by step:\n{c}\n", "Show the values in every turn of the loop:\n{c}\n"), c=_code(program))
    lines, total = [f"At the start total = {start}."], start
    for i in range(turns):
        lines.append(f"i = {i}: x = {i} * {step} = {i * step}, total = {total} + {i * step} = {total + i * step}")
        total += i * step
    return prompt, "\n".join([*lines, f"Output: {total}"])


def _program(rng: Random) -> tuple[str, str]:
    (phrase, condition, _), (change, expression, _), name = _test(rng), _rule(rng), rng.choice(_LISTS)
    values = [rng.randint(1, 40) for _ in range(5)]
    prompt = ask(rng, ("Write a program with functions: keep the {n} {p}, take each x {c}, add them up and print a report for {v}.", "I want a script for {n} = {v}: select those {p}, make each x {c}, and report count and sum."), n=name, p=phrase, c=change, v=values)
    lines = [
        f"def select({name}):", f"    return [x for x in {name} if {condition}]", "", "",
        f"def change({name}):", "    result = []", f"    for x in {name}:", f"        result.append({expression})", "    return result", "", "",
        f"def report({name}):", f"    print('count:', len({name}))", f"    print('sum:', sum({name}))", f"    for x in {name}:", "        print('value:', x)", "", "",
        f"{name} = {values}", f"report(change(select({name})))",
    ]
    kept = [x for x in values if eval(condition, {"x": x})]
    return prompt, _code("\n".join(lines)) + f"\nselect keeps {kept}.\nchange gives {[eval(expression, {'x': x}) for x in kept]}."


def _tests(rng: Random) -> tuple[str, str]:
    (phrase, expression, _), noun, count = _rule(rng), rng.choice(_FIELDS), rng.randint(6, 8)
    prompt = ask(rng, ("Write the function change_{n} (x {p}) and {c} unit tests for it.", "Give me change_{n}(x), which returns x {p}, with {c} pytest tests."), n=noun, p=phrase, c=count)
    lines = [f"def change_{noun}(x):", f"    return {expression}", ""]
    for i in range(1, count + 1):
        x = rng.randint(0, 40)
        lines += ["", f"def test_{noun}_{i}():", f"    assert change_{noun}({x}) == {eval(expression, {'x': x})}"]
    return prompt, _code("\n".join(lines))


CORPUS = Corpus(
    "python",
    {"function": _function, "filter": _filter, "loop": _loop, "output": _output, "slicing": _slicing, "bug": _bug, "dictionary": _dictionary, "types": _types},
    {"class": _class, "trace": _trace, "program": _program, "tests": _tests},
)
