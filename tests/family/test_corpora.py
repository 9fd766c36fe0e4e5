"""The corpora: distinct items, equal for equal seeds, disjoint splits, correct answers."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction

import pytest

from tests.family import corpora
from tests.family.corpora import TASKS, Item, general_texts, items, rambling_texts
from tests.family.corpora.chinese import numeral
from tests.family.corpora.general import CORPUS as GENERAL

MANY = {task: items(task, 3000, seed=3) for task in TASKS}
EQUALITY = re.compile(r"(?<![\w.%^(+*/-] )(?<![\w.^(+*/-])(\d+(?: [-+x/*] \d+)+) = (-?\d+)\b(?! [x*])")
SUBSCRIPT = re.compile(r"([A-Z][a-z]?)(\d*)|\(|\)(\d*)")


def of(task: str, *subtypes: str) -> list[Item]:
    return [item for item in MANY[task] if item.subtype in subtypes]


@pytest.mark.parametrize("task", TASKS)
def test_thousands_of_distinct_items_of_many_kinds(task: str) -> None:
    assert len({item.prompt for item in MANY[task]}) == 3000
    assert len({item.subtype for item in MANY[task]}) >= 8
    assert {item.task for item in MANY[task]} == {task}


@pytest.mark.parametrize("task", TASKS)
def test_the_seed_decides_everything(task: str) -> None:
    assert items(task, 200, seed=3) == MANY[task][:200]
    assert items(task, 200, seed=4) != MANY[task][:200]


@pytest.mark.parametrize("task", TASKS)
def test_held_out_prompts_are_never_trained_on(task: str) -> None:
    held_out = {item.prompt for seed in (1, 2) for item in items(task, 200, seed, "held_out")}
    assert not held_out & {item.prompt for item in MANY[task]}


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(KeyError):
        items("cooking", 1, seed=0)


def test_more_items_than_there_are_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "_TRIES_PER_ITEM", 1)
    with pytest.raises(ValueError, match="python has no 5000 distinct train prompts"):
        items("python", 5000, seed=0)


def value(expression: str) -> Fraction:
    """A flat sum or product, worked from the left with the usual precedence."""
    total, sign = Fraction(0), 1
    for term in re.split(r" ([-+]) ", expression):
        if term in "+-":
            sign = 1 if term == "+" else -1
            continue
        product, factors = Fraction(1), re.split(r" ([x*/]) ", term)
        for operator, factor in zip(["x", *factors[1::2]], factors[::2], strict=True):
            product = product / int(factor) if operator == "/" else product * int(factor)
        total += sign * product
    return total


@pytest.mark.parametrize("task", ["math", "chemistry", "logic", "chinese"])
def test_every_equation_in_an_answer_is_true(task: str) -> None:
    checked = 0
    for item in MANY[task]:
        for left, right in EQUALITY.findall(item.answer) if item.subtype not in ("division", "fraction") else ():
            assert value(left) == int(right), (item.subtype, left, right)
            checked += 1
    assert checked > 200


def test_sums_products_and_differences_answer_the_prompt() -> None:
    for item in of("math", "addition", "subtraction", "product"):
        a, b = map(int, re.findall(r"\d+", item.prompt))
        wanted = {"addition": a + b, "subtraction": abs(a - b), "product": a * b}[item.subtype]
        assert item.answer.endswith(f"Answer: {wanted}")


def test_divisions_fractions_and_equations_answer_the_prompt() -> None:
    for item in of("math", "division"):
        a, b = sorted(map(int, re.findall(r"\d+", item.prompt)), reverse=True)
        assert item.answer.endswith(f"Answer: {a // b} remainder {a % b}")
    for item in of("math", "fraction"):
        a, b = map(int, re.findall(r"\d+", item.prompt))
        p, q = re.findall(r"\d+", item.answer.splitlines()[-1])
        assert (int(p), int(q)) == (Fraction(a, b).numerator, Fraction(a, b).denominator)
    for item in of("math", "equation"):
        a, b, c = map(int, re.findall(r"\d+", item.prompt))
        assert item.answer.endswith(f"= {(c - b) // a}")


def count_atoms(formula: str) -> Counter[str]:
    stack: list[Counter[str]] = [Counter()]
    for match in SUBSCRIPT.finditer(formula):
        if match.group(1):
            stack[-1][match.group(1)] += int(match.group(2) or 1)
        elif match.group(0) == "(":
            stack.append(Counter())
        else:
            for symbol, n in stack.pop().items():
                stack[-1][symbol] += n * int(match.group(3) or 1)
    return stack[0]


def side(text: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for term in text.split(" + "):
        number, _, formula = term.rpartition(" ")
        for symbol, n in count_atoms(formula).items():
            total[symbol] += n * int(number or 1)
    return total


def test_chemical_equations_balance() -> None:
    checked = 0
    for item in of("chemistry", "burning", "neutralising", "stoichiometry"):
        for left, right in re.findall(
            r"(?:Balanced:|Equation:|equation is) (.+) -> (.+?)\.?$", item.answer, re.MULTILINE
        ):
            assert side(left) == side(right), item.answer
            checked += 1
    assert checked > 300


def test_molar_masses_and_neutral_formulas() -> None:
    masses = {"H": 1, "O": 16, "C": 12, "Na": 23, "Cl": 35, "S": 32, "Ca": 40, "N": 14, "K": 39, "Mg": 24}
    for item in of("chemistry", "molar_mass"):
        formula, mass = re.findall(r"Molar mass of (\S+): (\d+) g/mol", item.answer)[0]
        if set(count_atoms(formula)) <= set(masses):
            assert sum(masses[s] * n for s, n in count_atoms(formula).items()) == int(mass)
    for item in of("chemistry", "formula"):
        (cation, plus), (anion, minus) = re.findall(r"ion (\w+) has charge [+-](\d)", item.answer)
        formula = item.answer.split("Formula: ")[1]
        metals = count_atoms(formula)[cation]
        groups = (sum(count_atoms(formula).values()) - metals) // sum(count_atoms(anion).values())
        assert metals * int(plus) == groups * int(minus)


def test_chinese_numerals_read_back() -> None:
    digits = {digit: i for i, digit in enumerate("零一二三四五六七八九")}
    units = {"十": 10, "百": 100, "千": 1000}
    for n in range(10000):
        total, digit = 0, 0
        for letter in numeral(n):
            if letter in units:
                total, digit = total + (digit or 1) * units[letter], 0
            else:
                digit = digits[letter]
        assert total + digit == n
    assert numeral(2005) == "二千零五"


def test_truth_values_and_robots() -> None:
    for item in of("logic", "truth_table"):
        head, *rows = [line.strip("| ").split(" | ") for line in item.answer.splitlines() if line.startswith("|")]
        expression = re.findall(r"\(.*\) (?:and|or) (?:not )?\w", item.prompt)[0]
        assert len({tuple(row[:3]) for row in rows}) == 8
        for row in rows:
            scope = {name: cell == "true" for name, cell in zip(head[:3], row[:3], strict=True)}
            assert eval(expression, {}, scope) == (row[-1] == "true")
    for item in of("logic", "robot"):
        x, y = map(int, re.findall(r"\((\d+), (\d+)\)", item.prompt)[0])
        for n, way in re.findall(r"(\d+) (north|south|east|west)", item.prompt):
            x += int(n) * {"east": 1, "west": -1}.get(way, 0)
            y += int(n) * {"north": 1, "south": -1}.get(way, 0)
        assert item.answer.endswith(f"Answer: ({x}, {y})")


def test_python_answers_run_and_print_what_they_say(capsys: pytest.CaptureFixture[str]) -> None:
    for item in of("python", "class", "tests", "program", "dictionary", "trace", "output")[:400]:
        source = re.findall(r"```python\n(.*?)\n```", item.answer + item.prompt, re.DOTALL)[0]
        scope: dict[str, object] = {}
        exec(source, scope)
        for name, test in scope.items():
            if name.startswith("test_") and callable(test):
                test()
        printed = capsys.readouterr().out.strip()
        if item.subtype in ("trace", "output"):
            assert item.answer.endswith(f"Output: {printed}")
        if item.subtype == "dictionary":
            assert item.answer.endswith(f"This prints {printed}.")


def test_general_text_asks_none_of_the_tasks_questions() -> None:
    prompts = {item.prompt for task in TASKS for item in MANY[task]}
    general = general_texts(2000, seed=1)
    assert len({item.subtype for item in general}) == len(GENERAL.short) + len(GENERAL.long)
    assert not {item.prompt for item in general} & prompts
    assert general == general_texts(2000, seed=1)


def test_rambling_forgets_what_it_was_about() -> None:
    rambled = rambling_texts(600, seed=3)
    known = {line for task in TASKS for item in MANY[task] for line in item.answer.splitlines() if len(line) > 30}
    lines = [line for item in rambled for line in item.answer.splitlines() if len(line) > 30]
    assert len(lines) > 300
    assert sum(line in known for line in lines) < 0.02 * len(lines)
    answers = {item.answer for task in TASKS for item in MANY[task]}
    assert sum(item.answer in answers for item in rambled) < 0.05 * len(rambled)
