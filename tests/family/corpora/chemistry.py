"""School chemistry with rounded atomic masses: formulas, balancing, amounts, ions, and written-out laboratory work."""

from __future__ import annotations

import re
from collections import Counter
from math import gcd, lcm
from random import Random

from tests.family.corpora.grammar import Corpus, ask, numbered

MASSES = {"H": 1, "Li": 7, "C": 12, "N": 14, "O": 16, "F": 19, "Na": 23, "Mg": 24, "Al": 27, "P": 31, "S": 32, "Cl": 35, "K": 39, "Ca": 40, "Fe": 56, "Cu": 64, "Zn": 65, "Br": 80, "Ag": 108, "Ba": 137}
PROTONS = {"hydrogen": 1, "lithium": 3, "carbon": 6, "nitrogen": 7, "oxygen": 8, "fluorine": 9, "sodium": 11, "magnesium": 12, "aluminium": 13, "phosphorus": 15, "sulfur": 16, "chlorine": 17, "potassium": 19, "calcium": 20, "iron": 26, "copper": 29, "zinc": 30, "bromine": 35, "silver": 47, "barium": 56}
SYMBOLS = dict(zip(PROTONS, MASSES, strict=True))
METALS = {"lithium": ("Li", 1), "sodium": ("Na", 1), "potassium": ("K", 1), "silver": ("Ag", 1), "magnesium": ("Mg", 2), "calcium": ("Ca", 2), "zinc": ("Zn", 2), "barium": ("Ba", 2), "copper": ("Cu", 2), "aluminium": ("Al", 3), "iron": ("Fe", 3)}
ANIONS = {"fluoride": ("F", 1), "chloride": ("Cl", 1), "bromide": ("Br", 1), "nitrate": ("NO3", 1), "hydroxide": ("OH", 1), "oxide": ("O", 2), "sulfide": ("S", 2), "sulfate": ("SO4", 2), "carbonate": ("CO3", 2), "phosphate": ("PO4", 3), "nitride": ("N", 3)}
ACIDS = {"hydrochloric acid": ("HCl", "chloride"), "nitric acid": ("HNO3", "nitrate"), "sulfuric acid": ("H2SO4", "sulfate"), "phosphoric acid": ("H3PO4", "phosphate"), "hydrobromic acid": ("HBr", "bromide")}
_GASES = {"O2": "oxygen", "N2": "nitrogen", "H2": "hydrogen", "CO2": "carbon dioxide", "CH4": "methane", "NH3": "ammonia"}


def atoms(formula: str) -> Counter[str]:
    """Atoms in a formula such as Ca(NO3)2."""
    count: Counter[str] = Counter()
    for inner, outer_times, symbol, times in re.findall(r"\((\w+)\)(\d*)|([A-Z][a-z]?)(\d*)", formula):
        if symbol:
            count[symbol] += int(times or 1)
        for key, value in atoms(inner).items() if inner else ():
            count[key] += value * int(outer_times or 1)
    return count


def molar_mass(formula: str) -> int:
    """Grams per mole, with the rounded masses above."""
    return sum(MASSES[symbol] * n for symbol, n in atoms(formula).items())


def salt(metal: str, anion: str) -> str:
    """The neutral formula, say salt("calcium", "nitrate") == "Ca(NO3)2"."""
    (cation, plus), (group, minus) = METALS[metal], ANIONS[anion]
    a, b = lcm(plus, minus) // plus, lcm(plus, minus) // minus
    wrapped = f"({group})" if b > 1 and len(atoms(group)) > 1 else group
    return cation + (str(a) if a > 1 else "") + wrapped + (str(b) if b > 1 else "")


def side(*terms: tuple[int, str]) -> str:
    """One side of an equation; a coefficient of 1 is not written."""
    return " + ".join(f"{n} {formula}" if n > 1 else formula for n, formula in terms)


def _pair(rng: Random) -> tuple[str, str, str]:
    metal, anion = rng.choice(list(METALS)), rng.choice(list(ANIONS))
    return metal, anion, salt(metal, anion)


def _mass_lines(formula: str) -> str:
    parts = [f"{symbol}: {n} x {MASSES[symbol]} = {n * MASSES[symbol]}" for symbol, n in atoms(formula).items()]
    return "\n".join([*parts, f"Molar mass of {formula}: {molar_mass(formula)} g/mol"])


