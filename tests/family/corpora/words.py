"""The words that the task corpora and the general corpus share."""

from __future__ import annotations

NAMES = ("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Iris", "Jack", "Kate", "Leo", "Mia", "Noah", "Olga", "Paul", "Rosa", "Sam", "Tina", "Victor")
PLACES = ("the park", "the market", "the library", "the school", "the station", "the river", "the forest", "the kitchen", "the garden", "the museum", "the village", "the harbour")
ANIMALS = ("cat", "dog", "horse", "bird", "fish", "rabbit", "fox", "cow", "duck", "mouse", "lion", "bear")
FOODS = ("apple", "pear", "orange", "lemon", "cake", "bun", "egg", "cookie", "banana", "tomato", "potato", "carrot")
THINGS = ("book", "pen", "box", "cup", "lamp", "chair", "table", "clock", "map", "key", "bag", "ball", "letter", "coat", "bottle", "ticket")
COLOURS = ("red", "blue", "green", "yellow", "white", "black", "brown", "grey")
WEATHER = ("sunny", "rainy", "windy", "cloudy", "cold", "warm", "snowy", "quiet")
JOBS = ("teacher", "doctor", "farmer", "baker", "painter", "driver", "student", "sailor", "nurse", "engineer")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
# (base, past, past participle, -ing form)
VERBS = (
    ("open", "opened", "opened", "opening"), ("clean", "cleaned", "cleaned", "cleaning"), ("paint", "painted", "painted", "painting"),
    ("carry", "carried", "carried", "carrying"), ("find", "found", "found", "finding"), ("buy", "bought", "bought", "buying"),
    ("sell", "sold", "sold", "selling"), ("break", "broke", "broken", "breaking"), ("take", "took", "taken", "taking"),
    ("draw", "drew", "drawn", "drawing"), ("hide", "hid", "hidden", "hiding"), ("bring", "brought", "brought", "bringing"),
    ("keep", "kept", "kept", "keeping"), ("lose", "lost", "lost", "losing"), ("wash", "washed", "washed", "washing"),
    ("move", "moved", "moved", "moving"), ("repair", "repaired", "repaired", "repairing"), ("make", "made", "made", "making"),
    ("choose", "chose", "chosen", "choosing"), ("forget", "forgot", "forgotten", "forgetting"),
)
# (adjective, comparative, superlative, antonym, synonym, noun it goes with)
ADJECTIVES = (
    ("big", "bigger", "biggest", "small", "large", "house"), ("fast", "faster", "fastest", "slow", "quick", "train"),
    ("happy", "happier", "happiest", "sad", "glad", "child"), ("old", "older", "oldest", "young", "aged", "man"),
    ("hard", "harder", "hardest", "easy", "difficult", "question"), ("cold", "colder", "coldest", "hot", "chilly", "morning"),
    ("bright", "brighter", "brightest", "dark", "shining", "room"), ("loud", "louder", "loudest", "quiet", "noisy", "voice"),
    ("strong", "stronger", "strongest", "weak", "powerful", "horse"), ("rich", "richer", "richest", "poor", "wealthy", "town"),
    ("brave", "braver", "bravest", "afraid", "bold", "sailor"), ("clever", "cleverer", "cleverest", "foolish", "smart", "student"),
    ("clean", "cleaner", "cleanest", "dirty", "tidy", "kitchen"), ("kind", "kinder", "kindest", "cruel", "gentle", "nurse"),
    ("near", "nearer", "nearest", "far", "close", "station"), ("tall", "taller", "tallest", "short", "high", "tree"),
)
_IRREGULAR = {"fish": "fish", "mouse": "mice", "box": "boxes", "fox": "foxes", "potato": "potatoes", "tomato": "tomatoes"}


def plural(noun: str) -> str:
    """The plural of any noun above."""
    return _IRREGULAR.get(noun, noun + "s")


def with_article(word: str) -> str:
    """`a pen`, `an egg`."""
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"
