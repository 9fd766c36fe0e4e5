"""The words that prompts are made of: by symbol, its lines. A line may have symbols itself; see `task`."""

from __future__ import annotations


def _words(text: str) -> list[str]:
    return text.split()


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


_PLACES = """Oslo Lisbon Vienna Dublin Prague Madrid Athens Warsaw Helsinki Brussels Zurich Hamburg Lyon Turin Porto
Seville Krakow Ghent Malmo Leeds Toronto Chicago Boston Denver Seattle Austin Lima Quito Nairobi Cairo Accra Osaka Seoul
Mumbai Sydney Perth Auckland Hanoi Jakarta"""
_NAMES = """Anna Ben Clara David Elena Felix Grace Hugo Irene Jonas Karin Liam Maria Nora Oscar Paula Quentin Rosa Simon
Tessa Umar Vera Walter Yusuf Zoe Adam Bianca Carlos Diana Emil"""
_FAMILY = """Adler Baker Costa Dubois Ekman Fischer Gomez Hansen Ivanova Jensen Keller Lopez Meyer Novak Olsen Parker
Quinn Rossi Santos Turner Ueda Vogel Weber Yilmaz Ziegler"""

WORDS: dict[str, list[str]] = {
    "city": _words(_PLACES),
    "first": _words(_NAMES),
    "person": ["{first} {family}", "{first} {family}"],
    "family": _words(_FAMILY),
    "company": [f"{name} {kind}" for name in _words(_FAMILY)[::2] for kind in ("Ltd", "Group", "Labs", "Foods")],
    "phone": ["555-0{100..199}", "555-0{100..199}"],
    "mail": ["{first}@{domain}", "{family}.{first}@{domain}"],
    "domain": _words("example.com example.org example.net mail.example.com"),
    "month": _words("January February March April May June July August September October November December"),
    "weekday": _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
    "day": [str(day) for day in range(1, 29)],
    "year": [str(year) for year in range(1995, 2025)],
    "hour": [f"{hour}:{minute}" for hour in range(8, 19) for minute in ("00", "15", "30", "45")],
    "product": _listed("""
        desk lamp, office chair, water bottle, backpack, headphones, keyboard, coffee grinder, bicycle helmet,
        rain jacket, camping stove, notebook, wall clock, toaster, yoga mat, phone case, suitcase, kettle, umbrella
    """),
    "material": _words("steel wood aluminium glass cotton leather bamboo plastic ceramic wool titanium cork"),
    "colour": _words("black white red green blue grey yellow orange brown purple silver"),
    "quality": _words("light durable foldable waterproof quiet compact recyclable washable adjustable cordless"),
    "screen": _words("login settings checkout profile search payment upload report dashboard inbox"),
    "failure": _lines("""
        shows a blank page
        crashes when I press save
        loads for more than {2..9} minutes
        says error {400..599}
        does not accept my password
        lost my last {2..40} entries
        charges me twice
        sends no confirmation
    """),
    "browser": _words("Firefox Chrome Safari Edge Opera"),
    "fruit": _words("apple banana cherry lemon mango orange peach pear plum tomato"),
    "food": _words("rice pasta lentils chicken salmon tofu potatoes beans eggs mushrooms spinach carrots pumpkin beef"),
    "herb": _words("basil thyme parsley mint coriander garlic ginger chili lemon pepper"),
    "dish": _words("soup salad curry stew omelette casserole pie stir-fry sandwich wrap"),
    "thing": _words("order message invoice file account photo comment address appointment payment document contact"),
    "done": _words("saved deleted sent updated cancelled uploaded shared archived restored renamed"),
    "verb": _words("open save delete send edit share print export import copy move rename upload download"),
    "noun": _words("user order item price total name count list score index file line word key value date token node"),
    "function": [
        f"{verb}_{noun}"
        for verb in _words("get count sum find sort merge parse check")
        for noun in _words("users orders items prices names scores lines words keys dates tokens nodes")
    ],
    "expression": _lines("""
        sorted({noun}s)
        len(set({noun}s))
        sum(x * {2..9} for x in {noun}s)
        [x for x in {noun}s if x > {1..50}]
        max({noun}s) - min({noun}s)
        {k: len(k) for k in {noun}s}
        ", ".join({noun}s)
        {noun}s[::-1]
        {noun}s[:{2..9}]
        any(x < {1..20} for x in {noun}s)
    """),
    "module": _words("billing search auth parser cache router export mailer scheduler uploader logger metrics"),
    "extension": _words("py txt log csv json md html yaml png zip"),
    "folder": _words("src docs logs data backup photos reports tests build config"),
    "service": _words("web api worker database cache queue proxy mail auth search"),
    "element": _words("hydrogen helium carbon nitrogen oxygen sodium iron copper zinc silver gold lead neon argon"),
    "action": _lines("""
        write the release notes
        call the supplier in {city}
        book a room for {4..30} people
        fix the {screen} page
        send the budget to {company}
        order {3..60} chairs
        test the {module} module
        update the price list
        prepare slides on the {product}
        hire a new designer
    """),
    "topic": _lines("""
        the {product} launch
        sales in {city}
        the {module} module
        the office in {city}
        the contract with {company}
        the {month} budget
    """),
    "opinion": _lines("""
        broke after {2..20} days
        works better than I hoped
        looks cheap
        is worth every cent
        arrived late and scratched
        is easy to clean
        is far too small
        feels solid and {quality}
        smells strange
        was a perfect gift
        is fine, nothing special
        stopped charging
    """),
    "rude": _lines("""
        send me the {thing} now
        you forgot my {thing} again
        stop calling me about the {thing}
        why is the {thing} still not done?
        fix the {screen} page, it is useless
        I told you {2..9} times about the {thing}
        give me my money back for the {product}
        nobody understands your {thing}
        be on time on {weekday}
        your {product} is bad
    """),
    "length": _words("metres feet inches miles kilometres yards centimetres"),
    "weight": _words("kilograms pounds ounces grams tonnes"),
    "sensor": _words("temperature humidity pressure vibration voltage flow"),
    "sensor_unit": _words("C % kPa mm/s V l/min"),
}
