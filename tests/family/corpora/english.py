"""English: small rewrites with one right answer, and short pieces of writing from a grammar."""

from __future__ import annotations

from random import Random

from tests.family.corpora.grammar import Corpus, ask, numbered
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


def _tense(rng: Random) -> tuple[str, str]:
    name, thing, place = rng.choice(NAMES), rng.choice(THINGS), rng.choice(PLACES)
    base, past, _, ing = rng.choice(VERBS)
    third = base[:-1] + "ies" if base[-2:] == "ry" else base + ("es" if base[-2:] == "sh" else "s")
    sentence = f"{name} {third} the {thing} near {place}."
    wanted, verb = rng.choice((("past", past), ("future", f"will {base}"), ("present continuous", f"is {ing}")))
    prompt = ask(rng, ('Put this sentence into the {t} tense: "{s}"', 'Rewrite in the {t}: "{s}"', 'Change to {t} tense: "{s}"'), t=wanted, s=sentence)
    return prompt, f'The verb is "{third}".\nIts {wanted} form is "{verb}".\n{name} {verb} the {thing} near {place}.'


def _passive(rng: Random) -> tuple[str, str]:
    who, (_, past, participle, _), colour, thing = rng.choice(JOBS), rng.choice(VERBS), rng.choice(COLOURS), rng.choice(THINGS)
    prompt = ask(rng, ('Make this passive: "The {w} {v} the {c} {t}."', 'Turn "The {w} {v} the {c} {t}." into the passive voice.', 'Passive voice of: "The {w} {v} the {c} {t}."'), w=who, v=past, c=colour, t=thing)
    return prompt, f'The object "the {colour} {thing}" becomes the subject.\nThe verb becomes "was {participle}".\nThe {colour} {thing} was {participle} by the {who}.'


def _comparative(rng: Random) -> tuple[str, str]:
    (adjective, more, most, *_), (a, b) = rng.choice(ADJECTIVES), rng.sample(NAMES, 2)
    prompt = ask(rng, ('Compare {a} and {b} with the adjective "{j}".', 'Use the comparative of "{j}" for {a} and {b}.', '{a}, {b}, "{j}": write the comparative and the superlative.'), a=a, b=b, j=adjective)
    return prompt, f"Comparative: {more}\nSuperlative: {most}\n{a} is {more} than {b}, but {b} is not the {most} of all."


def _opposites(rng: Random) -> tuple[str, str]:
    first, second = rng.sample(ADJECTIVES, 2)
    prompt = ask(rng, ('Give a synonym and an antonym of "{a}" and "{b}".', 'What are the synonym and the opposite of "{a}" and of "{b}"?', 'Synonyms and antonyms, please: {a}, {b}.'), a=first[0], b=second[0])
    lines = [f'"{w[0]}" means about the same as "{w[4]}" and is the opposite of "{w[3]}". Example: the {w[0]} {w[5]}.' for w in (first, second)]
    return prompt, "\n".join(lines)


def _spelling(rng: Random) -> tuple[str, str]:
    words = rng.sample(ANIMALS + FOODS + THINGS + JOBS + COLOURS, 2)
    prompt = ask(rng, ("Spell {a} and {b} letter by letter.", "How are {a} and {b} spelled?", "Spell the words {a} and {b} and count their letters."), a=words[0], b=words[1])
    return prompt, "\n".join(f"{word}: {'-'.join(word)}, {len(word)} letters" for word in words)


def _plural(rng: Random) -> tuple[str, str]:
    n, colour, thing, place = rng.randint(2, 12), rng.choice(COLOURS), rng.choice(ANIMALS[:4] + THINGS), rng.choice(PLACES)
    many = plural(thing)
    prompt = ask(rng, ('Rewrite for {n}: "There is one {c} {t} in {p}."', 'Put into the plural with {n}: "There is one {c} {t} in {p}."'), n=n, c=colour, t=thing, p=place)
    return prompt, f'The plural of "{thing}" is "{many}", and "is" becomes "are".\nThere are {n} {colour} {many} in {place}.'


