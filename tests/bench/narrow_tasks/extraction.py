"""Tasks that turn a text into fields, a query or a label."""

from __future__ import annotations

from tests.bench.narrow_tasks.task import NarrowTask

CONTACT = NarrowTask(
    "contact_json",
    "Extract the contact as JSON with the keys name, company, city, phone and mail. Use null for what is missing.",
    (
        "This is Tom Berg of Berg Foods, I moved to Rome, my number is 555-0142.",
        '{"name": "Tom Berg", "company": "Berg Foods", "city": "Rome", "phone": "555-0142", "mail": null}',
    ),
    64,
    (
        "Hello, I am {person} from {company} in {city}. Call me on {phone}.",
        "{person} ({company}, {city}) asked us to write to {mail}.",
        "Please note the new number of {person}: {phone}. The office is in {city}.",
        "{company} has a new buyer, {person}. Phone {phone}, mail {mail}, based in {city}.",
        "Met {person} at the fair in {city} on {weekday}; works for {company}, {mail}.",
    ),
)
SQL = NarrowTask(
    "sql",
    "Write one SQL query. Tables: customers(id, name, city), orders(id, customer_id, product, quantity, price, day).",
    (
        "How many customers are there in Rome?",
        "SELECT COUNT(*) FROM customers WHERE city = 'Rome';",
    ),
    72,
    (
        "List the names of all customers in {city}.",
        "Which orders of the {product} have a price above {10..500}?",
        "What is the total quantity of the {product} ordered since {month} {year}?",
        "Show the {3..20} most expensive orders of customers in {city}.",
        "How many orders did {person} place in {year}?",
        "What is the average price of the {product} for customers in {city}?",
        "Delete the orders of {person} from before {year}.",
        "Which customers in {city} ordered more than {2..40} of the {product}?",
    ),
)
TRIAGE = NarrowTask(
    "ticket_triage",
    "Sort the support ticket. Answer in four lines: Category, Priority (low, medium, high), Team, Summary.",
    (
        "The app closes whenever I open my photos.",
        "Category: Bug\nPriority: high\nTeam: Mobile\nSummary: The app closes when photos are opened.",
    ),
    56,
    (
        "The {screen} page {failure}. I use {browser}.",
        "Since {weekday} the {screen} page {failure}, please help. {person}",
        "I want to cancel my order of the {product} and get {20..400} euros back.",
        "How can I change the {thing} in {screen}? I found nothing in {browser}.",
        "My {product} arrived in {city} without its {thing}. Order {10000..99999}.",
        "Could you add a {colour} theme to the {screen} page?",
    ),
)
ACTIONS = NarrowTask(
    "meeting_actions",
    "List the action items of the meeting notes, a line each: - [owner] action (due date).",
    (
        "We spoke about hiring. Tom will write the advert by Friday. Eva calls the agency on Monday.",
        "- [Tom] write the advert (Friday)\n- [Eva] call the agency (Monday)",
    ),
    72,
    (
        "We discussed {topic}. {first} will {action} by {weekday}. {first2} agreed to {action2} on {weekday2}.",
        "Topic: {topic}. {first} has to {action} before {month} {day}. {first2} wants to {action2} by {weekday}.",
        "{first} reported on {topic}; nothing to do. {first2} will {action} by {weekday} and {first3} will {action2}.",
    ),
)
DATES = NarrowTask(
    "date_iso",
    "Rewrite the dates as ISO 8601. Answer with start and end only, in one line.",
    ("from the 3rd of May to the 12th of June 2001", "start: 2001-05-03, end: 2001-06-12"),
    32,
    (
        "from {month} {day} to {month2} {day2}, {year}",
        "{day} {month} {year} until {day2} {month2} {year2}",
        "between {day}/{1..12}/{year} and {day2}/{1..12}/{year2}",
        "the trip begins on {month} {day}, {year} and takes {2..20} days",
    ),
)
SENTIMENT = NarrowTask(
    "sentiment",
    "Judge the review. Answer in two lines: Sentiment (positive, negative, neutral) and Reason, one short sentence.",
    (
        "The lamp is bright, but it flickers all evening.",
        "Sentiment: negative\nReason: The lamp flickers, which spoils its brightness.",
    ),
    48,
    (
        "The {colour} {product} {opinion}.",
        "Bought the {product} in {city}. It {opinion}, and it {opinion2}.",
        "My {product} {opinion}. The {material} is {quality}, though.",
        "I gave the {product} to {first}: it {opinion}.",
    ),
)
MATHS = NarrowTask(
    "maths_json",
    "Do not solve the problem. Describe it as JSON with the keys topic, asked_for, unit and numbers.",
    (
        "Tom has 3 boxes with 12 pens each. He gives 5 pens away. How many pens are left?",
        '{"topic": "pens", "asked_for": "how many pens are left", "unit": "pens", "numbers": [3, 12, 5]}',
    ),
    80,
    inputs="maths_word_problems",
)
LOGS = NarrowTask(
    "log_line",
    "Explain the log line to an operator in three lines: What, Cause, Next step.",
    (
        "2001-05-03 10:00 ERROR disk: write failed on /dev/sdb, no space left",
        "What: The disk /dev/sdb cannot be written.\nCause: It is full.\nNext step: Free some space or add a disk.",
    ),
    80,
    (
        "{year}-0{1..9}-{10..28} {hour} ERROR {service}: connection to {service2} refused after {2..60} s",
        "{year}-1{0..2}-{10..28} {hour} WARN {service}: queue has {1000..9000} entries, limit {500..900}",
        "{year}-0{1..9}-{10..28} {hour} ERROR {module}: {folder}/{module2}.{extension} not found, status {400..504}",
        "{year}-0{1..9}-{10..28} {hour} ERROR {service}: user {first} has no right to {verb} the {thing}",
        "{year}-1{0..2}-{10..28} {hour} WARN {service}: memory at {85..99} % for {3..90} minutes",
    ),
)