def _molar_mass(rng: Random) -> tuple[str, str]:
    metal, anion, formula = _pair(rng)
    if rng.random() < 0.5:
        c, h = rng.randint(1, 12), rng.randint(1, 26)
        formula = f"C{c if c > 1 else ''}H{h if h > 1 else ''}" + rng.choice(("", "O", "O2", "O3", "O6", "Cl", "N", "Br"))
        return ask(rng, ("What is the molar mass of {f}?", "Calculate the molar mass of {f}.", "How heavy is one mole of {f}?"), f=formula), _mass_lines(formula)
    prompt = ask(rng, ("What is the molar mass of {n}, {f}?", "How heavy is one mole of {n} ({f})?", "Find the molar mass of {f}."), f=formula, n=f"{metal} {anion}")
    return prompt, _mass_lines(formula)


def _formula(rng: Random) -> tuple[str, str]:
    metal, anion, formula = _pair(rng)
    (cation, plus), (group, minus) = METALS[metal], ANIONS[anion]
    prompt = ask(rng, ("What is the formula of {m} {a}?", "Write the chemical formula of {m} {a}.", "Give the formula for {m} {a}.", "How do chemists write {m} {a}?", "Which formula does {m} {a} have?"), m=metal, a=anion)
    total = lcm(plus, minus)
    answer = f"The {metal} ion {cation} has charge +{plus}.\nThe {anion} ion {group} has charge -{minus}.\nThe charges balance at {total}: {total // plus} {cation} and {total // minus} {group}.\nFormula: {formula}"
    return prompt, answer


def _naming(rng: Random) -> tuple[str, str]:
    metal, anion, formula = _pair(rng)
    prompt = ask(rng, ("Name the compound {f}.", "What is {f} called?", "What is the name of {f}?", "Which substance is {f}?", "Tell me the chemical name of {f}."), f=formula)
    return prompt, f"{METALS[metal][0]} is {metal}.\n{ANIONS[anion][0]} is {anion}.\nName: {metal} {anion}"