def _question(rng: Random) -> tuple[str, str]:
    name, (base, past, *_), thing, day = rng.choice(NAMES), rng.choice(VERBS), rng.choice(THINGS), rng.choice(DAYS)
    statement = f"{name} {past} the {thing} on {day}."
    kind, answer = rng.choice((("yes or no", f"Did {name} {base} the {thing} on {day}?"), ("when", f"When did {name} {base} the {thing}?"), ("what", f"What did {name} {base} on {day}?"), ("who", f"Who {past} the {thing} on {day}?")))
    return ask(rng, ('Make a {k} question from: "{s}"', 'Turn this into a {k} question: "{s}"', 'Ask a {k} question about: "{s}"'), k=kind, s=statement), answer


def _reported(rng: Random) -> tuple[str, str]:
    a, b = rng.sample(NAMES, 2)
    (base, *_), thing, day = rng.choice(VERBS), rng.choice(THINGS), rng.choice(DAYS)
    prompt = ask(rng, ('Put into reported speech: {a} said to {b}, "I will {v} your {t} on {d}."', 'Write without quotation marks: {a} said to {b}, "I will {v} your {t} on {d}."'), a=a, b=b, v=base, t=thing, d=day)
    return prompt, f'In reported speech "I" becomes "{a}", "your" becomes "the" and "will" becomes "would".\n{a} told {b} that {a} would {base} the {thing} of {b} on {day}.'


def _message(rng: Random) -> tuple[str, str]:
    to, sender = rng.sample(NAMES, 2)
    thing, day, place = rng.choice(THINGS), rng.choice(DAYS), rng.choice(PLACES)
    prompt = ask(rng, ("Write a short message from {s} to {t}: bring the {g} to {p} on {d}.", "{s} wants {t} to bring the {g} to {p} on {d}. Write a polite note."), s=sender, t=to, g=thing, p=place, d=day)
    hope = rng.choice(("I hope you are well.", "I hope your week is going well.", "It was good to see you."))
    end = rng.choice(("It would help me very much.", "I need it for my work.", "Tell me if you cannot come."))
    return prompt, f"Dear {to},\n{hope} Could you please bring the {thing} to {place} on {day}? {end}\nBest wishes,\n{sender}"


def _scene(rng: Random, name: str, place: str, thing: str) -> list[str]:
    animal, colour, weather, food = rng.choice(ANIMALS), rng.choice(COLOURS), rng.choice(WEATHER), rng.choice(FOODS)
    friend = rng.choice([other for other in NAMES if other != name])
    return [
        f"It was a {weather} {rng.choice(('morning', 'afternoon', 'evening'))}, and {name} was on the way to {place}.",
        f"Near the gate there was {with_article(animal)} with {with_article(colour)} {rng.choice(('ribbon', 'collar', 'tail'))}.",
        f'"{rng.choice(("Where are you going", "What are you looking for", "Who are you waiting for"))}?" asked {name}.',
        f"The {animal} said nothing, but it ran to {rng.choice(('a tree', 'an old wall', 'the water'))} and waited.",
        f"There, under {rng.choice(('a stone', 'some leaves', 'a piece of wood'))}, {name} found the {thing}.",
        f"{name} was {rng.choice(('surprised', 'happy', 'a little afraid', 'very proud'))} and called {friend}.",
        f"{friend} came quickly and {rng.choice(('laughed', 'smiled', 'looked at it for a long time'))}.",
        f"They gave the {animal} {with_article(food)} and went home together.",
    ]


