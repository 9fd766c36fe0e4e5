"""Tasks whose answers are short texts of a fixed form."""

from __future__ import annotations

from tests.bench.narrow_tasks.task import NarrowTask

UI_TRANSLATION = NarrowTask(
    "ui_translation",
    "Translate the text of a user interface into Spanish, French and German. Answer in three lines: es, fr, de.",
    ("Open file", "es: Abrir archivo\nfr: Ouvrir le fichier\nde: Datei öffnen"),
    64,
    (
        "{verb} {thing}",
        "Your {thing} was {done}.",
        "Do you want to {verb} this {thing}?",
        "{2..99} new {thing}s on {weekday}",
        "The {thing} cannot be {done}.",
    ),
)
PRODUCT = NarrowTask(
    "product_description",
    "Describe the product for a shop in this form: Title, Features (three bullets), Ideal for.",
    (
        "mug, blue, glass",
        (
            "Title: Blue Glass Mug\nFeatures:\n- Clear blue glass\n- Holds 300 ml\n- Safe in the dishwasher\n"
            "Ideal for: tea at home"
        ),
    ),
    80,
    (
        "{product}, {colour}, {material}",
        "{product}, {quality}, {material}, {9..250} euros",
        "{product} in {colour}, {quality} and {quality2}",
        "{product} by {company}, {material}, {quality}",
    ),
)
UNITS = NarrowTask(
    "unit_conversion",
    "Convert the unit. Answer in two lines: Result, then How, with the factor.",
    ("5 miles in kilometres", "Result: 8.05 kilometres\nHow: 1 mile is 1.609 kilometres, so 5 x 1.609 = 8.05."),
    56,
    (
        "{2..900} {length} in {length2}",
        "{2..900} {weight} in {weight2}",
        "{2..90}.{1..9} {length} in {length2}",
        "How many {weight2} are {2..90}.{1..9} {weight}?",
        "{2..120} degrees Celsius in Fahrenheit",
        "{2..120} degrees Fahrenheit in Celsius",
    ),
)
FAQ = NarrowTask(
    "faq",
    "Answer for Kestrel, a bicycle lamp: 300 lumen, battery for 8 hours, charges by USB-C in 2 hours, 120 grams, "
    "waterproof, 3 years of warranty, 49 euros. Two sentences at most. End with: Anything else?",
    (
        "How heavy is it?",
        "The Kestrel weighs 120 grams, so you hardly notice it on your handlebar. Anything else?",
    ),
    64,
    (
        "Can I leave it charging for {2..20} hours?",
        "Does it come in {colour}?",
        "Is it {quality} enough for {weekday} rides in {city}?",
        "Is it cheaper than {20..90} euros in {city}?",
        "It stopped after {2..40} months, what can I do?",
        "Does it last for a ride of {2..14} hours?",
        "Can {first} use it in the rain of {city}?",
        "Is it made of {material} or {material2}?",
        "I ordered one on {weekday}, when does it come to {city}?",
    ),
)
EMAIL_SUBJECT = NarrowTask(
    "email_subject",
    "Write three subject lines for the e-mail, numbered, at most eight words each.",
    (
        "Tell all customers that the shop is closed on Monday.",
        "1. Our shop is closed on Monday\n2. Monday: no opening hours\n3. Please note: closed this Monday",
    ),
    48,
    (
        "Invite {company} to a talk about {topic} on {weekday} at {hour}.",
        "Remind {person} to {action} by {weekday}.",
        "Tell the team in {city} that the {thing} was {done}.",
        "Offer {first} a discount of {5..50} % on the {product}.",
        "Ask {company} for a meeting about {topic}.",
    ),
)
RECIPE = NarrowTask(
    "recipe",
    "Write a recipe in four numbered steps, one short sentence each.",
    (
        "pancake with apple and cinnamon",
        (
            "1. Mix flour, milk and eggs.\n2. Cut the apple into slices.\n3. Fry the batter with the apple.\n"
            "4. Add cinnamon and serve."
        ),
    ),
    80,
    (
        "{dish} with {food} and {herb}",
        "{dish} of {food}, {food2} and {fruit}",
        "quick {dish} with {food} for {2..8} people",
        "{fruit} {dish} with {herb}",
    ),
)
POLITE = NarrowTask(
    "polite",
    "Rewrite the message so that it is polite and friendly. Answer with the message only, two sentences at most.",
    (
        "send the file today",
        "Could you please send me the file today? Thank you very much for your help.",
    ),
    56,
    (
        "{rude}",
        "{first}, {rude}",
        "{rude} and {action}",
        "{first}, {action}, and {rude}",
    ),
)
SENSORS = NarrowTask(
    "sensor_summary",
    "Summarise the readings in three bullets: Highest, Lowest, Advice.",
    (
        "Hall 1: 20 C, Hall 2: 35 C, Hall 3: 22 C",
        "- Highest: Hall 2 with 35 C\n- Lowest: Hall 1 with 20 C\n- Advice: check the cooling of Hall 2",
    ),
    64,
    (
        "{sensor} at {hour} in {sensor_unit}: {city} {10..99}, {city2} {10..99}, {city3} {10..99}",
        "{sensor} of the {element} line in {sensor_unit}: {month} {10..99}, {month2} {10..99}, {month3} {10..99}",
        "Pump 1: {10..99} {sensor_unit}, Pump 2: {10..99} {sensor_unit}, Pump 3: {10..99} {sensor_unit} ({weekday})",
    ),
)
CHINESE = NarrowTask(
    "chinese_topic",
    "Say in English what the Chinese request is about. Answer in two lines: Topic, then Wants, one short sentence.",
    ("请写一首关于春天的诗。", "Topic: spring poem\nWants: The user wants a poem about spring."),
    48,
    inputs="chinese_instructions",
)