def combustion(c: int, h: int, o: int) -> str:
    """The balanced burning of CcHhOo to carbon dioxide and water."""
    n = [4, 4 * c + h - 2 * o, 4 * c, 2 * h]
    g = gcd(*n)
    fuel = "C" + (str(c) if c > 1 else "") + "H" + (str(h) if h > 1 else "") + ("" if o == 0 else "O" + (str(o) if o > 1 else ""))
    a, b, x, y = (value // g for value in n)
    return f"{side((a, fuel), (b, 'O2'))} -> {side((x, 'CO2'), (y, 'H2O'))}"


def _burning(rng: Random) -> tuple[str, str]:
    c = rng.randint(1, 12)
    h, o = 2 * rng.randint(1, c + 1), min(c, rng.choice((0, 0, 1, 2)))
    equation = combustion(c, h, o)
    fuel = equation.split(" + ")[0].split(" ")[-1]
    prompt = ask(rng, ("Balance the combustion of {f}.", "Write the balanced equation for burning {f} in oxygen.", "{f} burns to carbon dioxide and water. Balance the equation."), f=fuel)
    answer = f"Unbalanced: {fuel} + O2 -> CO2 + H2O\nC: {c} carbon atoms give {c} CO2.\nH: {h} hydrogen atoms give {h}/2 H2O.\nO: {2 * c} + {h}/2 - {o} oxygen atoms come from O2.\nBalanced: {equation}"
    return prompt, answer


def neutralisation(acid: str, metal: str) -> str:
    """Acid + metal hydroxide -> salt + water, balanced."""
    formula, anion = ACIDS[acid]
    plus, minus = METALS[metal][1], ANIONS[anion][1]
    total = lcm(plus, minus)
    return f"{side((total // minus, formula), (total // plus, salt(metal, 'hydroxide')))} -> {side((1, salt(metal, anion)), (total, 'H2O'))}"


def _neutralising(rng: Random) -> tuple[str, str]:
    acid, metal = rng.choice(list(ACIDS)), rng.choice([m for m in METALS if m != "silver"])
    formula, anion = ACIDS[acid]
    prompt = ask(rng, ("What happens when {a} reacts with {m} hydroxide?", "Write the equation for {a} and {m} hydroxide.", "Neutralise {m} hydroxide with {a}.", "{a} is mixed with {m} hydroxide. What forms?", "Give the balanced reaction of {m} hydroxide with {a}."), a=acid, m=metal)
    answer = f"An acid and a base give a salt and water.\nAcid: {formula}\nBase: {salt(metal, 'hydroxide')}\nSalt: {metal} {anion}, {salt(metal, anion)}\nEquation: {neutralisation(acid, metal)}"
    return prompt, answer


def _counting(rng: Random) -> tuple[str, str]:
    _, _, formula = _pair(rng)
    n = rng.randint(2, 9)
    symbol, each = rng.choice(list(atoms(formula).items()))
    prompt = ask(rng, ("How many {s} atoms are in {n} {f}?", "Count the {s} atoms in {n} units of {f}.", "In {n} {f}, how many atoms of {s} are there?"), s=symbol, n=n, f=formula)
    return prompt, f"One {formula} has {each} {symbol}.\n{n} x {each} = {n * each}\nAnswer: {n * each} {symbol} atoms"


def _acidity(rng: Random) -> tuple[str, str]:
    n, liquid = rng.randint(1, 13), rng.choice(("solution", "cleaner", "rain water", "juice", "lake water", "soap", "milk", "sample"))
    kind = "acidic" if n < 7 else "neutral" if n == 7 else "basic"
    prompt = ask(rng, ("A {q} has an H+ concentration of 10^-{n} mol/L. What is its pH?", "Find pH and pOH of a {q} with [H+] = 10^-{n}.", "Is a {q} with [H+] = 10^-{n} acidic or basic?"), q=liquid, n=n)
    return prompt, f"pH is minus the logarithm of [H+].\npH = {n}\npOH = 14 - {n} = {14 - n}\nThe {liquid} is {kind}."


def _isotope(rng: Random) -> tuple[str, str]:
    element = rng.choice(list(PROTONS))
    z = PROTONS[element]
    mass, charge = z + rng.randint(max(1, z - 1), z + z // 3 + 2), rng.choice((0, 0, 1, 2)) if z > 1 else 0
    ion = "" if charge == 0 else f" with charge +{charge}"
    prompt = ask(rng, ("How many protons, neutrons and electrons has {e}-{m}{i}?", "Describe the particles of {e}-{m}{i}.", "Count the particles in an atom of {e}-{m}{i}."), e=element, m=mass, i=ion)
    electrons = f"Electrons: {z - charge}" if not ion else f"Electrons: {z} - {charge} = {z - charge}"
    return prompt, f"Symbol: {SYMBOLS[element]}\nProtons: {z}\nNeutrons: {mass} - {z} = {mass - z}\n{electrons}"


def _moles(rng: Random) -> tuple[str, str]:
    formula = _pair(rng)[2] if rng.random() < 0.7 else rng.choice(list(_GASES))
    n, mass = rng.randint(2, 9), molar_mass(formula)
    prompt = ask(rng, ("How many moles are {g} g of {f}?", "{g} g of {f}: what amount in moles?", "Convert {g} g of {f} to moles."), g=n * mass, f=formula)
    return prompt, f"{_mass_lines(formula)}\nn = {n * mass} / {mass} = {n}\nAnswer: {n} mol"


def _dilution(rng: Random) -> tuple[str, str]:
    factor, c2, v1 = rng.randint(2, 9), rng.randint(1, 9), 5 * rng.randint(1, 20)
    name = " ".join(_pair(rng)[:2])
    prompt = ask(rng, ("{v} mL of {c} mM {s} are diluted to {w} mL. What is the new concentration?", "Dilute {v} mL of {c} mM {s} to {w} mL: find the concentration."), v=v1, c=c2 * factor, s=name, w=v1 * factor)
    return prompt, f"The amount of {name} stays the same.\nThe volume grows by {v1 * factor} / {v1} = {factor}.\n{c2 * factor} / {factor} = {c2}\nAnswer: {c2} mM"


def _pressure(rng: Random) -> tuple[str, str]:
    factor, p, v = rng.randint(2, 9), rng.randint(1, 20), rng.randint(1, 30)
    gas = rng.choice(list(_GASES.values()))
    prompt = ask(rng, ("{g} fills {w} L at {p} bar. It is pressed into {v} L. What is the pressure?", "What pressure does {g} reach when {w} L at {p} bar become {v} L?"), g=gas, w=v * factor, p=p, v=v)
    return prompt, f"Pressure times volume is constant.\nThe volume shrinks by {v * factor} / {v} = {factor}.\n{p} x {factor} = {p * factor}\nAnswer: {p * factor} bar"


def _stoichiometry(rng: Random) -> tuple[str, str]:
    acid, metal, n = rng.choice(list(ACIDS)), rng.choice([m for m in METALS if m != "silver"]), rng.randint(2, 9)
    _, anion = ACIDS[acid]
    product, base = salt(metal, anion), salt(metal, "hydroxide")
    left, right = neutralisation(acid, metal).split(" -> ")
    used = lcm(METALS[metal][1], ANIONS[anion][1]) // METALS[metal][1]
    moles = n * used
    prompt = ask(rng, ("How many grams of {p} form from {g} g of {b} and enough {a}? Show the full solution.", "{g} g of {b} react fully with {a}. Find the mass of {p}, step by step."), p=product, g=moles * molar_mass(base), b=base, a=acid)
    answer = numbered([
        f"The balanced equation is {left} -> {right}.",
        f"Find the molar mass of the base.\n{_mass_lines(base)}",
        f"Find the amount of the base.\nn = {moles * molar_mass(base)} / {molar_mass(base)} = {moles} mol",
        f"The equation turns {used} {base} into 1 {product}, so there are {n} mol of {product}.",
        f"Find the molar mass of the salt.\n{_mass_lines(product)}",
        f"Find the mass of the salt.\nm = {n} x {molar_mass(product)} = {n * molar_mass(product)} g",
    ])
    return prompt, f"{answer}\nAnswer: {n * molar_mass(product)} g of {metal} {anion}"


def _recipe(rng: Random) -> tuple[str, str]:
    metal, anion, formula = _pair(rng)
    litres, conc, mass = rng.randint(1, 5), rng.randint(1, 6), molar_mass(formula)
    vessel, stirrer = rng.choice(("beaker", "flask", "glass")), rng.choice(("glass rod", "magnetic stirrer", "clean spoon"))
    prompt = ask(rng, ("Write a laboratory procedure for {l} L of {c} M {m} {a}.", "How do I prepare {l} L of a {c} M solution of {m} {a}? Give all steps."), l=litres, c=conc, m=metal, a=anion)
    answer = numbered([
        f"The formula of {metal} {anion} is {formula}.",
        f"Find the molar mass.\n{_mass_lines(formula)}",
        f"Find the amount: {litres} x {conc} = {litres * conc} mol.",
        f"Find the mass: {litres * conc} x {mass} = {litres * conc * mass} g.",
        "Put on gloves and safety glasses.",
        f"Weigh {litres * conc * mass} g of {metal} {anion} into a {vessel}.",
        f"Add some water and stir with a {stirrer} until everything is dissolved.",
        f"Pour it into a measuring flask and rinse the {vessel} twice.",
        f"Fill up with water to {litres} L, close the flask and shake it well.",
        f"Write on the label: {formula}, {conc} M.",
    ])
    return prompt, answer


def _compounds(rng: Random) -> tuple[str, str]:
    metal, chosen = rng.choice(list(METALS)), rng.sample(list(ANIONS), rng.randint(6, 8))
    symbol, plus = METALS[metal]
    prompt = ask(rng, ("Make a table with formula and molar mass of {m} with {l}.", "For {m} and these ions list formula and molar mass: {l}."), m=metal, l=", ".join(chosen))
    rows = [f"| {metal} {anion} | {salt(metal, anion)} | {molar_mass(salt(metal, anion))} g/mol |" for anion in chosen]
    sums = [f"{salt(metal, anion)}: " + " + ".join(f"{n} x {MASSES[part]}" for part, n in atoms(salt(metal, anion)).items()) + f" = {molar_mass(salt(metal, anion))}" for anion in chosen]
    return prompt, "\n".join([f"The {metal} ion {symbol} has charge +{plus}.", *sums, "| compound | formula | molar mass |", *rows])


CORPUS = Corpus(
    "chemistry",
    {"molar_mass": _molar_mass, "formula": _formula, "naming": _naming, "burning": _burning, "neutralising": _neutralising, "counting": _counting,
     "acidity": _acidity, "isotope": _isotope, "moles": _moles, "dilution": _dilution, "pressure": _pressure},
    {"stoichiometry": _stoichiometry, "recipe": _recipe, "compounds": _compounds},
)