def _story(rng: Random) -> tuple[str, str]:
    name, place, thing = rng.choice(NAMES), rng.choice(PLACES), rng.choice(THINGS)
    prompt = ask(rng, ("Write a story about {n}, {p} and a lost {t}.", "Tell me a story: {n} finds a {t} in {p}.", "A short story, please, with {n}, a {t} and {p}."), n=name, p=place, t=thing)
    moral = rng.choice(("Sometimes a small friend knows the way.", "Good things come to those who look twice.", "From that day on they met there every week."))
    days = rng.choice(("a week", "two days", "a month"))
    seen = f"People in {place} had looked everywhere, and the {rng.choice(JOBS)} had even asked the {rng.choice(JOBS)}."
    return prompt, " ".join([f"{name} had lost the {thing} {days} ago.", seen, *_scene(rng, name, place, thing), moral])


def _essay(rng: Random) -> tuple[str, str]:
    job, place = rng.choice(JOBS), rng.choice(PLACES)
    (adjective, more, *_), thing = rng.choice(ADJECTIVES), rng.choice(THINGS)
    prompt = ask(rng, ("Write an essay: why every {j} needs a {a} {t} in {p}.", "Argue in a short essay that {p} needs a {j} with a {a} {t}.", "Essay topic: the {j}, the {a} {t} and {p}."), j=job, a=adjective, t=thing, p=place)
    reasons = rng.sample((
        f"it saves time, because the {job} does not have to search for another {thing}",
        f"people in {place} notice when a {thing} is {adjective}, and they talk about it",
        f"a {more} {thing} lasts for many years and costs less in the end",
        f"the work of {with_article(job)} is hard enough without a bad {thing}",
        f"children who visit {place} learn from what the {job} does",
        f"nobody likes to wait, and a good {thing} makes the day shorter",
    ), 3)
    doubt = rng.choice(("money", "space", "time", "noise"))
    body = [f"{word}, {reason}." for word, reason in zip(("First", "Second", "Finally"), reasons, strict=True)]
    opening = f"Many people think that {with_article(adjective)} {thing} is not important for {with_article(job)}. I do not agree, and I will give three reasons."
    closing = f"Some say that {doubt} is a problem. It is true that {doubt} matters, but the reasons above matter more. In short, every {job} in {place} should have {with_article(adjective)} {thing}."
    return prompt, "\n\n".join([opening, " ".join(body), closing])


def _letter(rng: Random) -> tuple[str, str]:
    sender, friend, third = rng.sample(NAMES, 3)
    place, day, thing = rng.choice(PLACES), rng.choice(DAYS), rng.choice(THINGS)
    prompt = ask(rng, ("Write a letter from {s} to {f} about a visit to {p} on {d}.", "{s} visited {p} on {d}. Write the letter to {f}."), s=sender, f=friend, p=place, d=day)
    return prompt, f"Dear {friend},\n\nthank you for your last letter. On {day} I visited {place} with {third}, and I want to tell you about it. " + " ".join(_scene(rng, third, place, thing)) + f"\n\nPlease write soon and tell me about your week.\n\nYours,\n{sender}"


def _plan(rng: Random) -> tuple[str, str]:
    name, n = rng.choice(NAMES), rng.randint(5, 7)
    places = rng.sample(PLACES, n)
    prompt = ask(rng, ("Plan a week for {n} who wants to see {l}.", "Make a plan by day for {n}: {l}."), n=name, l=", ".join(places))
    lines = []
    for day, place in zip(DAYS, places, strict=False):
        thing, food = rng.choice(THINGS), rng.choice(FOODS)
        lines.append(f"On {day} {name} goes to {place}, takes {with_article(thing)} and eats {with_article(food)} {rng.choice(('in the morning', 'at noon', 'in the evening'))}. The weather is {rng.choice(WEATHER)}.")
    return prompt, numbered(lines)


CORPUS = Corpus(
    "english",
    {"tense": _tense, "passive": _passive, "comparative": _comparative, "opposites": _opposites, "spelling": _spelling, "plural": _plural,
     "question": _question, "reported": _reported, "message": _message},
    {"story": _story, "essay": _essay, "letter": _letter, "plan": _plan},
)
